"""The audit of a Delta table: whether each decision has its one commit, and whether that names the decided files with their rows."""

from __future__ import annotations

from poundlock.audit.read_back import Decided, Disagreement, ReadBack
from poundlock.connectors.delta.loading import explained, open_folder, open_table
from poundlock.connectors.delta.log import read_commit
from poundlock.connectors.delta.sink.committer import APP, CHECKPOINT, DECISION
from poundlock.connectors.delta.sink.values import DecidedRows
from poundlock.storage import Storage


class DeltaReading:
    """One audit. The table's history is read once; it changes nothing."""

    whole = False

    def __init__(self) -> None:
        self._decided: list[tuple[Decided, DecidedRows]] = []
        self._commits: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self._looked: set[str] = set()

    def take(self, decided: Decided) -> None:
        """Note a committable."""
        if decided.compared:
            self._decided.append((decided, DecidedRows.of(decided.committable)))

    def read(self) -> None:
        """Read the history of each table. Raises TransientError or TerminalError where that cannot be read."""
        for root in {rows.root for _, rows in self._decided} - self._looked:
            storage = open_folder(root)
            with explained(storage, "reading its history"):
                entries = open_table(storage).history()
            for entry in entries:
                if APP in entry:
                    key = root, str(entry[APP]), str(entry.get(CHECKPOINT))
                    self._commits.setdefault(key, []).append((entry["version"], str(entry.get(DECISION))))
            self._looked.add(root)

    def result(self) -> ReadBack:
        """Return what the table has, beside what was decided."""
        wrong: list[Disagreement] = []
        gone: list[str] = []
        compared = 0
        for decided, rows in self._decided:
            storage = open_folder(rows.root)
            commits = self._commits.get((rows.root, rows.app, str(rows.checkpoint)), [])
            if not commits and not decided.committed:
                gone.append(f"checkpoint {rows.checkpoint}: its commit is still to be made")
                continue
            if not commits and _is_behind_log(storage, rows):
                gone.append(f"checkpoint {rows.checkpoint}: the table's log does not reach back to it")
                continue
            compared += 1
            what = _difference(storage, rows, commits)
            if what:
                wrong.append(Disagreement(rows.checkpoint, storage.root, what))
        return ReadBack(compared=compared, disagreements=wrong, uncompared=gone)


def _is_behind_log(storage: Storage, rows: DecidedRows) -> bool:
    """Return whether a commit that is not there may have been one that the log no longer has."""
    with explained(storage, "reading its log"):
        version = open_table(storage).transaction_version(rows.app)
    return read_commit(storage, 0) is None and version is not None and version >= rows.checkpoint


def _difference(storage: Storage, rows: DecidedRows, commits: list[tuple[int, str]]) -> str:
    """Return what is not as it was decided; "" where all is."""
    if not commits:
        return f"there is no commit with its {rows.rows:,} rows"
    if len(commits) > 1:
        return f"{len(commits)} commits have its number: versions {', '.join(str(version) for version, _ in sorted(commits))}"
    version, decision = commits[0]
    if decision != rows.decision:
        return f"the commit in version {version} is of another decision"
    commit = None if rows.key else read_commit(storage, version)
    if commit is None:
        return ""
    added = {each.path: (each.bytes, each.rows) for each in commit.of("insert")}
    wanted = {each.path: (each.bytes, each.rows) for each in rows.files}
    if added == wanted:
        return ""
    return f"version {version} adds {sum(n or 0 for _, n in added.values()):,} rows in {len(added)} files instead of {rows.rows:,} in {len(wanted)}"
