"""A new savepoint made of another by hand: other offsets, other state, operators renamed or left out. The old one is only read.

What a person writes into keyed state, values of single keys or those of a Parquet file, is one more file of state on top of those of
the old savepoint, which are not changed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poundlock.checkpoint.decision import SourceRange
from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import Metadata, check_files, new_name, read_metadata
from poundlock.savepoint.operator_ids import renamed_operators, without_operators
from poundlock.savepoint.positions import MOVED, PositionEdit, moved_sources
from poundlock.savepoint.take import Cut, finish, state_files
from poundlock.state.decided_state import DecidedState, manifests_of
from poundlock.state.edit import KeyInWindow, StateEditor
from poundlock.state.inspect import StateReader
from poundlock.state.key_text import plain
from poundlock.state.manifest import Manifest
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import run_files
from poundlock.storage import Storage, open_checkpoint

_TABLES = ("state:", "window:", "broadcast:")
_TIMERS = ("timers", "event_timers", "processing_timers")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEdit:
    """The value of one key."""

    operator: str
    state: str
    # as the records have it: a tuple where it is made of several columns; a KeyInWindow of what is kept by window
    key: Any
    value: Any = None  # what it is to hold: a list for list state, a dict for map state
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

    def typed(self, reader: StateReader) -> KeyEdit:
        """Return it with its key of the types that the operator's keys have. Raises DefinitionError."""
        key = self.key.key if isinstance(self.key, KeyInWindow) else self.key
        typed = reader.key_of(self.operator, json.dumps(plain(key)))
        return replace(self, key=replace(self.key, key=typed) if isinstance(self.key, KeyInWindow) else typed)

    def apply(self, editor: StateEditor, table: str) -> str:
        """Write it; return what was done, in words."""
        if self.delete:
            editor.delete(self.operator, table, self.key)
            return f"{self.operator}: {self.state} of {self.key!r} deleted"
        editor.put(self.operator, table, self.key, self.value)
        return f"{self.operator}: {self.state} of {self.key!r} set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetEdit:
    """The values of a Parquet file."""

    operator: str
    state: str
    path: str
    keys: Sequence[str]  # its columns that are the key
    # its column with the values; None: a value is a record of the columns that are not the key
    value: str | None = None
    window: str | None = None  # its column with the starts of windows, where it is kept by window too

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
        reader = StateReader(manifest, files)
        for edit in mine:
            table = _table(manifest, edit)
            if isinstance(edit, KeyEdit) and not table.startswith("broadcast:"):
                edit = edit.typed(reader)
            yield edit.apply(editor, table)
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


def edit(
    savepoint: Storage,
    folder: str,
    *,
    positions: Sequence[PositionEdit] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    state: Sequence[StateEdit] = (),
    now_ms: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[str, Metadata]:
    """Write a new savepoint; return its path and what it says of itself.

    Args:
        folder: where the new one is made, under a name of its own.
        drop: ids of operators whose part is left out.
        rename: the new ids of operators with state, by their old ones.
        progress: takes how many files of how many have been read, copied and digested, often.

    Raises:
        DefinitionError: it is damaged, there is nothing to do, or something asked for is not in it; nothing was written.
    """
    if not (positions or drop or rename or state):
        raise DefinitionError("nothing is to be changed", next="say --offset topic:partition=N or --drop-operator ID")
    metadata = read_metadata(savepoint)
    check_files(savepoint, metadata, lambda done, total: progress(done, 3 * total))
    work = _Edit(savepoint, metadata, progress)
    work.move(positions)
    work.drop(drop)
    work.rename(rename or {})
    work.state = state
    name = new_name(metadata.job_id)
    return work.write(open_checkpoint(f"{folder.rstrip('/')}/{name}", "savepoint"), name, now_ms)


@dataclass
class _Edit:
    """An edit under way, all of it in memory."""

    savepoint: Storage
    metadata: Metadata
    progress: Callable[[int, int], None]
    # says of a path whether the new one goes without it
    left_out: list[Callable[[str], bool]] = field(default_factory=list)
    state: Sequence[StateEdit] = ()
    done: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    def move(self, positions: Sequence[PositionEdit]) -> None:
        """Let sources be read from other positions on. Raises DefinitionError."""
        sources = dict(self.metadata.decision.sources)
        for wanted in positions:
            for name in wanted.sources(self.savepoint, sources):
                span = sources[name]
                end, done = wanted.moved(self.savepoint, name, span.end)
                sources[name] = SourceRange(end, end, span.identity)
                self.moved.append(name)
                self.done.append(f"source {name}: {done}")
        self._with(sources)

    def _with(self, sources: Mapping[str, SourceRange]) -> None:
        self.metadata = replace(self.metadata, decision=replace(self.metadata.decision, sources=sources))

    # --- operators -----------------------------------------------------------------------------------------------------

    def drop(self, ids: Sequence[str]) -> None:
        """Leave operators out. Raises DefinitionError."""
        operators = dict(self.metadata.operators)
        for id in ids:
            if id not in operators:
                raise DefinitionError(
                    f"{self.savepoint.root} has no operator {id!r}",
                    next=f"use one of {', '.join(self.metadata.operators)}",
                )
        kinds = {id: operators.pop(id).kind for id in ids}
        self.metadata = replace(self.metadata, operators=operators)
        for id, kind in kinds.items():
            if kind == "source":
                self._drop_source(id)
            elif kind == "sink":
                self._drop_sink(id)
        if stateful := [id for id, kind in kinds.items() if kind == "stateful"]:
            self._drop_state(stateful)

    def _drop_source(self, id: str) -> None:
        self._with({name: span for name, span in self.metadata.decision.sources.items() if name != id})
        self.left_out.append(lambda path: path.startswith(f"sources/{id}/"))
        self.done.append(f"source {id} dropped: it starts over")

    def _drop_sink(self, id: str) -> None:
        sinks = {name: sink for name, sink in self.metadata.decision.sinks.items() if name != id}
        described = {name: description for name, description in self.metadata.sinks.items() if name != id}
        noted = {name: note for name, note in self.metadata.noted.items() if name != id}
        decision = replace(self.metadata.decision, sinks=sinks)
        self.metadata = replace(self.metadata, decision=decision, sinks=described, noted=noted)
        self.left_out.append(lambda path: path.startswith(f"sinks/{id}/"))
        self.done.append(f"sink {id} dropped, with the data that waited in it")

    def _drop_state(self, ids: Sequence[str]) -> None:
        """Leave the state of some operators out; where none is left, event time starts over as well."""
        decision = self.metadata.decision
        rest = [id for id, operator in self.metadata.operators.items() if operator.kind == "stateful"]
        state = without_operators(decision.state, ids) if rest else None
        decision = replace(decision, state=state)
        if not rest:
            decision = replace(decision, event_time=None, watermarks=None)
        needed = set(state_files(decision))
        self.left_out.append(lambda path: path.startswith("state/") and path not in needed)
        self.metadata = replace(self.metadata, decision=decision)
        self.done.append(f"state of {', '.join(ids)} dropped{'' if rest else '; event time starts over'}")

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Give operators with state other ids. Raises DefinitionError."""
        self.metadata = renamed_operators(self.savepoint.root, self.metadata, renamed)
        self.done += [f"state of {old} is {new}'s" for old, new in renamed.items()]

    # --- the new folder ------------------------------------------------------------------------------------------------

    def write(self, target: Storage, name: str, now_ms: int) -> tuple[str, Metadata]:
        """Write the new savepoint."""
        cut = Cut(target, replace(self.metadata, name=name, created_ms=now_ms, files={}))
        try:
            files = len(self.metadata.files)
            for number, path in enumerate(self.metadata.files):
                self.progress(files + number, 3 * files)
                if any(without(path) for without in self.left_out):
                    continue
                cut.add(self.savepoint, path, path, linked=path.startswith(("state/", "sinks/")))
            if self.state:
                self.done += write_state(cut, self.state, now_ms)
            moved = {MOVED: names} if (names := sorted({*moved_sources(self.metadata), *self.moved})) else {}
            cut.metadata = replace(cut.metadata, edited={"from": self.metadata.name, "done": self.done, **moved})
            return target.root, finish(
                cut, progress=lambda done, total: self.progress(3 * files - total + done, 3 * files)
            )
        except BaseException:
            cut.discard()
            raise
