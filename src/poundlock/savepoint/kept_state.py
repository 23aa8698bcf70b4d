"""The keyed state of a job, or of a savepoint, as it is now, straight from its folder: for the command `state` and for REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_parts
from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import METADATA, read_metadata
from poundlock.state.decided_state import DecidedState, Manifests, manifests_of, state_behind
from poundlock.state.inspect import StateReader, described
from poundlock.state.runs.files import run_files
from poundlock.state.runs.run import DamagedRunError
from poundlock.storage import Storage

_READS = 3  # a job that runs merges its files away while they are read


class NoStateError(DefinitionError):
    """There is no such operator, or none that keeps state."""


@dataclass(frozen=True, slots=True)
class OperatorContent:
    """What an operator keeps, all of it or of one key: see `state.inspect.described`."""

    operator: str
    content: Mapping[str, Any]


def kept_state(
    storage: Storage, operator: str | None = None, key: str | None = None, *, limit: int | None = None
) -> Sequence[OperatorContent]:
    """Return what operators keep now.

    Args:
        storage: the folder of a checkpoint or a savepoint.
        operator: the id of one; None = all there are.
        key: one key, as people write it: see `state.key_text`. Operators whose keys are of other types are left out.
        limit: so many entries of a table, and timers of a kind, are listed at most.

    Raises:
        NoStateError: there is no such operator.
        DefinitionError: no key of it can be meant.
        TerminalError: a record of the ledger or a state file is missing or damaged.
    """
    for left in reversed(range(_READS)):
        state = _recorded(storage)
        try:
            return _kept(storage, manifests_of(state), operator, key, limit)
        except DamagedRunError:
            if not left or state == _recorded(storage):
                raise
    raise AssertionError


def _recorded(storage: Storage) -> DecidedState | None:
    """Return what a savepoint, or the ledger of a checkpoint, says of keyed state; None where it says nothing."""
    if storage.stat(METADATA) is not None:
        return read_metadata(storage).decision.state
    ledger = Ledger(storage)
    newest = ledger.newest()
    return None if newest is None else state_behind(state_parts(ledger, newest))


def _kept(
    storage: Storage, manifests: Manifests, operator: str | None, key: str | None, limit: int | None
) -> Sequence[OperatorContent]:
    known = sorted({name for manifest in manifests.values() for name in manifest.operators})
    if not known or operator not in (None, *known):
        raise NoStateError(
            f"{storage.root} has no state of {'such an operator' if operator else 'keyed operators'}",
            next=f"give one of: {', '.join(known)}"
            if known
            else "give the folder of a checkpoint or a savepoint of a job with windows or process functions",
        )
    files = run_files(storage.root)
    readers = [
        (name, StateReader(manifest, files))
        for manifest in manifests.values()
        for name in manifest.operators
        if operator in (None, name)
    ]
    if key is None:
        return [
            OperatorContent(name, described(reader.manifest, reader.files, name, limit=limit))
            for name, reader in readers
        ]
    return _of_key(readers, key, limit)


def _of_key(readers: Sequence[tuple[str, StateReader]], key: str, limit: int | None) -> Sequence[OperatorContent]:
    result, refused = [], None
    for name, reader in readers:
        try:
            wanted = reader.key_of(name, key)
        except DefinitionError as error:
            refused = error
            continue
        result.append(OperatorContent(name, described(reader.manifest, reader.files, name, wanted, limit=limit)))
    if refused is not None and not result:
        raise refused
    return result
