"""How far a Delta source may read, and the work in between: the files of a snapshot, then those of each commit behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import Split
from poundlock.connectors.delta.loading import explained, open_table
from poundlock.connectors.delta.log import TableFile
from poundlock.connectors.delta.source.changes import TableChanges
from poundlock.connectors.delta.source.positions import DeltaPosition
from poundlock.errors import SourceGoneError
from poundlock.storage.at_once import at_once
from poundlock.values import Clock

_OPEN_COST = 256 * 1024  # opening a file costs about as much as reading so many bytes
_NEWER = 1_000  # versions that are looked at for one checkpoint


@dataclass(frozen=True, slots=True)
class DeltaLimits:
    """The most that one checkpoint reads; at least one file, or of a change data feed one version."""

    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class DeltaPiece:
    """A file to read.

    Args:
        at: the position before it; `after` the one behind it.
        time_ms: when its version was made.
    """

    at: DeltaPosition
    after: DeltaPosition
    file: TableFile
    time_ms: int


@dataclass
class DeltaEnumerator:
    """Driver's half of a Delta source.

    Args:
        start: returns the position before the first row.
        columns: of the rows, as DDL.
        partition_by: those of partitions, whose values are in the log alone.
        watch: whether new commits are read.
        look_every_ms: least time between two looks for a new commit.
    """

    changes: TableChanges
    limits: DeltaLimits
    start: Callable[[], DeltaPosition]
    columns: str
    partition_by: Sequence[str]
    watch: bool
    look_every_ms: int
    clock: Clock
    _looked: int | None = None
    _versions: dict[int, Sequence[DeltaPiece]] = field(default_factory=dict)

    def initial(self) -> JSON:
        return self.start().to_json()

    def latest(self, start: JSON) -> JSON:
        at = DeltaPosition.of(start)
        if not at.snapshot and not self._due():
            return start
        end, total, count = at, 0, 0
        for pieces in self._ahead(at):
            whole = bool(pieces) and not pieces[0].at.snapshot and self.changes.change_feed
            for group in [pieces] if whole else [[piece] for piece in pieces]:
                total += sum(piece.file.bytes for piece in group)
                count += len(group)
                if (total > self.limits.bytes or count > self.limits.files) and end != at:
                    return end.to_json()
                end = group[-1].after
            if not pieces:  # a version without rows
                end = DeltaPosition(end.version + 1)
        return end.to_json()

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        first, stop = DeltaPosition.of(start), DeltaPosition.of(end)
        pieces = list(self._between(first, stop))
        if not self.changes.change_feed:
            return [self._split([piece]) for piece in pieces]
        # One task reads all changes, so that those of a row stay in their order.
        ahead = [piece for piece in pieces if piece.at.snapshot]
        feed = [piece for piece in pieces if not piece.at.snapshot]
        return [*(self._split([piece]) for piece in ahead), *([self._split(feed)] if feed else [])]

    def finished(self, position: JSON) -> bool:
        return not self.watch and not DeltaPosition.of(position).snapshot

    def committed(self, position: JSON) -> None:
        """Do nothing: the table keeps its versions by its own rules."""

    def identity(self, start: JSON, end: JSON, previous: Mapping[str, Any]) -> Mapping[str, Any]:
        storage = self.changes.storage
        with explained(storage, "reading its log"):
            table_id = str(open_table(storage).metadata().id)
        if previous and previous["table"] != table_id:
            raise SourceGoneError(
                f"Delta table {storage.root} is another one than the job has read: its id is {table_id}, and was {previous['table']}",
                next="begin with a new checkpoint folder; output that is there stays",
            )
        return {"table": table_id}

    def check_range(self, start: JSON, end: JSON, identity: Mapping[str, Any]) -> None:
        self.identity(start, end, identity)
        storage = self.changes.storage
        pieces = list(self._between(DeltaPosition.of(start), DeltaPosition.of(end)))
        for piece, entry in zip(pieces, at_once(storage.stat, [each.file.path for each in pieces]), strict=True):
            if entry is None:
                raise SourceGoneError(
                    f"{storage.root}/{piece.file.path} of version {piece.at.version} is gone, as after VACUUM",
                    next="raise the table's delta.deletedFileRetentionDuration; the range cannot be read once more",
                )

    def _due(self) -> bool:
        now = self.clock.now_ms()
        if self._looked is not None and now < self._looked + self.look_every_ms:
            return False
        self._looked = now
        return True

    def _ahead(self, at: DeltaPosition) -> Iterator[Sequence[DeltaPiece]]:
        """Yield what is known behind a position, a snapshot or a version at a time; behind a snapshot comes the next checkpoint."""
        if at.snapshot:
            yield self._snapshot(at)
            return
        if not self.watch:
            return
        for version in range(at.version, at.version + _NEWER):
            pieces = self._version(version)
            if pieces is None:
                return
            yield [piece for piece in pieces if piece.at.file >= (at.file if version == at.version else 0)]

    def _between(self, first: DeltaPosition, stop: DeltaPosition) -> Iterator[DeltaPiece]:
        if first.snapshot:
            for piece in self._snapshot(first):
                if stop.snapshot and piece.at.file >= stop.file:
                    return
                yield piece
            first = DeltaPosition(first.version + 1)
        if stop.snapshot:
            return
        for version in range(first.version, stop.version + (1 if stop.file else 0)):
            pieces = self._version(version)
            if pieces is None:
                raise self.changes.gone(version, "its commit is not in the log")
            for piece in pieces:
                skipped = version == first.version and piece.at.file < first.file
                if not skipped and (version < stop.version or piece.at.file < stop.file):
                    yield piece

    def _snapshot(self, at: DeltaPosition) -> Sequence[DeltaPiece]:
        files = self.changes.snapshot(at.version)
        if not files:
            return []
        behind = DeltaPosition(at.version + 1)
        return [
            DeltaPiece(
                DeltaPosition(at.version, number, True),
                DeltaPosition(at.version, number + 1, True) if number + 1 < len(files) else behind,
                file,
                0,
            )
            for number, file in enumerate(files)
            if number >= at.file
        ]

    def _version(self, version: int) -> Sequence[DeltaPiece] | None:
        commit = self.changes.commit(version)
        if commit is None:
            return None
        files = self.changes.files(commit)
        return [
            DeltaPiece(
                DeltaPosition(version, number),
                DeltaPosition(version, number + 1) if number + 1 < len(files) else DeltaPosition(version + 1),
                file,
                commit.time_ms,
            )
            for number, file in enumerate(files)
        ]

    def _split(self, pieces: Sequence[DeltaPiece]) -> Split:
        first = pieces[0]
        files = [
            {
                **asdict(piece.file),
                "version": piece.at.version,
                "time_ms": piece.time_ms,
            }
            for piece in pieces
        ]
        size = sum(piece.file.bytes for piece in pieces)
        where = "s" if first.at.snapshot else "c"
        name = first.file.path if len(pieces) == 1 else f"{first.file.path} and {len(pieces) - 1} more"
        return Split(
            f"{first.at.version:020d}-{where}-{first.at.file:08d}",
            {
                "root": self.changes.storage.root,
                "columns": self.columns,
                "partition_by": list(self.partition_by),
                "files": files,
            },
            size + _OPEN_COST * len(pieces),
            size,
            name=name,
        )
