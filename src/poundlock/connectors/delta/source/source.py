"""DeltaSource: what the user writes down. A table as it is at a version, then each commit behind it, or its change data feed."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from poundlock.arguments import FLAG, NAMES, TEXT, WHOLE, check_kind, refuse_without_effect
from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import ReaderContext, ReplayPromise
from poundlock.connectors.delta.loading import explained, load_deltalake, open_folder, open_table
from poundlock.connectors.delta.log import read_commit, versions
from poundlock.connectors.delta.shape import TableShape, refuse_unreadable, shape_of
from poundlock.connectors.delta.source.changes import TableChanges
from poundlock.connectors.delta.source.enumerator import DeltaEnumerator, DeltaLimits
from poundlock.connectors.delta.source.positions import DeltaPosition
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.formats import ddl
from poundlock.storage import Storage
from poundlock.storage.storage_errors import refuse_unreachable
from poundlock.values import Clock, SystemClock, duration, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poundlock.connectors.base import Reader


@dataclass(frozen=True, init=False)
class DeltaSource:
    """Read a Delta table: all rows of a version, and with `watch` what each commit behind it adds, or changes.

    Args:
        path: the table's folder: a local path, s3://bucket/folder or hdfs://host:port/folder.
        watch: go on with the commits behind the version that was read; default: read that version, then end.
        change_feed: give deletes and updates as well, each row with `_change_type`, `_commit_version` and `_commit_timestamp` as Spark has them;
            rows of the first version are inserts.
        columns: which columns are read; None = all that the table has when the job starts.
        version_as_of: the version that is read first; default: the newest one.
        timestamp_as_of: the version that was the newest one then, such as "2026-03-01T00:00:00Z".
        starting_version: read no version as a whole, begin with this commit; "latest" = with the next one.
        starting_timestamp: begin with the first commit behind this time.
        ignore_deletes: pass over commits that only delete; default: they stop the job.
        ignore_changes: of a commit that rewrites files give the rows of the new ones, those that it copied once more; default: it stops the job.
        max_bytes_per_checkpoint: most bytes of files in one checkpoint (at least one file is read, of a change data feed one commit).
        max_files_per_checkpoint: most files in one checkpoint.
        discover_every: when watching, least time between two looks at the log.
        clock: where the time comes from.

    Raises:
        DefinitionError: settings contradict each other, or deltalake is not installed.
    """

    path: str
    watch: bool
    change_feed: bool
    columns: tuple[str, ...] | None
    version_as_of: int | None
    timestamp_as_of: str | None
    starting_version: int | Literal["latest"] | None
    starting_timestamp: str | None
    ignore_deletes: bool
    ignore_changes: bool
    limits: DeltaLimits
    discover_every: timedelta
    clock: Clock

    def __init__(
        self,
        path: str,
        *,
        watch: bool = False,
        change_feed: bool = False,
        columns: Sequence[str] | None = None,
        version_as_of: int | None = None,
        timestamp_as_of: str | None = None,
        starting_version: int | Literal["latest"] | None = None,
        starting_timestamp: str | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        max_bytes_per_checkpoint: str | int = "1 GB",
        max_files_per_checkpoint: int = 1_000,
        discover_every: str | timedelta = "1 s",
        clock: Clock | None = None,
    ) -> None:
        owner = "DeltaSource"
        check_kind(owner, TEXT, {"path": path})
        flags = {
            "watch": watch,
            "change_feed": change_feed,
            "ignore_deletes": ignore_deletes,
            "ignore_changes": ignore_changes,
        }
        check_kind(owner, FLAG, flags)
        check_kind(owner, NAMES, {"columns": columns}, optional=True)
        check_kind(owner, WHOLE, {"version_as_of": version_as_of}, optional=True)
        times = {"timestamp_as_of": timestamp_as_of, "starting_timestamp": starting_timestamp}
        check_kind(owner, TEXT, times, optional=True)
        check_kind(owner, WHOLE, {"max_files_per_checkpoint": max_files_per_checkpoint})
        if starting_version != "latest":
            check_kind(owner, WHOLE, {"starting_version": starting_version}, optional=True)
        self.__dict__.update(
            path=path,
            **flags,
            **times,
            columns=None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns),
            version_as_of=version_as_of,
            starting_version=starting_version,
            limits=DeltaLimits(size(max_bytes_per_checkpoint), max_files_per_checkpoint),
            discover_every=duration(discover_every),
            clock=clock or SystemClock(),
        )
        self._check()

    def _check(self) -> None:
        open_folder(self.path)
        load_deltalake()
        starts = ("version_as_of", "timestamp_as_of", "starting_version", "starting_timestamp")
        given = [name for name in starts if getattr(self, name) is not None]
        if len(given) > 1:
            raise DefinitionError(
                f"DeltaSource: {given[0]} and {given[1]} both say where to begin", next="give one of them"
            )
        if not self.watch:
            unused: dict[str, tuple[object, object]] = {
                "starting_version": (self.starting_version, None),
                "starting_timestamp": (self.starting_timestamp, None),
                "ignore_deletes": (self.ignore_deletes, False),
                "ignore_changes": (self.ignore_changes, False),
                "change_feed": (self.change_feed, False),
                "discover_every": (self.discover_every, timedelta(seconds=1)),
            }
            refuse_without_effect("DeltaSource", unused, because="one version is read", next="give watch=True too")
        if self.change_feed:
            ignored: dict[str, tuple[object, object]] = {
                "ignore_deletes": (self.ignore_deletes, False),
                "ignore_changes": (self.ignore_changes, False),
            }
            refuse_without_effect("DeltaSource", ignored, because="the change data feed has all of them")
        if self.limits.bytes < 1 or self.limits.files < 1:
            raise DefinitionError(
                "DeltaSource: a limit of a checkpoint is zero", next="write such as max_files_per_checkpoint=1_000"
            )
        if self.columns is not None and not self.columns:
            raise DefinitionError("columns=[] names no column", next='write columns=["id"], or leave it out')

    # What the plan reads

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return not self.watch

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives."""
        return ReplayPromise("exact", "a version of a Delta table names its files for ever, and a file never changes")

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return self.path

    @property
    def task_folders(self) -> list[str]:
        """What tasks read."""
        return [open_folder(self.path).root]

    def schema(self) -> pa.Schema:
        """Return the columns of the rows. Raises DefinitionError where there is no table, or it has no such column."""
        shape = self._shape()
        schema = shape.schema
        if self.columns is not None:
            for name in self.columns:
                if name not in schema.names:
                    raise DefinitionError(
                        f"Delta table {self.path} has no column {name!r}",
                        next=did_you_mean(name, schema.names, f"use {', '.join(schema.names)}"),
                    )
            schema = pa.schema([schema.field(name) for name in self.columns])
        schema = pa.schema([each.with_nullable(True) for each in schema])
        if not self.change_feed:
            return schema
        from poundlock.connectors.delta.source.reader import FEED_COLUMNS

        return pa.schema([*schema, *FEED_COLUMNS])

    def preflight(self) -> None:
        """Raise DefinitionError unless the table is there and can be read; TransientError where the store does not answer."""
        refuse_unreachable(open_folder(self.path), what="the table's folder")
        shape = self._shape()
        if self.change_feed and not shape.flag("delta.enableChangeDataFeed"):
            raise DefinitionError(
                f"Delta table {self.path} keeps no change data feed",
                next="set its property delta.enableChangeDataFeed to true; changes before that cannot be read",
            )
        self.schema()

    def enumerator(self, workspace: Storage) -> DeltaEnumerator:
        """Return the driver's half. Nothing is kept in the workspace: the table keeps its versions."""
        schema, shape = self.schema(), self._shape()
        data = pa.schema([each for each in schema if not (self.change_feed and each.name.startswith("_"))])
        changes = TableChanges(open_folder(self.path), data, self.change_feed, self.ignore_deletes, self.ignore_changes)
        return DeltaEnumerator(
            changes,
            self.limits,
            self._start,
            ddl.render(schema),
            shape.partition_by,
            self.watch,
            self.discover_every // timedelta(milliseconds=1),
            self.clock,
        )

    def reader(self, context: ReaderContext) -> Reader:
        """Return the task's half."""
        from poundlock.connectors.delta.source.reader import DeltaReader

        return DeltaReader(context, self.change_feed)

    def describe(self, position: JSON) -> str:
        """Return a position for the log."""
        return f"{self.path}: {DeltaPosition.of(position).describe()}"

    def check_position(self, position: JSON, workspace: Storage) -> None:
        """Raise DefinitionError unless a position could be one of this source."""
        DeltaPosition.checked(position)

    def _shape(self) -> TableShape:
        storage = open_folder(self.path)
        with explained(storage, "opening it", starting=True):
            shape = shape_of(open_table(storage))
        refuse_unreadable(shape, storage.root)
        return shape

    def _start(self) -> DeltaPosition:
        storage = open_folder(self.path)
        with explained(storage, "opening it", starting=True):
            table = open_table(storage)
            newest = table.version()
            if self.starting_version is not None:
                return DeltaPosition(newest + 1 if self.starting_version == "latest" else self.starting_version)
            wanted: Any = self.version_as_of if self.timestamp_as_of is None else self.timestamp_as_of
            if self.starting_timestamp is not None:
                return DeltaPosition(self._version_at(storage, self.starting_timestamp) + 1)
            if wanted is None:
                return DeltaPosition(newest, 0, True)
            if isinstance(wanted, int):
                if wanted > newest:
                    raise DefinitionError(
                        f"Delta table {self.path} has no version {wanted}", next=f"the newest one is {newest}"
                    )
                return DeltaPosition(wanted, 0, True)
            version = self._version_at(storage, wanted)
            if version < 0:
                raise DefinitionError(
                    f"Delta table {self.path} was not there yet at {wanted}", next="take a later time, or leave it out"
                )
            return DeltaPosition(version, 0, True)

    def _version_at(self, storage: Storage, time: str) -> int:
        """Return the version that was the newest one at a time; -1 where the table was not there yet."""
        there = versions(storage)
        first = bisect_right(there, _ms_of(time), key=lambda version: _time_of(storage, version))
        if not first and there[0]:
            raise DefinitionError(
                f"Delta table {self.path}: its log begins with version {there[0]}, which is behind {time}",
                next="begin with a later time, or without one",
            )
        return there[first - 1] if first else -1


def _ms_of(time: str) -> int:
    try:
        given = datetime.fromisoformat(time)
    except ValueError as error:
        raise DefinitionError(f"DeltaSource: {time!r} is no time", next='write it as "2026-03-01T00:00:00Z"') from error
    return int((given if given.tzinfo is not None else given.replace(tzinfo=UTC)).timestamp() * 1000)


def _time_of(storage: Storage, version: int) -> int:
    commit = read_commit(storage, version)
    return 0 if commit is None else commit.time_ms
