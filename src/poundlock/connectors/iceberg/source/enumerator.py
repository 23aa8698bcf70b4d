"""The driver's half: which snapshots are new, and their data files as splits.

A snapshot and its files never change, so a range of positions is the same work for as long as the table keeps its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from poundlock.connectors.base import Split
from poundlock.connectors.iceberg.catalog import outline
from poundlock.connectors.iceberg.source.positions import TablePosition
from poundlock.connectors.iceberg.source.snapshots import PlannedFile, added, ordered, scanned, there
from poundlock.errors import DefinitionError, SourceGoneError, TransientError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from poundlock.connectors.iceberg.source.source import IcebergSource

_PLANS = 8  # of snapshots, in memory


class IcebergEnumerator:
    """Plans the reading of a table."""

    def __init__(self, source: IcebergSource) -> None:
        self._source = source
        self._looked_ms: int | None = None
        self._was_empty = False
        self._plans: dict[tuple[int, bool], Sequence[PlannedFile]] = {}

    def initial(self) -> dict[str, Any]:
        return TablePosition().to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        source, at = self._source, self._position(start)
        now = source.clock.now_ms()
        if self.finished(start) or (self._looked_ms is not None and now - self._looked_ms < source.poll_ms):
            return start
        table = source.place.load("looking for new snapshots")
        self._check_table(at, table)
        end = self._end(at, table)
        self._looked_ms = now if end == at else None
        return start if end == at else end.to_json()

    def _end(self, at: TablePosition, table: Table) -> TablePosition:
        uuid = str(table.metadata.table_uuid)
        if at.snapshot in ("", "-"):
            first = self._first(table)
            if first is None:
                self._was_empty = True
                # A table without a snapshot is read to its end at once where it is read once.
                return TablePosition(snapshot="-", table=uuid) if self._source.mode == "snapshot" else at
            begun = TablePosition(
                snapshot=str(first.snapshot_id),
                first=str(first.snapshot_id),
                scan=self._source.scans,
                table=uuid,
                sequence=first.sequence_number or 0,
            )
            at = msgspec.structs.replace(begun, of=len(self._files(table, first, scan=begun.scan)))
        left = self._source.files_per_checkpoint
        for snapshot in self._following(at, table):
            is_scan = at.scan and str(snapshot.snapshot_id) == at.first
            if str(snapshot.snapshot_id) != at.snapshot:
                files = self._files(table, snapshot, scan=is_scan)
                at = msgspec.structs.replace(
                    at,
                    snapshot=str(snapshot.snapshot_id),
                    sequence=snapshot.sequence_number or 0,
                    next=0,
                    of=len(files),
                )
            read = min(at.of - at.next, left)
            at = msgspec.structs.replace(at, next=at.next + read)
            left -= read
            if left <= 0:
                break
        return at

    def _following(self, at: TablePosition, table: Table) -> Iterator[Snapshot]:
        """Yield the snapshot in which a position is, if it is not whole or the first, and those behind it."""
        source = self._source
        if not at.whole:
            yield there(source.place, table, at.snapshot)
        if source.mode == "snapshot":
            return
        last = source.end_snapshot_id
        if last is None:
            head = table.metadata.snapshot_by_name(source.branch or "main")
            if head is None:
                raise SourceGoneError(
                    f"{source.place.shown} has no snapshot any more, and was read up to {at.snapshot}",
                    next="the table was emptied or its branch removed: begin with a new checkpoint folder",
                )
            last = head.snapshot_id
        yield from ordered(source.place, table, last, at.snapshot, at.sequence)

    def _first(self, table: Table) -> Snapshot | None:
        """Return the snapshot with which reading begins; None while there is none."""
        source, metadata = self._source, table.metadata
        head = metadata.snapshot_by_name(source.ref or source.branch or "main")
        if source.mode == "snapshot":
            wanted = source.snapshot_id
            if wanted is None and source.as_of_ms is not None:
                head = table.snapshot_as_of_timestamp(source.as_of_ms)
            elif wanted is not None:
                head = metadata.snapshot_by_id(wanted)
            if head is None and (wanted is not None or source.as_of_ms is not None or source.ref or source.branch):
                raise DefinitionError(
                    f"{source.place.shown} has no such snapshot", next=f"it has {_some(table)}: name one of them"
                )
            return head
        if head is None:
            return None
        if source.starting_strategy == "incremental_from_snapshot_id":
            return there(source.place, table, str(source.start_snapshot_id))
        chain = ordered(source.place, table, head.snapshot_id, "")
        if source.starting_strategy == "incremental_from_snapshot_timestamp":
            assert source.start_ms is not None
            return next((each for each in chain if each.timestamp_ms >= source.start_ms), None)
        if source.starting_strategy == "incremental_from_earliest_snapshot" or (self._was_empty and not source.scans):
            return chain[0]
        return head

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        source, before, last = self._source, self._position(start), self._position(end)
        if last.snapshot in ("", "-"):
            return []
        table = source.place.load("planning its files")
        self._check_table(last, table)
        known, schema = outline(table), source.schema_id(table)
        splits: list[Split] = []
        for snapshot in self._between(before, last, table):
            name = str(snapshot.snapshot_id)
            files = self._files(table, snapshot, scan=last.scan and name == last.first)
            first = before.next if name == before.snapshot else 0
            stop = last.next if name == last.snapshot else len(files)
            for n in range(first, stop):
                payload = {
                    "known": known,
                    "schema": schema,
                    "snapshot": name,
                    "file": msgspec.to_builtins(files[n].file),
                    "deletes": [msgspec.to_builtins(each) for each in files[n].deletes],
                }
                size = files[n].file.bytes
                splits.append(Split(f"{name}-{n:06d}", payload, max(size, 1), size, name=f"snapshot {name}"))
        return splits

    def _between(self, before: TablePosition, last: TablePosition, table: Table) -> list[Snapshot]:
        place = self._source.place
        if before.snapshot in ("", "-"):
            first = there(place, table, last.first)
            return [
                first,
                *(ordered(place, table, int(last.snapshot), last.first) if last.snapshot != last.first else []),
            ]
        begun = [] if before.whole else [there(place, table, before.snapshot)]
        return [
            *begun,
            *(
                ordered(place, table, int(last.snapshot), before.snapshot, before.sequence)
                if last.snapshot != before.snapshot
                else []
            ),
        ]

    def _files(self, table: Table, snapshot: Snapshot, *, scan: bool) -> Sequence[PlannedFile]:
        key = (snapshot.snapshot_id, scan)
        if key not in self._plans:
            while len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[key] = (scanned if scan else added)(self._source, table, snapshot)
        return self._plans[key]

    def finished(self, position: dict[str, Any]) -> bool:
        at = self._position(position)
        if self._source.mode == "snapshot":
            return at.snapshot != "" and at.whole
        return (
            self._source.end_snapshot_id is not None and at.snapshot == str(self._source.end_snapshot_id) and at.whole
        )

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: the table keeps its snapshots for as long as whoever maintains it says."""

    def identity(self, start: dict[str, Any], end: dict[str, Any], previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table's id, so that another table of its name is not read on."""
        table = str(self._source.place.load("looking whether it is the same table").metadata.table_uuid)
        if previous.get("table", table) != table:
            raise SourceGoneError(
                f"{self._source.place.shown} was made again: its id is {table}, and was {previous['table']}",
                next="begin with a new checkpoint folder",
            )
        return {"table": table}

    def check_range(self, start: dict[str, Any], end: dict[str, Any], identity: Mapping[str, Any]) -> None:
        """Raise SourceGoneError unless the snapshots of a range are there."""
        self.identity(start, end, identity)
        self.splits(start, end)

    def lag(self, position: dict[str, Any]) -> int | None:
        """Return how many rows the snapshots behind a position added, as their summaries say; None if that is not known."""
        at = self._position(position)
        if at.snapshot in ("", "-") or self._source.mode == "snapshot":
            return None
        try:
            table = self._source.place.load("looking how many rows wait")
            behind = [each for each in self._following(at, table) if str(each.snapshot_id) != at.snapshot]
        except (SourceGoneError, DefinitionError, TransientError):
            return None
        return sum(int(each.summary.additional_properties.get("added-records", 0)) for each in behind if each.summary)

    def close(self) -> None:
        """Close the connection to the catalog."""
        self._source.place.close()

    def _position(self, value: dict[str, Any]) -> TablePosition:
        return TablePosition.from_json(value, self._source.place.shown)

    def _check_table(self, at: TablePosition, table: Table) -> None:
        now = str(table.metadata.table_uuid)
        if at.table not in ("", now):
            raise SourceGoneError(
                f"{self._source.place.shown} was made again: its id is {now}, and was {at.table}",
                next="begin with a new checkpoint folder",
            )


def _some(table: Table) -> str:
    known = [str(each.snapshot_id) for each in table.metadata.snapshots]
    return ", ".join(known[-5:]) or "none"
