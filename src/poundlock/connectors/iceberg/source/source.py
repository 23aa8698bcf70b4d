"""IcebergSource: what a user says about reading an Iceberg table, checked when it is written.

A source is a value: it holds no connection, can be pickled and compared, and shows no secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from poundlock.arguments import NAMES, TEXT, WHOLE, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.base import Enumerator, ReaderContext, ReplayPromise
from poundlock.connectors.iceberg.catalog import TablePlace, place_of
from poundlock.connectors.iceberg.errors import load_pyiceberg
from poundlock.connectors.iceberg.source.enumerator import IcebergEnumerator
from poundlock.connectors.iceberg.source.positions import TablePosition
from poundlock.connectors.iceberg.types import plain_schema
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration, positive_number, span_ms

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from poundlock.connectors.iceberg.source.reader import IcebergReader

Mode = Literal["snapshot", "incremental"]
StartingStrategy = Literal[
    "table_scan_then_incremental",
    "incremental_from_latest_snapshot",
    "incremental_from_earliest_snapshot",
    "incremental_from_snapshot_id",
    "incremental_from_snapshot_timestamp",
]
_CHOICES = {
    "mode": ("snapshot", "incremental"),
    "starting_strategy": (
        "table_scan_then_incremental",
        "incremental_from_latest_snapshot",
        "incremental_from_earliest_snapshot",
        "incremental_from_snapshot_id",
        "incremental_from_snapshot_timestamp",
    ),
    "on_overwrite": ("fail", "skip"),
}


@dataclass(frozen=True)
class IcebergSource:
    """Read an Apache Iceberg table: one snapshot of it, or the rows that snapshots add, as they come.

    Args:
        catalog: properties of the catalog as pyiceberg knows them, such as {"type": "rest", "uri": "…"}; a value may be "env:NAME"
            or "file:PATH".
        table: "namespace.name".
        mode: "snapshot" reads the table as it is at one snapshot, then ends; "incremental" goes on with what each further snapshot
            adds.
        snapshot_id: the snapshot that "snapshot" reads; None = the current one when the job first starts.
        as_of: read the snapshot that was current at this time, instead.
        ref: read the snapshot of this branch or tag, instead.
        starting_strategy: where "incremental" begins, by Flink's names: with all of the table as it is now, or with what the latest,
            the earliest or a given snapshot added, or the first at or behind a time.
        start_snapshot_id, start_timestamp: of the last two strategies.
        end_snapshot_id: "incremental" ends behind this snapshot; None = never.
        branch: branch that is read; None = main.
        on_overwrite: what "incremental" does at a snapshot that changes or removes rows: "fail", or "skip" it.
        columns: the columns wanted; None = all.
        where: condition on the rows in pyiceberg's language, such as "id > 5 and country = 'DE'"; files that cannot have such
            rows are not opened.
        files_per_checkpoint: most data files that one checkpoint reads.
        poll_every: least time between two looks while nothing is new.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    catalog: Mapping[str, str] = field(repr=False)
    table: str
    _: KW_ONLY
    mode: Mode = "snapshot"
    snapshot_id: int | None = None
    as_of: datetime | None = None
    ref: str | None = None
    starting_strategy: StartingStrategy = "table_scan_then_incremental"
    start_snapshot_id: int | None = None
    start_timestamp: datetime | None = None
    end_snapshot_id: int | None = None
    branch: str | None = None
    on_overwrite: Literal["fail", "skip"] = "fail"
    columns: Sequence[str] | None = None
    where: str | None = None
    files_per_checkpoint: int = 1_000
    poll_every: str | timedelta = "10 s"
    clock: Clock = field(default_factory=SystemClock, compare=False)
    # Once asked for, so that tasks need not ask: the columns, and the id of the schema that they are of.
    _known: list[tuple[pa.Schema, int]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        place = place_of("IcebergSource", self.catalog, self.table)
        object.__setattr__(self, "catalog", place.properties)
        check_kind("IcebergSource", NAMES, {"columns": self.columns}, optional=True)
        check_kind("IcebergSource", TEXT, {"ref": self.ref, "branch": self.branch, "where": self.where}, optional=True)
        ids = {
            "snapshot_id": self.snapshot_id,
            "start_snapshot_id": self.start_snapshot_id,
            "end_snapshot_id": self.end_snapshot_id,
        }
        check_kind("IcebergSource", WHOLE, ids, optional=True)
        if self.columns is not None:
            object.__setattr__(
                self, "columns", (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            )
        object.__setattr__(self, "poll_every", duration(self.poll_every))
        positive_number("files_per_checkpoint", self.files_per_checkpoint)
        check_choices(self, _CHOICES)
        self._check()

    def _check(self) -> None:
        given = {"snapshot_id": self.snapshot_id, "as_of": self.as_of, "ref": self.ref}
        if self.mode == "incremental":
            refuse_without_effect(
                "IcebergSource", {k: (v, None) for k, v in given.items()}, because='mode is "incremental"'
            )
        else:
            self._check_snapshot(given)
        for name, strategy, value in (
            ("start_snapshot_id", "incremental_from_snapshot_id", self.start_snapshot_id),
            ("start_timestamp", "incremental_from_snapshot_timestamp", self.start_timestamp),
        ):
            if (value is not None) != (self.starting_strategy == strategy):
                raise DefinitionError(
                    f'{name} and starting_strategy="{strategy}" go together', next="give both of them, or neither"
                )
        for name in ("as_of", "start_timestamp"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
                raise DefinitionError(
                    f"{name}={at!r} is no time with a zone", next=f"write {name}=datetime(2026, 1, 31, tzinfo=UTC)"
                )

    def _check_snapshot(self, given: Mapping[str, object]) -> None:
        refuse_without_effect(
            "IcebergSource",
            {
                "starting_strategy": (self.starting_strategy, "table_scan_then_incremental"),
                "end_snapshot_id": (self.end_snapshot_id, None),
                "on_overwrite": (self.on_overwrite, "fail"),
            },
            because='mode is "snapshot"',
            next='leave it out, or say mode="incremental"',
        )
        named = [name for name, value in {**given, "branch": self.branch}.items() if value is not None]
        if len(named) > 1:
            raise DefinitionError(f"{named[0]} and {named[1]} both say which snapshot is read", next="give one of them")

    @property
    def place(self) -> TablePlace:
        """Which table, in which catalog."""
        return TablePlace(self.catalog, self.table)

    @property
    def scans(self) -> bool:
        """Whether the first snapshot is read whole, and not only what it added."""
        return self.mode == "snapshot" or self.starting_strategy == "table_scan_then_incremental"

    @property
    def poll_ms(self) -> int:
        """How long to wait between two looks, ms."""
        return span_ms(self.poll_every)

    @property
    def as_of_ms(self) -> int | None:
        """The time whose snapshot is read, ms since the epoch."""
        return None if self.as_of is None else round(self.as_of.timestamp() * 1000)

    @property
    def start_ms(self) -> int | None:
        """The time at which reading begins, ms since the epoch."""
        return None if self.start_timestamp is None else round(self.start_timestamp.timestamp() * 1000)

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.mode == "snapshot" or self.end_snapshot_id is not None

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives."""
        return ReplayPromise(
            "exact", "a snapshot's data files never change, and the job stops where one that it still needs has expired"
        )

    def schema(self) -> pa.Schema:
        """Return the columns of the rows, as the table has them when the job starts.

        Raises:
            DefinitionError: there is no such table or column, or the catalog refuses this user.
            TransientError: the catalog does not answer.
        """
        return self._looked_up()[0]

    def schema_id(self, table: Table) -> int:
        """Return the id of the table's schema of which the columns are."""
        return self._looked_up(table)[1]

    def _looked_up(self, table: Table | None = None) -> tuple[pa.Schema, int]:
        if not self._known:
            load_pyiceberg()
            schema = (table or self.place.load("looking up its columns")).schema()
            names = [each.name for each in schema.fields]
            for name in self.columns or ():
                if name not in names:
                    raise DefinitionError(
                        f"{self.place.shown} has no column {name!r}",
                        next=did_you_mean(name, names, f"use one of {', '.join(names)}", show=repr),
                    )
            plain = plain_schema(schema)
            chosen = pa.schema([plain.field(name) for name in self.columns or names])
            self._known.append((chosen, schema.schema_id))
        return self._known[0]

    def preflight(self) -> None:
        """Raise DefinitionError, within seconds, if the table cannot be read as it is described."""
        self.schema()
        if self.where is not None:
            table = self.place.load("looking it up")
            try:
                table.scan(row_filter=self.where).projection()
                from pyiceberg.expressions.visitors import bind
                from pyiceberg.table import _parse_row_filter

                bind(table.schema(), _parse_row_filter(self.where), case_sensitive=True)
            except Exception as error:
                raise DefinitionError(
                    f"where={self.where!r} is no condition on {self.place.shown}: {error}",
                    next="write such as where=\"id > 5 and country = 'DE'\"",
                ) from error

    def enumerator(self, workspace: Storage) -> Enumerator:
        """Return the driver's half."""
        return IcebergEnumerator(self)

    def reader(self, context: ReaderContext) -> IcebergReader:
        """Return the task's half."""
        from poundlock.connectors.iceberg.source.reader import IcebergReader

        return IcebergReader(self, context)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        at = TablePosition.from_json(position, self.table)
        if at.snapshot in ("", "-"):
            return f"{self.table}: nothing read" if not at.snapshot else f"{self.table}: an empty table, read"
        part = "" if at.whole else f", {at.next} of {at.of} files"
        return f"{self.table} up to snapshot {at.snapshot}{part}"
