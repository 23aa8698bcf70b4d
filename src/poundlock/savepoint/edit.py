"""A new savepoint made of another by hand: other offsets, other state, operators renamed or left out. The old one is only read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs

from poundlock.checkpoint.decision import SourceRange
from poundlock.errors import DefinitionError
from poundlock.operators.decided_time import DecidedTime
from poundlock.savepoint.metadata import Metadata, check_files, new_name, read_metadata
from poundlock.savepoint.positions import is_kafka
from poundlock.savepoint.restore import without_operators
from poundlock.savepoint.state_edits import StateEdit, write_state
from poundlock.savepoint.take import Cut, finish, state_files
from poundlock.state.manifest import Manifest
from poundlock.storage import Storage, open_storage

_OFFSET = re.compile(r"(?:(?P<source>[^/=]+)/)?(?P<topic>[^/:=]+):(?P<partition>[0-9]+)=(?P<offset>[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEdit:
    """Where a partition is to be read from.

    Args:
        source: name of the source; None = every source that reads the partition.
        topic, partition: of Kafka.
        offset: of the next record to read.
    """

    source: str | None
    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> OffsetEdit:
        """Return what "topic:partition=N" or "source/topic:partition=N" says. Raises DefinitionError."""
        found = _OFFSET.fullmatch(text.strip())
        if found is None:
            raise DefinitionError(
                f"--offset {text} is not topic:partition=N with a number from 0 on",
                next="write --offset events:0=725, or --offset SOURCE/events:0=725",
            )
        return cls(
            source=found["source"],
            topic=found["topic"],
            partition=int(found["partition"]),
            offset=int(found["offset"]),
        )

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


def parse_renamed(texts: Sequence[str]) -> dict[str, str]:
    """Return what "old=new" texts say. Raises DefinitionError."""
    renamed: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise DefinitionError(
                f"--rename-operator {text} is not OLD=NEW", next="write --rename-operator counts=sums"
            )
        if old in renamed or new in renamed.values():
            raise DefinitionError(f"--rename-operator {text}: {old} or {new} is there twice", next="give each id once")
        renamed[old] = new
    return renamed


def edit(
    savepoint: Storage,
    folder: str,
    *,
    offsets: Sequence[OffsetEdit] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    state: Sequence[StateEdit] = (),
    now_ms: int,
) -> tuple[str, Metadata]:
    """Write a new savepoint; return its path and what it says of itself.

    Args:
        savepoint: the old one, which is not touched.
        folder: where the new one is made, under a name of its own.
        offsets: where partitions of Kafka are to be read from.
        drop: ids of operators whose part is left out.
        rename: the new ids of operators with state, by their old ones.
        state: what is written into keyed state, by the new ids.
        now_ms: the time, ms since the epoch.

    Raises:
        DefinitionError: it is damaged, there is nothing to do, or something asked for is not in it; nothing was written.
    """
    if not (offsets or drop or rename or state):
        raise DefinitionError("nothing is to be changed", next="say --offset topic:partition=N or --drop-operator ID")
    metadata = read_metadata(savepoint)
    check_files(savepoint, metadata)
    work = _Edit(savepoint, metadata)
    for each in offsets:
        work.set_offset(each)
    work.drop(drop)
    work.rename(rename or {})
    work.state = state
    name = new_name(metadata.job_id)
    return work.write(open_storage(f"{folder.rstrip('/')}/{name}"), name, now_ms)


@dataclass
class _Edit:
    """An edit under way, all of it in memory.

    Args:
        savepoint: the old one.
        metadata: of the new one, in the making.
        left_out: says of a path whether the new one goes without it.
        state: what is written into keyed state.
        done: what was done, in words.
    """

    savepoint: Storage
    metadata: Metadata
    left_out: list[Callable[[str], bool]] = field(default_factory=list)
    state: Sequence[StateEdit] = ()
    done: list[str] = field(default_factory=list)

    def _with(self, sources: Mapping[str, SourceRange]) -> None:
        self.metadata = replace(self.metadata, decision=replace(self.metadata.decision, sources=sources))

    # --- offsets -------------------------------------------------------------------------------------------------------

    def set_offset(self, wanted: OffsetEdit) -> None:
        """Let a partition be read from an offset on. Raises DefinitionError."""
        sources = dict(self.metadata.decision.sources)
        found = [use for use, span in sources.items() if self._reads(use, span, wanted)]
        if not found:
            raise self._unknown(wanted)
        for use in found:
            span = sources[use]
            position = {
                topic: {**offsets, str(wanted.partition): wanted.offset} if topic == wanted.topic else offsets
                for topic, offsets in span.end.items()
            }
            before = span.end[wanted.topic][str(wanted.partition)]
            self.done.append(f"source {use}: offset of {wanted} from {before} to {wanted.offset}")
            sources[use] = SourceRange(position, position, span.identity)
        self._with(sources)

    @staticmethod
    def _reads(use: str, span: SourceRange, wanted: OffsetEdit) -> bool:
        named = wanted.source in (None, use)
        return named and is_kafka(span.end) and str(wanted.partition) in span.end.get(wanted.topic, {})

    def _unknown(self, wanted: OffsetEdit) -> DefinitionError:
        sources = self.metadata.decision.sources
        if wanted.source is not None and wanted.source not in sources:
            return DefinitionError(
                f"{self.savepoint.root} has no position of a source {wanted.source!r}",
                next=f"use one of {', '.join(sorted(sources)) or 'none'}",
            )
        mine = {use: s for use, s in sources.items() if wanted.source in (None, use)}
        known = sorted(
            f"{topic}:{p}" for s in mine.values() if is_kafka(s.end) for topic, ps in s.end.items() for p in ps
        )
        if not known:
            others = ", ".join(sorted(mine))
            return DefinitionError(
                f"only the offsets of Kafka can be set, and {others or 'no source'} of {self.savepoint.root} is no Kafka source",
                next="leave --offset out; --drop-operator lets a source begin anew",
            )
        return DefinitionError(
            f"{self.savepoint.root} has no position of {wanted}", next=f"use one of {', '.join(dict.fromkeys(known))}"
        )

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
        described = {name: said for name, said in self.metadata.sinks.items() if name != id}
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
        operators = self.metadata.operators
        for old, new in renamed.items():
            if old not in operators or operators[old].kind != "stateful":
                there = ", ".join(id for id, each in operators.items() if each.kind == "stateful")
                raise DefinitionError(
                    f"{self.savepoint.root} has no operator {old!r} with state", next=f"use one of {there or 'none'}"
                )
            if new in operators:
                raise DefinitionError(
                    f"{self.savepoint.root} has an operator {new!r} already",
                    next="give another id, or drop that one too",
                )
            self.done.append(f"state of {old} is {new}'s")
        decision = self.metadata.decision
        state = None if decision.state is None else decision.state.each(partial(_with_names, renamed=renamed))
        watermarks = _with_streams(decision.watermarks, renamed)
        self.metadata = replace(
            self.metadata,
            operators={renamed.get(id, id): each for id, each in operators.items()},
            decision=replace(decision, state=state, watermarks=watermarks),
        )

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
            cut.metadata = replace(cut.metadata, edited={"from": self.metadata.name, "done": self.done})
            return target.root, finish(cut)
        except BaseException:
            with suppress(OSError):
                for path in cut.paths:
                    target.delete(path)
            raise


def _with_names(manifest: Manifest, renamed: Mapping[str, str]) -> Manifest:
    """Return a manifest whose operators have other ids; their files know them by number."""
    operators = {renamed.get(id, id): meta for id, meta in manifest.operators.items()}
    return structs.replace(manifest, operators=operators)


def _with_streams(decided: DecidedTime | None, renamed: Mapping[str, str]) -> DecidedTime | None:
    """Return what a decision says of event time with the streams behind renamed operators under their new ids."""
    if decided is None:
        return None
    streams = {renamed.get(id, id): each for id, each in decided.state.streams.items()}
    return structs.replace(decided, state=structs.replace(decided.state, streams=streams))
