"""A script that commits partitions of files by the watermark, in lives that are killed; and what a reader may see of it at any moment."""

from __future__ import annotations

import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from poundlock.connectors.files.sink.sink import FileSink
from poundlock.storage import Storage, open_storage
from support.forked_lives import live
from support.sql_lives import life

__all__ = ["PartitionJob", "marks_before_files"]

HOURS = ("10", "11", "12", "13")
FILES_AN_HOUR = 3
_DAY = "2026-01-05"


@dataclass(frozen=True)
class PartitionJob:
    """A job that copies lines into partitions of an hour each, a checkpoint for each file of its input.

    Args:
        root: a local folder for script, input and checkpoints.
        lake: the folder of the partitions, on any store.
        environment: what a process needs to work there.
    """

    root: Path
    lake: str
    format: str
    environment: Mapping[str, str]

    def prepare(self) -> None:
        """Write the input: the hours in order, and the files of each hour one after the other."""
        (self.root / "log").mkdir(parents=True)
        for number, hour in enumerate(hour for hour in HOURS for _ in range(FILES_AN_HOUR)):
            minute = number % FILES_AN_HOUR
            rows = [{"id": 10 * number + each, "ts": f"{_DAY} {hour}:0{minute}:0{each}"} for each in range(2)]
            path = self.root / f"log/{number:02d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (1_700_000_000 + number,) * 2)

    @property
    def script(self) -> str:
        """The script: part files stay open until their partition is committed."""
        return f"""
            CREATE TABLE log (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
            WITH ('connector' = 'filesystem', 'path' = '{self.root}/log', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');
            CREATE TABLE lake (id INT, dt STRING, hr STRING) PARTITIONED BY (dt, hr)
            WITH ('connector' = 'filesystem', 'path' = '{self.lake}', 'format' = '{self.format}',
                  'sink.rolling-policy.rollover-interval' = '1 d', 'sink.rolling-policy.inactivity-interval' = '1 d',
                  'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 h',
                  'partition.time-extractor.timestamp-pattern' = '$dt $hr:00:00',
                  'sink.partition-commit.policy.kind' = 'success-file');
            INSERT INTO lake SELECT id, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH') FROM log;
        """

    @property
    def expected(self) -> dict[str, list[int]]:
        """The ids of each partition, once all is there."""
        ids: defaultdict[str, list[int]] = defaultdict(list)
        for number, hour in enumerate(hour for hour in HOURS for _ in range(FILES_AN_HOUR)):
            ids[f"dt={_DAY}/hr={hour}"] += [10 * number, 10 * number + 1]
        return dict(ids)

    def live(self, failpoints: str = "", *, in_order: bool = True) -> int:
        """Live in a process of its own, which is killed at failpoints; return its exit code.

        Args:
            in_order: False commits partitions before their files, as no driver does.
        """
        return live(_live, str(self.root), self.script, failpoints, dict(self.environment), in_order)

    @property
    def storage(self) -> Storage:
        """The folder of the partitions."""
        return open_storage(self.lake)

    def committed(self) -> set[str]:
        """Return the partitions that have a success file."""
        return {path.rpartition("/")[0] for path in self._paths() if path.endswith("/_SUCCESS")}

    def rows(self) -> dict[str, list[int]]:
        """Return the ids in each partition's files."""
        ids: dict[str, list[int]] = defaultdict(list)
        for path in self._paths():
            folder, _, name = path.rpartition("/")
            if not name.startswith((".", "_")):
                ids[folder] += self._ids(self.storage.read(path))
        return {folder: sorted(each) for folder, each in sorted(ids.items())}

    def incomplete(self) -> dict[str, list[int]]:
        """Return the partitions that have a success file and not all of their rows: none, at any moment."""
        committed = self.committed()
        rows = self.rows() if committed else {}
        return {each: rows.get(each, []) for each in sorted(committed) if rows.get(each) != self.expected[each]}

    def _paths(self) -> list[str]:
        return [entry.path for entry in self.storage.list()]

    def _ids(self, content: bytes) -> list[int]:
        if self.format == "parquet":
            ids: list[int] = pq.read_table(io.BytesIO(content))["id"].to_pylist()
            return ids
        return [json.loads(line)["id"] for line in content.splitlines()]


@contextmanager
def marks_before_files() -> Iterator[None]:
    """Have what marks a partition or a bucket committed before its files: the control that fails."""
    stage = FileSink._staged

    def marks_first(self: FileSink, *arguments: Any) -> Any:
        staged = stage(self, *arguments)
        return type(staged)(staged.state, sorted(staged.committables, key=lambda each: "mark" not in each))

    with (
        mock.patch.object(FileSink, "comes_behind", return_value=False),
        mock.patch.object(FileSink, "_staged", marks_first),
    ):
        yield


def _live(root: str, script: str, failpoints: str, environment: dict[str, str], in_order: bool) -> None:
    os.environ.update(environment)
    if in_order:
        life(root, script, failpoints)
        return
    with marks_before_files():
        life(root, script, failpoints)
