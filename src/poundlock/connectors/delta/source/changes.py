"""What each version of a table has for a reader: the files of a snapshot, and what a commit added, refused where it did more than that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa

from poundlock.connectors.delta.loading import explained, open_table
from poundlock.connectors.delta.log import DeltaCommit, TableFile, read_commit, versions
from poundlock.connectors.delta.shape import columns_of
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.formats import ddl
from poundlock.storage import Storage

_FEED = "read its change data feed: change_feed=True"


@dataclass
class TableChanges:
    """The versions of one table, read as they are asked for.

    Args:
        storage: the table's folder.
        columns: those that are read; a commit that changes one of them is refused.
        change_feed: whether deletes and updates are read, too.
        ignore_deletes: whether a commit that only removes files is passed over.
        ignore_changes: whether of a commit that rewrites files the new ones are read as if they were added.
    """

    storage: Storage
    columns: pa.Schema
    change_feed: bool
    ignore_deletes: bool
    ignore_changes: bool
    _snapshots: dict[int, Sequence[TableFile]] = field(default_factory=dict)
    _commits: dict[int, DeltaCommit] = field(default_factory=dict)

    def newest(self) -> int:
        """Return the number of the newest version. Raises TerminalError where there is no table any more."""
        with explained(self.storage, "reading its log"):
            return open_table(self.storage).version()

    def snapshot(self, version: int) -> Sequence[TableFile]:
        """Return all files of a version, in the order of their names.

        Raises:
            SourceGoneError: the log no longer has that version.
        """
        if version not in self._snapshots:
            self._snapshots = {version: self._look(version)}
        return self._snapshots[version]

    def _look(self, version: int) -> Sequence[TableFile]:
        with explained(self.storage, "reading its log"):
            newest = open_table(self.storage)
            if version > newest.version():
                raise self.gone(version, f"the newest one is {newest.version()}")
        try:
            with explained(self.storage, f"reading version {version}"):
                table = open_table(self.storage, version)
                vectors = pa.table(table.deletion_vectors().read_all()).num_rows
                actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        except TerminalError as error:
            raise self.gone(version, error.what) from error
        if vectors:
            raise self._refused(
                version,
                "deleted rows by deletion vectors",
                "REORG TABLE … APPLY (PURGE) in Spark, then read a newer version",
            )
        files = [
            TableFile(
                unquote(each["path"]),
                each["size_bytes"],
                {
                    name: None if value is None else _text(value)
                    for name, value in (each.get("partition") or {}).items()
                },
                rows=each.get("num_records"),
            )
            for each in actions
        ]
        return sorted(files, key=lambda each: each.path)

    def commit(self, version: int) -> DeltaCommit | None:
        """Return a commit that can be read; None where it is not there yet.

        Raises:
            SourceGoneError: the log no longer has it.
            TerminalError: it does what this source does not read.
        """
        commit = self._commits.get(version)
        if commit is None:
            commit = read_commit(self.storage, version)
            if commit is None:
                self._refuse_gap(version)
                return None
            self._check(commit)
            if len(self._commits) > 1000:
                self._commits.clear()
            self._commits[version] = commit
        return commit

    def files(self, commit: DeltaCommit) -> Sequence[TableFile]:
        """Return the files of a commit that are read, in a fixed order: of a change data feed what goes before what comes."""
        if not self.change_feed:
            return commit.of("insert")
        feed = commit.of("feed")
        return feed or [*commit.of("delete"), *commit.of("insert")]

    def _check(self, commit: DeltaCommit) -> None:
        if commit.schema is not None:
            self._check_columns(commit, commit.schema)
        removed, added = commit.of("delete"), commit.of("insert")
        if any(each.has_vector for each in (*added, *(removed if self.change_feed else ()))) and not commit.of("feed"):
            raise self._refused(
                commit.version, "has rows that deletion vectors delete", "read a table without deletion vectors"
            )
        if self.change_feed or not removed:
            return
        if added and not self.ignore_changes:
            raise self._refused(
                commit.version,
                f"changes rows that are there ({commit.operation or 'no operation is named'})",
                f"{_FEED}; or read rewritten files once more as they are: ignore_changes=True",
            )
        if not added and not (self.ignore_deletes or self.ignore_changes):
            raise self._refused(
                commit.version,
                f"deletes rows ({commit.operation or 'no operation is named'})",
                f"{_FEED}; or pass over what only deletes: ignore_deletes=True",
            )

    def _check_columns(self, commit: DeltaCommit, schema: str) -> None:
        now = ddl.parse(columns_of(schema))
        for each in self.columns:
            if each.name not in now.names:
                raise self._refused(
                    commit.version,
                    f"has no column {each.name!r} any more",
                    "name the columns to read in columns=, and start from that version",
                )
            if now.field(each.name).type != each.type:
                raise self._refused(
                    commit.version, f"gives column {each.name!r} another type", "begin with a new checkpoint folder"
                )

    def _refuse_gap(self, version: int) -> None:
        """Raise SourceGoneError where the log has later commits and not this one, or none at all."""
        there = versions(self.storage)
        if not there or there[-1] > version:
            raise self.gone(version, f"the log begins at {there[0]}" if there else "the log is empty")
        if version > there[-1] + 1:
            raise self.gone(version, f"the newest one is {there[-1]}")

    def gone(self, version: int, why: str) -> SourceGoneError:
        """Return the error of a version that cannot be read any more."""
        return SourceGoneError(
            f"Delta table {self.storage.root} has no version {version} that could be read: {why}",
            next="raise the table's delta.logRetentionDuration; begin with a new checkpoint folder to read what is there now",
        )

    def _refused(self, version: int, what: str, next: str) -> TerminalError:
        return TerminalError(f"Delta table {self.storage.root}: version {version} {what}", next=next)


def _text(value: object) -> str:
    """Return a value of a partition as the log has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).removesuffix("+00:00")
