"""`poundlock state`: what the operators of a job keep, key by key. Read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from typer import Argument, Option

from poundlock.cli.completion import checkpoint_names
from poundlock.cli.job_lookup import find_of_job
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import watermark_text

_LIMIT = 20

_Groups = Sequence[tuple[str, Mapping[str, Any]]]


def _lines(groups: _Groups, limit: int) -> Iterator[str]:
    if not groups:
        yield "no key has any state"
    for number, group in groups:
        yield f"operator {number}: watermark {watermark_text(group['watermark'])}"
        if not group["state"] and not any(group["timers"].values()):
            yield "  nothing is kept"
        for name, state in group["state"].items():
            ttl = "" if state["ttl_ms"] is None else f", time to live {state['ttl_ms']} ms"
            yield f"  {name} ({state['kind'] or 'table'}{ttl}): {state['count']} entries"
            listed = (f"    {_named(entry)}: {entry['value']!r}" for entry in state["entries"])
            yield from _some(limit, listed, state["count"])
        for kind in ("event", "processing"):
            timers = group[f"{kind}_timers"]
            if timers:
                count = group["timers"][kind]
                yield f"  {kind}-time timers: {count}"
                listed = (f"    {watermark_text(timer['time'])} {_named(timer)}" for timer in timers)
                yield from _some(limit, listed, count)


def _some(limit: int, lines: Iterator[str], count: int) -> Iterator[str]:
    yield from islice(lines, limit)
    if count > limit:
        yield "    …"


def _named(entry: dict[str, Any]) -> str:
    window = entry["window"]
    if isinstance(window, (list, tuple)) and len(window) == 2:
        return f"{_shown(entry['key'])} in [{watermark_text(window[0])}, {watermark_text(window[1])})"
    return _shown(entry["key"])


def _shown(key: Any) -> str:
    """Return a key as `--key` takes it; a text stands in quotes, so that one sees where it ends."""
    from poundlock.state.key_text import key_text

    return repr(key) if isinstance(key, str) else key_text(key)


@with_shared_options
def command(
    path: Annotated[
        str,
        Argument(
            metavar="PATH",
            help="Folder of a checkpoint or savepoint, a job's file JOB.PY[:NAME], or its id or name.",
            autocompletion=checkpoint_names,
        ),
    ],
    operator: Annotated[
        str | None, Argument(metavar="OPERATOR", help="Only this one, by its id.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        Option(
            "--key",
            metavar="KEY",
            help="Only this key: ada, 12, 2018-12-19, 2018-12-19T01:50:26Z, 12.50, X'00FF' for bytes, or [\"ada\", 3] for two columns.",
        ),
    ] = None,
    limit: Annotated[int, Option("--limit", min=1, help="Entries and timers of each to show.")] = _LIMIT,
    *,
    call: Call,
) -> None:
    """Show the state of a job's operators, or that of one key.

    No JVM is started; one key costs a look-up, whatever there is besides.
    """
    from poundlock.savepoint.kept_state import kept_state
    from poundlock.savepoint.metadata import METADATA
    from poundlock.state.key_text import plain
    from poundlock.storage import open_storage

    storage = open_storage(path)
    if storage.stat(METADATA) is None:
        storage = find_of_job(path, call).storage
    # For --json all there is; for people no more than is shown.
    kept = kept_state(storage, operator, key, limit=None if call.output.as_json else limit)
    groups = [(each.operator, each.content) for each in kept]
    call.output.show(_lines(groups, limit), lambda: [{"operator": name, **plain(group)} for name, group in groups])
