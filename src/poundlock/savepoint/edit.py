"""A new savepoint made of another by hand: other offsets, other state, operators renamed or left out. The old one is only read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from poundlock.checkpoint.decision import SourceRange
from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import Metadata, check_files, new_name, read_metadata
from poundlock.savepoint.operator_ids import renamed_operators, without_operators
from poundlock.savepoint.positions import MOVED, PositionEdit, moved_sources
from poundlock.savepoint.state_edits import StateEdit, write_state
from poundlock.savepoint.take import Cut, finish, state_files
from poundlock.storage import Storage, open_checkpoint


def edit(
    savepoint: Storage,
    folder: str,
    *,
    positions: Sequence[PositionEdit] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    state: Sequence[StateEdit] = (),
    now_ms: int,
) -> tuple[str, Metadata]:
    """Write a new savepoint; return its path and what it says of itself.

    Args:
        folder: where the new one is made, under a name of its own.
        drop: ids of operators whose part is left out.
        rename: the new ids of operators with state, by their old ones.

    Raises:
        DefinitionError: it is damaged, there is nothing to do, or something asked for is not in it; nothing was written.
    """
    if not (positions or drop or rename or state):
        raise DefinitionError("nothing is to be changed", next="say --offset topic:partition=N or --drop-operator ID")
    metadata = read_metadata(savepoint)
    check_files(savepoint, metadata)
    work = _Edit(savepoint, metadata)
    work.move(positions)
    work.drop(drop)
    work.rename(rename or {})
    work.state = state
    name = new_name(metadata.job_id)
    return work.write(open_checkpoint(f"{folder.rstrip('/')}/{name}", "savepoint"), name, now_ms)


@dataclass
class _Edit:
    """An edit under way, all of it in memory.

    Args:
        left_out: says of a path whether the new one goes without it.
    """

    savepoint: Storage
    metadata: Metadata
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
        self.done.append(f"source {id} dropped: it begins anew")

    def _drop_sink(self, id: str) -> None:
        sinks = {name: sink for name, sink in self.metadata.decision.sinks.items() if name != id}
        described = {name: description for name, description in self.metadata.sinks.items() if name != id}
        noted = {name: note for name, note in self.metadata.noted.items() if name != id}
        decision = replace(self.metadata.decision, sinks=sinks)
        self.metadata = replace(self.metadata, decision=decision, sinks=described, noted=noted)
        self.left_out.append(lambda path: path.startswith(f"sinks/{id}/"))
        self.done.append(f"sink {id} dropped, with the data that waited in it")

    def _drop_state(self, ids: Sequence[str]) -> None:
        """Leave the state of some operators out; where none is left, event time begins anew as well."""
        decision = self.metadata.decision
        rest = [id for id, operator in self.metadata.operators.items() if operator.kind == "stateful"]
        state = without_operators(decision.state, ids) if rest else None
        decision = replace(decision, state=state)
        if not rest:
            decision = replace(decision, event_time=None, watermarks=None)
        needed = set(state_files(decision))
        self.left_out.append(lambda path: path.startswith("state/") and path not in needed)
        self.metadata = replace(self.metadata, decision=decision)
        self.done.append(f"state of {', '.join(ids)} dropped{'' if rest else '; event time begins anew'}")

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Give operators with state other ids. Raises DefinitionError."""
        self.metadata = renamed_operators(self.savepoint.root, self.metadata, renamed)
        self.done += [f"state of {old} is {new}'s" for old, new in renamed.items()]

    # --- the new folder ------------------------------------------------------------------------------------------------

    def write(self, target: Storage, name: str, now_ms: int) -> tuple[str, Metadata]:
        """Write the new savepoint."""
        cut = Cut(target, replace(self.metadata, name=name, created_ms=now_ms, files={}))
        try:
            for path in self.metadata.files:
                if any(without(path) for without in self.left_out):
                    continue
                cut.add(self.savepoint, path, path, linked=path.startswith(("state/", "sinks/")))
            if self.state:
                self.done += write_state(cut, self.state, now_ms)
            moved = {MOVED: names} if (names := sorted({*moved_sources(self.metadata), *self.moved})) else {}
            cut.metadata = replace(cut.metadata, edited={"from": self.metadata.name, "done": self.done, **moved})
            return target.root, finish(cut)
        except BaseException:
            cut.discard()
            raise
