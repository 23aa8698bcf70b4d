"""A new savepoint made of another by hand: sources set to other offsets, operators left out. The old one is only read.

Where Spark keeps the job's state, the ledger's position and Spark's are changed together or not at all, and what Spark could not
begin with is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from poundlock.checkpoint.decision import SinkDecision, SourceRange
from poundlock.checkpoint.portable import Legible
from poundlock.connectors.rebuild import rebuild_sink
from poundlock.errors import DefinitionError
from poundlock.plan.uses import source_of, spark_name
from poundlock.savepoint.metadata import Metadata, check_files, new_name, read_metadata
from poundlock.savepoint.positions import is_kafka
from poundlock.savepoint.restore import without_operators
from poundlock.savepoint.sparklog import OffsetLog, read_offsets
from poundlock.savepoint.take import Cut, finish, state_files
from poundlock.storage import Storage, open_storage

__all__ = ["OffsetEdit", "edit"]

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


def edit(
    savepoint: Storage,
    folder: str,
    *,
    offsets: Sequence[OffsetEdit],
    drop: Sequence[str],
    now_ms: int,
) -> tuple[str, Metadata]:
    """Write a new savepoint; return its path and what it says of itself.

    Args:
        savepoint: the old one, which is not touched.
        folder: where the new one is made, under a name of its own.
        offsets: where partitions of Kafka are to be read from.
        drop: ids of operators whose part is left out.
        now_ms: the time, ms since the epoch.

    Raises:
        DefinitionError: it is damaged, there is nothing to do, or something asked for is not in it; nothing was written.
    """
    if not offsets and not drop:
        raise DefinitionError("nothing is to be changed", next="say --offset topic:partition=N or --drop-operator ID")
    metadata = read_metadata(savepoint)
    check_files(savepoint, metadata)
    work = _Edit.of(savepoint, metadata)
    for each in offsets:
        work.set_offset(each)
    work.drop(drop)
    name = new_name(metadata.job_id)
    return work.write(open_storage(f"{folder.rstrip('/')}/{name}"), name, now_ms)


@dataclass
class _Edit:
    """An edit under way, all of it in memory.

    Args:
        savepoint: the old one.
        metadata: of the new one, in the making.
        log: Spark's newest offset log, None if there is none.
        left_out: says of a path whether the new one goes without it.
        done: what was done, in words.
    """

    savepoint: Storage
    metadata: Metadata
    log: OffsetLog | None
    left_out: list[Callable[[str], bool]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, savepoint: Storage, metadata: Metadata) -> _Edit:
        newest = metadata.decision.checkpoint
        of_spark = any(path.startswith("spark/") for path in metadata.files)
        return cls(savepoint, metadata, read_offsets(savepoint, newest) if of_spark and newest >= 0 else None)

    def _is_spark_s(self, use: str, position: Any) -> bool:
        """Return whether Spark reads a use, so that its log has the position; of other sources it has ticks only."""
        return self.log is not None and self.log.position(use) == position

    def _with(self, sources: Mapping[str, SourceRange], log: OffsetLog | None) -> None:
        decision = replace(self.metadata.decision, sources=sources)
        self.metadata, self.log = replace(self.metadata, decision=decision), log

    # --- offsets -------------------------------------------------------------------------------------------------------

    def set_offset(self, wanted: OffsetEdit) -> None:
        """Let a partition be read from an offset on. Raises DefinitionError."""
        sources, log = dict(self.metadata.decision.sources), self.log
        found = [use for use, span in sources.items() if self._reads(use, span, wanted)]
        if not found:
            raise self._unknown(wanted)
        for use in found:
            span = sources[use]
            if log is not None and not self._is_spark_s(use, span.end):
                raise DefinitionError(
                    f"{self.savepoint.root}: Spark's log does not have source {use!r} at {span.end}",
                    next="take the savepoint again, and report this",
                )
            position = {
                topic: {**offsets, str(wanted.partition): wanted.offset} if topic == wanted.topic else offsets
                for topic, offsets in span.end.items()
            }
            before = span.end[wanted.topic][str(wanted.partition)]
            self.done.append(f"source {use}: offset of {wanted} from {before} to {wanted.offset}")
            log = log and log.at(use, position)
            sources[use] = SourceRange(position, position, span.identity)
        self._with(sources, log)

    @staticmethod
    def _reads(use: str, span: SourceRange, wanted: OffsetEdit) -> bool:
        named = wanted.source is None or source_of(use) == wanted.source
        return named and is_kafka(span.end) and str(wanted.partition) in span.end.get(wanted.topic, {})

    def _unknown(self, wanted: OffsetEdit) -> DefinitionError:
        sources = self.metadata.decision.sources
        if wanted.source is not None and wanted.source not in map(source_of, sources):
            return DefinitionError(
                f"{self.savepoint.root} has no position of a source {wanted.source!r}",
                next=f"use one of {', '.join(sorted(set(map(source_of, sources)))) or 'none'}",
            )
        mine = {use: s for use, s in sources.items() if wanted.source in (None, source_of(use))}
        known = sorted(
            f"{topic}:{p}" for s in mine.values() if is_kafka(s.end) for topic, ps in s.end.items() for p in ps
        )
        if not known:
            others = ", ".join(sorted(set(map(source_of, mine))))
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
            if self.log is None and self.metadata.decision.state is not None:
                self._drop_kept(stateful)
            else:
                self._drop_state(stateful)

    def _drop_source(self, id: str) -> None:
        sources, log = dict(self.metadata.decision.sources), self.log
        folders = [f"sources/{id}/"]
        for use in [use for use in sources if source_of(use) == id]:
            if self._is_spark_s(use, sources.pop(use).end):
                log = log and log.at(use, None)
                folders.append(f"spark/sources/{spark_name(use)}/")
        self.left_out.append(lambda path: path.startswith(tuple(folders)))
        self._with(sources, log)
        self.done.append(f"source {id} dropped: it begins anew")

    def _drop_sink(self, id: str) -> None:
        sinks = {name: sink for name, sink in self.metadata.decision.sinks.items() if name != id}
        described = {name: said for name, said in self.metadata.sinks.items() if name != id}
        noted = {name: note for name, note in self.metadata.noted.items() if name != id}
        decision = replace(self.metadata.decision, sinks=sinks)
        self.metadata = replace(self.metadata, decision=decision, sinks=described, noted=noted)
        self.left_out.append(lambda path: path.startswith(f"sinks/{id}/"))
        self.done.append(f"sink {id} dropped, with the data that waited in it")

    def _drop_kept(self, ids: Sequence[str]) -> None:
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

    def _drop_state(self, ids: Sequence[str]) -> None:
        """Leave all of Spark's files out: Spark then begins with its first batch, at the positions of the decision."""
        rest = [id for id, operator in self.metadata.operators.items() if operator.kind == "stateful"]
        if rest:
            every = " ".join(f"--drop-operator {id}" for id in (*ids, *rest))
            raise DefinitionError(
                f"{', '.join(ids)}: Spark cannot leave the state of one operator behind and keep that of {', '.join(rest)}",
                next=f"drop all of it: {every}",
            )
        for use, span in self.metadata.decision.sources.items():
            if not is_kafka(span.end) and self._is_spark_s(use, span.end):
                raise DefinitionError(
                    f"source {use!r} is read by a connector of Spark's, which cannot be told to begin at {span.end}",
                    next=f"drop it as well, so that it begins anew: --drop-operator {source_of(use)}",
                )
        self.left_out.append(lambda path: path.startswith("spark/"))
        self.log = None
        decision = self.metadata.decision
        sinks = {name: self._without_checkpoints(name, sink) for name, sink in decision.sinks.items()}
        self.metadata = replace(
            self.metadata,
            decision=replace(decision, checkpoint=-1, sinks=sinks, event_time=None, watermarks=None),
            spark={**self.metadata.spark, "shuffle_partitions": None},
        )
        self.done.append(f"state of {', '.join(ids)} dropped; checkpoints are counted from 0 again")

    def _without_checkpoints(self, name: str, sink: SinkDecision) -> SinkDecision:
        made = rebuild_sink(self.metadata.sinks.get(name, {}))
        return replace(sink, state=made.without_checkpoints(sink.state)) if isinstance(made, Legible) else sink

    # --- the new folder ------------------------------------------------------------------------------------------------

    def write(self, target: Storage, name: str, now_ms: int) -> tuple[str, Metadata]:
        """Write the new savepoint."""
        newest = f"spark/offsets/{self.metadata.decision.checkpoint}"
        edited = {"from": self.metadata.name, "done": self.done}
        cut = Cut(target, replace(self.metadata, name=name, created_ms=now_ms, edited=edited, files={}))
        try:
            for path in self.metadata.files:
                if any(without(path) for without in self.left_out):
                    continue
                if path == newest and self.log is not None:
                    cut.put(path, self.log.text().encode())
                else:
                    cut.add(self.savepoint, path, path, linked=path.startswith(("spark/state/", "state/", "sinks/")))
            return target.root, finish(cut)
        except BaseException:
            with suppress(OSError):
                for path in cut.paths:
                    target.delete(path)
            raise
