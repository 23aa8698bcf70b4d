"""What tasks tell the driver of the files they wrote, and what a decision says of them: JSON with a version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.checkpoint.participant import JSON, Prepared
from poundlock.errors import TerminalError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that a task attempt wrote.

    Args:
        path: below the table's folder.
        bytes, rows: of it.
        values: of the partition, by column, as Delta's log has them; {} for a file of changes that are to be merged.
        stats: smallest and largest values and the number of nulls, as the log has them; "" for a file of changes.
        modified_ms: the driver's clock when its checkpoint began, ms since the epoch.
    """

    path: str
    bytes: int
    rows: int
    values: Mapping[str, str | None]
    stats: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one task attempt.

    Args:
        attempt: stands for the attempt in the files' names.
        columns: of the rows, those of partitions included, as DDL.
        partition_by: the columns of partitions that the table had then.
    """

    checkpoint: int
    attempt: str
    columns: str
    partition_by: tuple[str, ...]
    files: tuple[WrittenFile, ...]

    def to_json(self) -> JSON:
        """Return it as a payload."""
        return {
            "v": FORMAT,
            "checkpoint": self.checkpoint,
            "attempt": self.attempt,
            "columns": self.columns,
            "partition_by": list(self.partition_by),
            "files": [asdict(each) for each in self.files],
            "rows": sum(each.rows for each in self.files),
            "bytes": sum(each.bytes for each in self.files),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> WrittenFiles:
        """Return it of a payload. Raises TerminalError where a newer poundlock wrote it."""
        check_format(value)
        files = tuple(WrittenFile(**each) for each in value["files"])
        return cls(value["checkpoint"], value["attempt"], value["columns"], tuple(value["partition_by"]), files)


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """All that a decision adds to a table, or merges into it: one commit.

    Args:
        root: the table's folder.
        app: by this and the number of the checkpoint the table knows the commit, as a `txn` action.
        decision: the digest of the files' names, which tells this decision from another one with the same number.
        key: the columns by which rows are merged; () = they are added.
        delete_when: the column that says which rows are deleted; "" = none.
        parts: the files of each task attempt.
    """

    root: str
    app: str
    checkpoint: int
    decision: str
    key: tuple[str, ...]
    delete_when: str
    parts: tuple[WrittenFiles, ...]

    @property
    def files(self) -> Sequence[WrittenFile]:
        """All files."""
        return [each for part in self.parts for each in part.files]

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(each.rows for each in self.files)

    def to_json(self) -> JSON:
        """Return it as a committable."""
        return {
            "v": FORMAT,
            "root": self.root,
            "app": self.app,
            "checkpoint": self.checkpoint,
            "decision": self.decision,
            "key": list(self.key),
            "delete_when": self.delete_when,
            "parts": [part.to_json() for part in self.parts],
            "rows": self.rows,
            "bytes": sum(each.bytes for each in self.files),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> DecidedRows:
        """Return it of a committable. Raises TerminalError where a newer poundlock wrote it."""
        check_format(value)
        return cls(
            value["root"],
            value["app"],
            value["checkpoint"],
            value["decision"],
            tuple(value["key"]),
            value["delete_when"],
            tuple(map(WrittenFiles.of, value["parts"])),
        )

    @classmethod
    def decide(
        cls, root: str, app: str, key: Sequence[str], delete_when: str, prepared: Sequence[Prepared]
    ) -> DecidedRows:
        """Return what is decided of what was prepared, which is not empty."""
        parts = tuple(WrittenFiles.of(item.payload) for item in sorted(prepared, key=lambda item: item.subtask))
        names = "\0".join(sorted(each.path for part in parts for each in part.files))
        decision = hashlib.blake2b(names.encode(), digest_size=16).hexdigest()
        return cls(root, app, parts[0].checkpoint, decision, tuple(key), delete_when, parts)


def check_format(value: Mapping[str, Any]) -> None:
    """Raise TerminalError unless this version reads a payload, committable or state."""
    if value.get("v") != FORMAT:
        raise TerminalError(
            f"what a DeltaSink kept is of version {value.get('v')!r}, which is not known here",
            next="use a newer poundlock",
        )
