"""`poundlock state`: what the operators of a job keep, key by key. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.job_lookup import find_of_job
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import watermark_text
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.state.decided_state import DecidedState
    from poundlock.storage import Storage


_LIMIT = 20
_READS = 3  # a job that runs merges its files away while they are read

_Groups = list[tuple[str, dict[str, Any]]]


def _lines(groups: _Groups, limit: int) -> Iterator[str]:
    if not groups:
        yield "no key has any state"
    for number, group in groups:
        yield f"operator {number}: watermark {watermark_text(group['watermark'])}"
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
        return f"{entry['key']!r} in [{watermark_text(window[0])}, {watermark_text(window[1])})"
    return repr(entry["key"])


@with_shared_options
def command(
    path: Annotated[
        str,
        Argument(
            metavar="PATH", help="Folder of a checkpoint or savepoint, a job's file JOB.PY[:NAME], or its id or name."
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
            help='Only this key: a text, or JSON such as 12, "12" or ["ada", 3] for two columns.',
        ),
    ] = None,
    limit: Annotated[int, Option("--limit", min=1, help="Entries and timers of each to show.")] = _LIMIT,
    *,
    call: Call,
) -> None:
    """Show the state of a job's operators, or that of one key.

    No JVM is started; one key costs a look-up, whatever there is besides.
    """
    from poundlock.savepoint.edit import parse_key
    from poundlock.savepoint.metadata import METADATA
    from poundlock.state.runs.run import DamagedRunError
    from poundlock.storage import open_storage

    storage = open_storage(path)
    if storage.stat(METADATA) is None:
        storage = find_of_job(path, call).storage
    for left in reversed(range(_READS)):
        state = _recorded(storage)
        try:
            wanted = () if key is None else (parse_key(key),)
            # For --json all there is; for people no more than is shown.
            groups = _kept(storage, state, operator, *wanted, limit=None if call.output.as_json else limit)
            break
        except DamagedRunError:
            if not left or state == _recorded(storage):
                raise
    call.output.show(_lines(groups, limit), [{"operator": number, **group} for number, group in groups])


def _recorded(storage: Storage) -> DecidedState | None:
    """Return what a savepoint, or the ledger of a checkpoint, says of keyed state; None where it says nothing."""
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.checkpoint.ledger.records import state_parts
    from poundlock.savepoint.metadata import METADATA, read_metadata
    from poundlock.state.decided_state import state_behind

    if storage.stat(METADATA) is not None:
        return read_metadata(storage).decision.state
    ledger = Ledger(storage)
    newest = ledger.newest()
    return None if newest is None else state_behind(state_parts(ledger, newest))


def _kept(storage: Storage, state: DecidedState | None, operator: str | None, *key: Any, limit: int | None) -> _Groups:
    from poundlock.state.decided_state import manifests_of
    from poundlock.state.inspect import described
    from poundlock.state.runs.files import run_files

    manifests = manifests_of(state)
    known = sorted({name for manifest in manifests.values() for name in manifest.operators})
    if not known or (operator is not None and operator not in known):
        raise _no_state(storage, operator, f"give one of: {', '.join(known)}" if known else None)
    files = run_files(storage.root)
    return [
        (name, described(manifest, files, name, *key, limit=limit))
        for manifest in manifests.values()
        for name in manifest.operators
        if operator in (None, name)
    ]


def _no_state(storage: Storage, operator: str | None, next: str | None) -> DefinitionError:
    return DefinitionError(
        f"{storage.root} has no state of {'such an operator' if operator else 'keyed operators'}",
        next=next or "give the folder of a checkpoint or a savepoint of a job with windows or process functions",
    )
