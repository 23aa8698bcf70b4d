"""What the position of a source says when the source itself is not at hand, and where a person wants it to be read from instead.

A position of a form that is not known here is shown as it is, never guessed at. One that a person writes, an offset of a partition of
Kafka or a whole position, is held against the form of the one that is there, and against what the savepoint knows of its source.
What only the source's system knows is looked at when the job starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from poundlock.checkpoint.decision import SourceRange
from poundlock.connectors.base import PositionChecking
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.savepoint.metadata import Metadata
from poundlock.storage import Storage, open_storage

_OFFSET = re.compile(r"(?:(?P<source>[^/=]+)/)?(?P<topic>[^/:=]+):(?P<partition>[0-9]+)=(?P<offset>[0-9]+)")
_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")
MOVED = "positions"
Kind = Literal["kafka", "files", "generated", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far a source was read."""

    kind: Kind  # what the form of the position tells of the source
    position: Any
    # how far each part of it is: by "topic:partition", or under one name
    counted: Mapping[str, int] = field(default_factory=dict)
    unit: str = ""  # what that is counted in; "" where nothing is
    # of files: how many were read whole, how many are known, and which is next from which byte on
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        value = asdict(self)
        details = value.pop("details")
        return {**value, **details}

    def lines(self) -> list[str]:
        """Return it for people."""
        if self.kind == "kafka":
            return [f"{name}  offset {offset}" for name, offset in self.counted.items()] or ["nothing yet"]
        if self.kind == "generated":
            return [f"{self.counted['row']} rows"]
        if self.kind == "files" and "files_known" in self.details:
            read, known, then = (self.details[name] for name in ("files_read", "files_known", "next"))
            more = f", then {then} from byte {self.details['byte']} on" if then is not None else ""
            return [f"{read} of {known} known files read, {self.counted['bytes']} bytes{more}"]
        return [json.dumps(self.position, separators=(",", ":"), ensure_ascii=False)]


def is_kafka(position: Any) -> bool:
    """Return whether a position is an offset for each partition of topics."""
    if not isinstance(position, dict) or not all(isinstance(offsets, dict) for offsets in position.values()):
        return False
    pairs = [pair for offsets in position.values() for pair in offsets.items()]
    return bool(position) and all(str(p).isdecimal() and type(offset) is int for p, offset in pairs)


def reading(savepoint: Storage, source: str, position: Any) -> SourceProgress:
    """Return what a position says. `savepoint`: whose it is; a file source keeps in it which files it has met."""
    if is_kafka(position):
        from poundlock.connectors.kafka.offsets import from_json

        counted = {f"{topic}:{p}": offset for (topic, p), offset in sorted(from_json(position).items())}
        return SourceProgress(kind="kafka", position=position, counted=counted, unit="records")
    if isinstance(position, dict) and {"row"} <= position.keys() <= {"row", "from_ms"}:
        counted = {"row": int(position["row"])}
        return SourceProgress(kind="generated", position=position, counted=counted, unit="records")
    if isinstance(position, dict) and position.keys() == {"log", "file", "offset"}:
        return _files(savepoint, source, position)
    return SourceProgress(kind="other", position=position)


def _files(savepoint: Storage, source: str, position: dict[str, Any]) -> SourceProgress:
    from poundlock.connectors.files.source.discovery import DiscoveryLog
    from poundlock.connectors.files.source.enumerator import Position

    at = Position.of(position)
    try:
        log = DiscoveryLog(open_storage(f"{savepoint.root}/sources/{source}"))
        entries = [log.files(number) for number in range(len(log))]
    except (PoundlockError, OSError, ValueError, KeyError):
        return SourceProgress(kind="files", position=position)
    if at.log > len(entries) or (at.log == len(entries) and at[1:] != (0, 0)):
        return SourceProgress(kind="files", position=position)  # what it has read is not in the log that came along
    before = [file for files in entries[: at.log] for file in files]
    here = entries[at.log] if at.log < len(entries) else ()
    before += here[: at.file]
    then = here[at.file].name if at.file < len(here) else None
    return SourceProgress(
        kind="files",
        position=position,
        counted={"bytes": sum(file.bytes for file in before) + at.offset},
        unit="bytes",
        details={"files_read": len(before), "files_known": sum(map(len, entries)), "next": then, "byte": at.offset},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEdit:
    """Where a partition of Kafka is to be read from; it may be one that the source has not met yet."""

    source: str | None  # name of the source; None = every source that reads the topic
    topic: str
    partition: int
    offset: int  # of the next record to read

    @classmethod
    def parse(cls, text: str) -> OffsetEdit:
        """Return what "topic:partition=N" or "source/topic:partition=N" says. Raises DefinitionError."""
        match = _OFFSET.fullmatch(text.strip())
        if match is None:
            raise DefinitionError(
                f"--offset {text} is not topic:partition=N with a number from 0 on",
                next="write --offset events:0=725, or --offset SOURCE/events:0=725",
            )
        return cls(
            source=match["source"], topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"])
        )

    def sources(self, savepoint: Storage, sources: Mapping[str, SourceRange]) -> Sequence[str]:
        """Return the names of the sources that read the topic. Raises DefinitionError if there is none."""
        if self.source is not None:
            _require(savepoint, sources, self.source)
        mine = {name: span.end for name, span in sources.items() if self.source in (None, name)}
        read = {name: end for name, end in mine.items() if is_kafka(end)}
        if not read:
            others = ", ".join(sorted(mine)) or "no source"
            raise DefinitionError(
                f"{others} of {savepoint.root} is no Kafka source, so there is no offset to set",
                next="give the position of a source as a whole: --position SOURCE=JSON; inspect --json shows what it is like",
            )
        if not (readers := [name for name, end in read.items() if self.topic in end]):
            known = sorted(f"{topic}:{p}" for end in read.values() for topic, ps in end.items() for p in ps)
            raise DefinitionError(
                f"{savepoint.root} has no position of {self.topic}:{self.partition}",
                next=f"use one of {', '.join(dict.fromkeys(known))}, or a new partition of their topics",
            )
        return readers

    def moved(self, savepoint: Storage, name: str, position: Any) -> tuple[Any, str]:
        """Return a source's new position, and what was done, in words."""
        place, known = f"{self.topic}:{self.partition}", position[self.topic]
        before = known.get(str(self.partition))
        end = {**position, self.topic: {**known, str(self.partition): self.offset}}
        if before is None:
            return end, f"new partition {place}, from offset {self.offset} on"
        return end, f"offset of {place} from {before} to {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePosition:
    """Another position of one source; what it leaves out stays as it is."""

    source: str
    position: Any

    @classmethod
    def parse(cls, text: str) -> WholePosition:
        """Return what "source=JSON" says. Raises DefinitionError."""
        source, _, position = text.partition("=")
        try:
            return cls(source=source.strip(), position=json.loads(position))
        except ValueError as error:
            raise DefinitionError(
                f"--position {text} is not SOURCE=JSON: {error}", next="""write --position 'events={"row": 100}'"""
            ) from None

    def sources(self, savepoint: Storage, sources: Mapping[str, SourceRange]) -> Sequence[str]:
        """Return the name of the source. Raises DefinitionError if there is none."""
        _require(savepoint, sources, self.source)
        return [self.source]

    def moved(self, savepoint: Storage, name: str, position: Any) -> tuple[Any, str]:
        """Return the source's new position, and what was done, in words. Raises DefinitionError."""
        wanted = self.position
        if not isinstance(wanted, dict) or not isinstance(position, dict) or not wanted:
            raise self._wrong(position, "is no JSON object with what is to change")
        if is_kafka(position):
            end = self._of_kafka(position)
        elif position.keys() == {"log", "file", "offset"}:
            end = self._of_files(savepoint, position)
        elif position.keys() == {"batch"}:
            raise DefinitionError(
                f"source {name!r} is read by a query of Spark's, which keeps its position in a form of its own",
                next=f"let it begin where it is set to start: --drop-operator {name}",
            )
        else:
            end = self._alike(position)
        return end, f"position from {_text(position)} to {_text(end)}"

    def _of_kafka(self, position: Mapping[str, Any]) -> Any:
        wanted = self.position
        offsets = [offset for each in wanted.values() if isinstance(each, dict) for offset in each.values()]
        if not is_kafka(wanted) or min(offsets, default=0) < 0:
            raise self._wrong(position, "does not give offsets from 0 on by topic and partition")
        if strange := sorted(wanted.keys() - position.keys()):
            raise self._wrong(position, f"names {', '.join(strange)}, which it does not read")
        return {topic: {**known, **wanted.get(topic, {})} for topic, known in position.items()}

    def _of_files(self, savepoint: Storage, position: Mapping[str, Any]) -> Any:
        """Return a place in the files that the source has met: by their numbers, or by the name of one."""
        from poundlock.connectors.files.source.discovery import DiscoveryLog

        log = DiscoveryLog(open_storage(f"{savepoint.root}/sources/{self.source}"))
        known = [(number, at, f) for number in range(len(log)) for at, f in enumerate(log.files(number))]
        wanted = {"offset": 0, **self.position}
        if isinstance(wanted.get("file"), str):
            places = [(number, at, f) for number, at, f in known if wanted["file"] in (f.name, f.path)]
            if not places:
                raise self._wrong(position, f"names {wanted['file']!r}, which it has not met")
            wanted = {"log": places[-1][0], "file": places[-1][1], "offset": wanted["offset"]}
        end = self._alike(position, wanted)
        sizes = {(number, at): f.bytes for number, at, f in known}
        size = sizes.get((end["log"], end["file"]))
        behind_all = (end["log"], end["file"], end["offset"]) == (len(log), 0, 0)
        if not behind_all and (size is None or not 0 <= end["offset"] <= size):
            raise self._wrong(position, "is no place in the files that it has met")
        return end

    def _alike(self, position: Mapping[str, Any], wanted: Mapping[str, Any] | None = None) -> Any:
        """Return a position with other values of the same types in it."""
        wanted = self.position if wanted is None else wanted
        if strange := sorted(wanted.keys() - position.keys()):
            raise self._wrong(position, f"has {', '.join(strange)}, and it has not")
        for name, value in wanted.items():
            was = position[name]
            alike = was is None or type(value) is type(was)
            if not alike or (type(value) is int and type(was) is int and value < 0 <= was):
                raise self._wrong(position, f"has {_text(value)} for {name}")
        end = {**position, **wanted}
        if "lsn" in position:  # changes of PostgreSQL
            slot = "slot_name" if "slot_name" in position else "slot"
            if end[slot] != position[slot] or not _LSN.fullmatch(str(end["lsn"])):
                raise self._wrong(position, "is no place in the log that its slot keeps")
        elif {"value", "cuts", "done"} <= position.keys():  # rows of PostgreSQL behind a value
            end = {**end, "cuts": [], "done": wanted.get("done", False)}
        elif "plan" in position and (end["plan"] != position["plan"] or end["next"] > position.get("of", 0)):
            raise self._wrong(position, "is no range of the table as it was cut")
        return end

    def _wrong(self, position: Any, why: str) -> DefinitionError:
        return DefinitionError(
            f"--position {self.source}={_text(self.position)} {why}",
            next=f"write it like the one that is there: {_text(position)}",
        )


PositionEdit = OffsetEdit | WholePosition


def _require(savepoint: Storage, sources: Mapping[str, SourceRange], name: str) -> None:
    if name not in sources:
        raise DefinitionError(
            f"{savepoint.root} has no position of a source {name!r}",
            next=f"use one of {', '.join(sorted(sources)) or 'none'}",
        )


def _text(position: Any) -> str:
    return json.dumps(position, ensure_ascii=False)


def moved_sources(metadata: Metadata) -> Sequence[str]:
    """Return the sources of a savepoint whose position a person wrote."""
    return list((metadata.edited or {}).get(MOVED, ()))


def check_moved(savepoint: Storage, metadata: Metadata, sources: Mapping[str, Any]) -> None:
    """Have the job's sources look at positions that a person wrote.

    Raises:
        DefinitionError: one is no position of its source.
    """
    for name in moved_sources(metadata):
        source, span = sources.get(name), metadata.decision.sources.get(name)
        if span is not None and isinstance(source, PositionChecking):
            source.check_position(span.end, open_storage(f"{savepoint.root}/sources/{name}"))
