"""The commits of a table as its log has them: one JSON file a version, whose lines are actions.

Delta's protocol describes it ("Delta Log Entries"). The library gives a table as it is at a version; what one commit added and removed only
stands here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from poundlock.storage import Storage

_LOG = "_delta_log"
_COMMIT = re.compile(r"([0-9]{20})\.json")

Change = Literal["insert", "delete", "feed"]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that an action names.

    Args:
        path: below the table's folder, as it is called there; an absolute one is a URI.
        bytes: its size.
        values: of its partition, by column.
        change: what its rows are: inserted, deleted, or those of a change data feed, each with its kind.
        has_vector: whether some of its rows are deleted, by a deletion vector.
        rows: how many it has, None where the log does not say.
        changes_data: False where only the layout of the table changed.
    """

    path: str
    bytes: int
    values: Mapping[str, str | None]
    change: Change = "insert"
    has_vector: bool = False
    rows: int | None = None
    changes_data: bool = True


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version of a table.

    Args:
        time_ms: when it was made, ms since the epoch.
        schema: the columns in Delta's JSON, where the commit changed them or the properties; None = it did not.
        partition_by: columns of partitions, where `schema` is there.
        table_id: of the table, where `schema` is there.
    """

    version: int
    time_ms: int
    operation: str
    files: tuple[TableFile, ...] = ()
    schema: str | None = None
    partition_by: tuple[str, ...] = ()
    table_id: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    def of(self, *changes: Change) -> list[TableFile]:
        """Return the files of some kinds of change that changed data, in the order of their names."""
        return sorted(
            (each for each in self.files if each.change in changes and each.changes_data), key=lambda each: each.path
        )


def read_commit(storage: Storage, version: int) -> DeltaCommit | None:
    """Return a commit; None where the log does not have it yet, or no longer."""
    try:
        data = storage.read(f"{_LOG}/{version:020d}.json")
    except FileNotFoundError:
        return None
    info: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] | None = None
    files = []
    for line in data.splitlines():
        if not line.strip():
            continue
        action = json.loads(line)
        for name, content in action.items():
            if name == "commitInfo":
                info = content
            elif name == "metaData":
                metadata = content
            elif name in _CHANGES:
                files.append(_file(name, content))
    given = {}
    if metadata is not None:
        given = {
            "schema": metadata["schemaString"],
            "partition_by": tuple(metadata["partitionColumns"]),
            "table_id": metadata["id"],
        }
    time_ms = int(info.get("inCommitTimestamp") or info.get("timestamp") or 0)
    return DeltaCommit(version, time_ms, str(info.get("operation", "")), tuple(files), info=info, **given)


def versions(storage: Storage) -> list[int]:
    """Return the versions whose commits the log has, in order."""
    return sorted(int(match[1]) for match in map(_COMMIT.fullmatch, storage.names(_LOG)) if match)


_CHANGES: Mapping[str, Change] = {"add": "insert", "remove": "delete", "cdc": "feed"}


def _file(name: str, content: Mapping[str, Any]) -> TableFile:
    stats = content.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    return TableFile(
        unquote(content["path"]),
        int(content.get("size") or 0),
        dict(content.get("partitionValues") or {}),
        _CHANGES[name],
        content.get("deletionVector") is not None,
        rows,
        bool(content.get("dataChange", True)) or name == "cdc",
    )
