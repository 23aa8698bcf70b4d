"""A job that seals its buckets by the watermark, in lives that are killed; and what a reader may see of it at any moment."""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from poundlock import (
    EventTimeBucketAssigner,
    FileSink,
    FileSource,
    Job,
    RollingPolicy,
    SealedBucket,
    SealedBuckets,
    WatermarkStrategy,
)
from poundlock.config import load_settings
from poundlock.connectors.files.partitions.manifests import BucketManifest, newest_manifest
from poundlock.driver.driver import run
from poundlock.failpoints import ENVIRONMENT
from poundlock.storage import Storage, open_storage
from support.forked_lives import live
from support.in_process import PATCHES, InProcess
from support.partition_lives import marks_before_files

__all__ = ["SealingJob"]

HOURS = (10, 11, 12, 13)
FILES_AN_HOUR = 2
MANIFEST = "_manifest-{version}.json"
_DAY = "2026-01-05"


@dataclass(frozen=True)
class SealingJob:
    """A job that writes rows into buckets of an hour each, a checkpoint for each file of its input.

    Args:
        root: a local folder for input, checkpoints and the table of seals.
        lake: the folder of the buckets, on any store.
        late: what becomes of late rows.
        target_size: of files; "" = as the rolling policy has them.
        environment: what a process needs to work there.
        seed: of the order and sizes of the input.
        more: policies besides a success file and the table of seals.
    """

    root: Path
    lake: str
    late: str
    target_size: str
    format: str
    environment: Mapping[str, str]
    seed: int
    more: Sequence[Callable[[SealedBucket], None]] = ()

    def prepare(self) -> None:
        """Write the input: the hours in order, with some rows of earlier hours in each file."""
        (self.root / "log").mkdir(parents=True)
        for number, hours in enumerate(self._files()):
            rows = [
                {"id": 100 * number + each, "ts": f"{_DAY} {hour}:{number % 60:02}:{each:02}"}
                for each, hour in enumerate(hours)
            ]
            path = self.root / f"log/{number:02d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (1_700_000_000 + number,) * 2)

    def _files(self) -> list[list[int]]:
        """Return the hours of the rows of each file: those of its own hour, and here and there one that comes late."""
        chance = random.Random(self.seed)
        files = []
        for hour in HOURS:
            for _ in range(FILES_AN_HOUR):
                late = [each for each in HOURS if each < hour - 1 and chance.random() < 0.5]
                files.append([*late, *[hour] * chance.randint(1, 4)])
        return files

    def live(self, failpoints: str = "", *, in_order: bool = True) -> int:
        """Live in a process of its own, which is killed at failpoints; return its exit code.

        Args:
            in_order: False seals buckets before their files are visible, as no driver does.
        """
        return live(_live, self, failpoints, in_order)

    @property
    def storage(self) -> Storage:
        """The folder of the buckets."""
        return open_storage(self.lake)

    def manifests(self) -> dict[str, BucketManifest]:
        """Return the newest manifest of each sealed bucket."""
        storage = self.storage
        buckets = {entry.path.rpartition("/")[0] for entry in storage.list() if "/_manifest-" in entry.path}
        found = ((bucket, newest_manifest(storage, bucket, MANIFEST)) for bucket in sorted(buckets))
        return {bucket: each for bucket, each in found if each is not None}

    def outcome(self) -> dict[str, Any]:
        """Return all that a life must come to, however often it was killed: versions with their rows, late rows, and the table."""
        sealed = {
            bucket: (its.version, [[each.version, each.rows, self._ids(each.path)] for each in its.files])
            for bucket, its in self.manifests().items()
        }
        late: dict[str, list[int]] = defaultdict(list)
        for path in self._visible():
            if path.startswith("_late/"):
                late[path.rpartition("/")[0]] += self._ids(path)
        success = sorted(e.path for e in self.storage.list() if e.path.endswith("/_SUCCESS"))
        return {
            "sealed": sealed,
            "late": {bucket: sorted(ids) for bucket, ids in late.items()},
            "success": success,
            "table": self._table(),
            "dead": self._dead(),
        }

    def wrong(self) -> list[str]:
        """Return what a reader must not see at any moment, and sees."""
        found = []
        for bucket, its in self.manifests().items():
            found += [f"{each.path} is not there" for each in its.files if self.storage.stat(each.path) is None]
            named = {each.path for each in its.files}
            if self.late != "reopen":
                more = {path for path in self._visible() if path.startswith(f"{bucket}/")} - named
                found += [f"{path} came into a bucket that is sealed" for path in sorted(more)]
        twice = [id for id, count in Counter(self._all_ids()).items() if count > 1]
        return found + [f"row {id} is in two files" for id in twice]

    def _all_ids(self) -> list[int]:
        ids = []
        for path in self._visible():
            ids += self._ids(path)
        return ids

    def _visible(self) -> list[str]:
        paths = sorted(entry.path for entry in self.storage.list())
        return [path for path in paths if not path.rpartition("/")[2].startswith((".", "_"))]

    def _ids(self, path: str) -> list[int]:
        content = self.storage.read(path)
        if self.format == "parquet":
            return sorted(pq.read_table(io.BytesIO(content))["id"].to_pylist())
        return sorted(json.loads(line)["id"] for line in content.splitlines())

    def _table(self) -> list[tuple[str, int, int]]:
        path = self.root / "seals.db"
        if not path.exists():
            return []
        with sqlite3.connect(path) as table:
            return table.execute("SELECT bucket, version, rows FROM seals ORDER BY 1, 2").fetchall()

    def _dead(self) -> list[int]:
        lines = [
            line
            for path in (self.root / "dead").rglob("*")
            if path.is_file() and not path.name.startswith(".")
            for line in path.read_text().splitlines()
        ]
        return sorted(json.loads(json.loads(line)["value"])["id"] for line in lines)

    def job(self) -> Job:
        """Return the job."""
        table = f"{self.root}/seals.db"

        def row_in_a_table(each: SealedBucket) -> None:
            with sqlite3.connect(table) as rows:
                rows.execute(
                    "CREATE TABLE IF NOT EXISTS seals (bucket TEXT, version INT, rows INT, UNIQUE (bucket, version))"
                )
                rows.execute("INSERT OR IGNORE INTO seals VALUES (?, ?, ?)", (each.bucket, each.version, each.rows))

        late: Any = self.late
        sealed = SealedBuckets(
            allowed_lateness="10 min",
            late=late,
            target_size=self.target_size or None,
            policies=["success-file", row_in_a_table, *self.more],
        )
        job = Job("sealing", checkpoint_dir=f"{self.root}/checkpoint", dead_letters=f"{self.root}/dead")
        source = FileSource(
            f"{self.root}/log", format="json", schema="id int, ts timestamp", max_files_per_checkpoint=1
        )
        rows = job.from_source(source, name="log")
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        timed = rows.assign_timestamps_and_watermarks("ts", strategy, name="time")
        format: Any = self.format
        sink = FileSink(
            self.lake,
            format=format,
            columns=["id"],
            bucket=EventTimeBucketAssigner("ts", "'dt='yyyy-MM-dd'/hour='HH", zone="UTC"),
            rolling=RollingPolicy(on_checkpoint=True),
            sealed=sealed,
        )
        timed.sink_to(sink, name="lake")
        return job


def _live(job: SealingJob, failpoints: str, in_order: bool) -> None:
    os.environ.update(job.environment)
    os.environ[ENVIRONMENT] = failpoints
    os.chdir(job.root)
    for module, name, other in PATCHES:
        setattr(module, name, other)
    settings = load_settings([f"state_dir={job.root}/.state"])
    if in_order:
        run(job.job(), settings=settings, session=InProcess())
        return
    with marks_before_files():
        run(job.job(), settings=settings, session=InProcess())
