"""What a person writes into the keyed state of a savepoint: values of single keys, or those of a Parquet file.

The new savepoint gets one more file of state on top of those of the old one, which are not changed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.savepoint.take import Cut
from poundlock.state.decided_state import DecidedState, manifests_of
from poundlock.state.edit import KeyInWindow, StateEditor
from poundlock.state.manifest import Manifest
from poundlock.state.participant import StateParticipant
from poundlock.tasks.state_files import run_files

_TABLES = ("state:", "window:", "broadcast:")
_TIMERS = ("timers", "event_timers", "processing_timers")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEdit:
    """The value of one key.

    Args:
        key: as the records have it: a tuple where it is made of several columns; a KeyInWindow of what is kept by window.
        value: what it is to hold: a list for list state, a dict for map state.
    """

    operator: str
    state: str
    key: Any
    value: Any = None
    delete: bool = False

    @classmethod
    def parse(cls, text: str, *, delete: bool = False) -> KeyEdit:
        """Return what "operator/state:key=value" says, or "operator/state:key" for a deletion. Raises DefinitionError."""
        place, colon, rest = text.partition(":")
        operator, slash, state = place.rpartition("/")
        form = "OPERATOR/STATE:KEY" if delete else "OPERATOR/STATE:KEY=VALUE"
        option = "--delete-state" if delete else "--set-state"
        if not (colon and slash and operator and state and rest):
            raise DefinitionError(f"{option} {text} is not {form}", next=f"write {option} '{_example(delete)}'")
        if delete:
            return cls(operator=operator, state=state, key=_in_window(parse_key(rest)), delete=True)
        key, value = _key_and_value(rest, text)
        return cls(operator=operator, state=state, key=_in_window(key), value=value)

    def apply(self, editor: StateEditor, table: str) -> str:
        """Write it; return what was done, in words."""
        if self.delete:
            editor.delete(self.operator, table, self.key)
            return f"{self.operator}: {self.state} of {self.key!r} deleted"
        editor.put(self.operator, table, self.key, self.value)
        return f"{self.operator}: {self.state} of {self.key!r} set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetEdit:
    """The values of a Parquet file.

    Args:
        keys: its columns that are the key.
        value: its column with the values; None: a value is a record of the columns that are not the key.
        window: its column with the starts of windows, where it is kept by window too.
    """

    operator: str
    state: str
    path: str
    keys: Sequence[str]
    value: str | None = None
    window: str | None = None

    @classmethod
    def parse(cls, text: str, *, keys: str | None, value: str | None, window: str | None = None) -> ParquetEdit:
        """Return what "operator/state=file" says, and the names of columns beside it. Raises DefinitionError."""
        place, equals, path = text.partition("=")
        operator, slash, state = place.rpartition("/")
        if not (equals and slash and operator and state and path):
            raise DefinitionError(
                f"--state-file {text} is not OPERATOR/STATE=FILE", next="write --state-file sums/sum=new.parquet"
            )
        if not keys:
            raise DefinitionError("--state-file without the columns of the key", next="say --key-columns user,day")
        return cls(operator=operator, state=state, path=path, keys=keys.split(","), value=value, window=window)

    def apply(self, editor: StateEditor, table: str) -> str:
        """Write them; return what was done, in words."""
        try:
            rows = editor.put_parquet(
                self.operator, table, self.path, keys=self.keys, value=self.value, window=self.window
            )
        except OSError as error:
            raise DefinitionError(f"{self.path} cannot be read: {error}", next="give a Parquet file") from error
        return f"{self.operator}: {self.state} of {rows:,} rows of {self.path} set"


StateEdit = KeyEdit | ParquetEdit


def parse_key(text: str) -> Any:
    """Return the key that a text says: JSON, where a list is a key of several columns, or the text itself."""
    try:
        return _as_key(json.loads(text))
    except ValueError:
        return text


def _key_and_value(rest: str, text: str) -> tuple[Any, Any]:
    try:
        key, end = json.JSONDecoder().raw_decode(rest)
        if rest[end : end + 1] != "=":
            raise ValueError
        key = _as_key(key)
    except ValueError:
        key, _, _ = rest.partition("=")
        end = len(key)
    try:
        return key, json.loads(rest[end + 1 :])
    except ValueError:
        raise DefinitionError(
            f"--set-state {text}: {rest[end + 1 :] or 'nothing'} is no JSON",
            next=f"write --set-state '{_example(False)}'",
        ) from None


def _in_window(key: Any) -> Any:
    """Return a key, or a key in a window where the text was {"key": …, "window": …}."""
    if not isinstance(key, dict):
        return key
    if key.keys() != {"key", "window"}:
        raise DefinitionError(
            f"{json.dumps(key)} is no key", next='write a key in a window as {"key": "ada", "window": START}'
        )
    return KeyInWindow.of(_as_key(key["key"]), key["window"])


def _as_key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _example(delete: bool) -> str:
    return 'sums/sum:"ada"' if delete else 'sums/sum:"ada"=12'


def write_state(cut: Cut, edits: Sequence[StateEdit], now_ms: int) -> Iterator[str]:
    """Write edits into the files and the manifests of a savepoint that is being made; yield what was done, in words.

    Args:
        cut: the new savepoint, with the files of state of the old one.
        now_ms: the time, which state with a time to live counts from.

    Raises:
        DefinitionError: there is no such operator or state, or state of that kind is not written by people.
    """
    metadata = cut.metadata
    manifests = dict(manifests_of(metadata.decision.state))
    for name, manifest in list(manifests.items()):
        mine = [edit for edit in edits if edit.operator in manifest.operators]
        if not mine:
            continue
        participant = StateParticipant(cut.savepoint, job=metadata.job_id, epoch=metadata.decision.epoch)
        files = run_files(cut.savepoint.root)
        slots = [name for name, operator in metadata.operators.items() if operator.made_of.get("aggregates")]
        editor = StateEditor(manifest, participant, files, attempt=secrets.token_hex(6), now=now_ms, slots=slots)
        for edit in mine:
            yield edit.apply(editor, _table(manifest, edit))
        written = editor.finish()
        known = {file.name for file in manifest.files}
        cut.paths += [file.name for file in written.files if file.name not in known]
        manifests[name] = written
    _refuse_unknown(manifests, edits)
    cut.metadata = replace(metadata, decision=replace(metadata.decision, state=DecidedState.whole(manifests)))


def _table(manifest: Manifest, edit: StateEdit) -> str:
    tables = manifest.operators[edit.operator].tables
    if edit.state in _TIMERS and edit.state not in tables:
        raise DefinitionError(
            f"{edit.state} of {edit.operator} are not written by hand: only the function knows what a timer is for",
            next="change the state that the function looks at when its timer fires",
        )
    names = (edit.state, *(f"{kind}{edit.state}" for kind in _TABLES))
    return next((name for name in names if name in tables), names[1])


def _refuse_unknown(manifests: Mapping[str, Manifest], edits: Sequence[StateEdit]) -> None:
    there = {operator for manifest in manifests.values() for operator in manifest.operators}
    for edit in edits:
        if edit.operator not in there:
            raise DefinitionError(
                f"there is no state of an operator {edit.operator!r}",
                next=f"give one of: {', '.join(sorted(there)) or 'none, the job keeps no state'}",
            )
