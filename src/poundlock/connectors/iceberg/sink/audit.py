"""The audit of an Iceberg table: whether each decision has its one snapshot, and whether that added the decided files with their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poundlock.audit.read_back import Decided, Disagreement, ReadBack
from poundlock.connectors.iceberg.sink.marks import DecisionMark, TableCommit, decision_of
from poundlock.connectors.iceberg.sink.named import added_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from poundlock.connectors.iceberg.sink.sink import IcebergSink


class IcebergReading:
    """One audit. The table is loaded once; nothing is changed.

    Args:
        sink: bound to its job.
    """

    whole = False

    def __init__(self, sink: IcebergSink) -> None:
        self._sink = sink
        self._decided: list[tuple[Decided, TableCommit]] = []
        self._table: Table | None = None

    def take(self, decided: Decided) -> None:
        """Note a committable."""
        if decided.compared:
            self._decided.append((decided, TableCommit.of(decided.committable)))

    def read(self) -> None:
        """Load the table. Raises DefinitionError where there is none, TransientError where the catalog does not answer."""
        self._table = self._sink.place.load("auditing")

    def result(self) -> ReadBack:
        """Return what the table has, beside what was decided. Raises TransientError where a manifest cannot be read."""
        assert self._table is not None
        made: dict[DecisionMark, list[Any]] = {}
        for mark, snapshot in self._sink.owner.snapshots(self._table):
            made.setdefault(mark, []).append(snapshot)
        newest = self._sink.owner.newest(self._table)
        wrong: list[Disagreement] = []
        gone: list[str] = []
        compared = 0
        for decided, commit in self._decided:
            snapshots = made.get(commit.mark, [])
            if not snapshots and not decided.committed:
                gone.append(f"checkpoint {commit.checkpoint}: its commit is still to be made")
                continue
            if not snapshots and newest is not None and newest >= commit.mark and self._is_same_table(commit):
                gone.append(f"checkpoint {commit.checkpoint}: its snapshot has expired")
                continue
            compared += 1
            what = self._difference(commit, snapshots)
            if what:
                wrong.append(Disagreement(commit.checkpoint, self._sink.place.shown, what))
        return ReadBack(compared=compared, disagreements=wrong, uncompared=gone)

    def _is_same_table(self, commit: TableCommit) -> bool:
        assert self._table is not None
        return str(self._table.metadata.table_uuid) == commit.table

    def _difference(self, commit: TableCommit, snapshots: list[Any]) -> str:
        """Return what is not as it was decided; "" where all is."""
        assert self._table is not None
        if not self._is_same_table(commit):
            return f"the table was made again: its id is {self._table.metadata.table_uuid} instead of {commit.table}"
        if not snapshots:
            return f"there is no snapshot with its {commit.rows:,} rows"
        if len(snapshots) > 1:
            return f"{len(snapshots)} snapshots have its number: {', '.join(str(s.snapshot_id) for s in snapshots)}"
        (snapshot,) = snapshots
        if decision_of(snapshot) not in ("", commit.decision):
            return f"snapshot {snapshot.snapshot_id} is of another decision"
        branch = self._sink.branch or "main"
        if not self._is_in_branch(snapshot, branch):
            return f"snapshot {snapshot.snapshot_id} is not in the history of branch {branch}, which was set back or replaced"
        if self._sink.key:
            return ""
        with self._sink.place.explained("auditing"):
            added = {file.path: (file.bytes, file.rows) for file in added_files(self._table, snapshot)}
        wanted = {file.path: (file.bytes, file.rows) for file in commit.files}
        if added == wanted:
            return ""
        rows = sum(rows for _, rows in added.values())
        return f"snapshot {snapshot.snapshot_id} adds {rows:,} rows in {len(added)} files instead of {commit.rows:,} in {len(wanted)}"

    def _is_in_branch(self, snapshot: Any, branch: str) -> bool:
        """Return whether a branch has a snapshot, by what each says of the one before it, as far as these have not expired."""
        assert self._table is not None
        metadata = self._table.metadata
        ref = metadata.refs.get(branch)
        at = None if ref is None else ref.snapshot_id
        while at is not None:
            if at == snapshot.snapshot_id:
                return True
            here = metadata.snapshot_by_id(at)
            if here is None:
                return True  # what came before has expired, so nothing says that it was not there
            at = here.parent_snapshot_id
        return False
