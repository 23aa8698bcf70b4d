"""`poundlock state`: what the operators of a job keep, key by key. Read only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from poundlock.cli.checkpoints import find_of_job
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

__all__ = ["command"]

_LIMIT = 20
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _State:
    """Key groups by the number of their operator."""

    groups: list[tuple[str, dict[str, Any]]]
    limit: int

    def to_json(self) -> Any:
        return [{"operator": number, **group} for number, group in self.groups]

    def lines(self) -> Iterable[str]:
        if not self.groups:
            yield "no key has any state"
        for number, group in self.groups:
            yield f"operator {number}, key group {group['group']}: watermark {_time(group['watermark'])}"
            for name, state in group["state"].items():
                ttl = "" if state["ttl_ms"] is None else f", time to live {state['ttl_ms']} ms"
                yield f"  {name} ({state['kind'] or 'table'}{ttl}): {len(state['entries'])} entries"
                yield from self._some(f"    {_named(entry)}: {entry['value']!r}" for entry in state["entries"])
            for kind in ("event", "processing"):
                timers = group[f"{kind}_timers"]
                if timers:
                    yield f"  {kind}-time timers: {len(timers)}"
                    yield from self._some(f"    {_time(timer['time'])} {_named(timer)}" for timer in timers)

    def _some(self, lines: Iterable[str]) -> Iterable[str]:
        for number, line in enumerate(lines):
            if number == self.limit:
                yield "    …"
                return
            yield line


def _named(entry: dict[str, Any]) -> str:
    window = entry["window"]
    if isinstance(window, (list, tuple)) and len(window) == 2:
        return f"{entry['key']!r} in [{_time(window[0])}, {_time(window[1])})"
    return repr(entry["key"])


def _time(ms: int) -> str:
    if ms in (_FIRST, _LAST):
        return "-" if ms == _FIRST else "at the end"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(ms)


def command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Folder of a checkpoint or savepoint, a job's file JOB.PY[:NAME], or its id or name."
        ),
    ],
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="N", help="Only this one, by Spark's number.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Entries and timers of each to show.")] = _LIMIT,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the state of a job's own operators.

    Of windows that run on Spark's own operators and of DataFrame functions Spark keeps the state in a form of its own.
    """
    from poundlock.config import load_settings
    from poundlock.runtime.state_blobs import is_ours, state_blobs
    from poundlock.savepoint.metadata import METADATA
    from poundlock.savepoint.sparklog import state_operators
    from poundlock.storage import open_storage

    output, settings = Output(json), load_settings(define or (), config=config)
    storage = open_storage(path)
    if storage.stat(METADATA) is None:
        storage = find_of_job(path, define or (), config).storage
    found = [each for each in state_operators(storage) if is_ours(each) and operator in (None, each.number)]
    if not found:
        raise DefinitionError(
            f"{storage.root} has no state of {'such an operator' if operator else 'operators of ours'}",
            next="give the folder of a checkpoint or a savepoint of a job with process functions or windows of ours",
        )
    groups = sorted(
        state_blobs(storage.root, "state", found, settings, say=output.note),
        key=lambda each: (each[0].zfill(9), each[1]["group"]),
    )
    output.show(_State(groups, limit))
