"""Partitions of files that are committed, in a script on Spark: by the watermark, with a function of the script's own, and through a death."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint

pytestmark = pytest.mark.engine

SCRIPT = """
CREATE TABLE log (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'log', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');
CREATE TABLE lake (id INT, n BIGINT, dt STRING) PARTITIONED BY (dt)
WITH ('connector' = 'filesystem', 'path' = 'lake', 'format' = 'parquet',
      'partition.time-extractor.kind' = 'custom', 'partition.time-extractor.class' = 'own.time_of',
      'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 d',
      'sink.partition-commit.policy.kind' = 'success-file,custom', 'sink.partition-commit.policy.class' = 'own.notify');
INSERT INTO lake SELECT id, COUNT(*), DATE_FORMAT(window_start, 'yyyyMMdd')
FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, id;
"""
OWN = """
from datetime import datetime
from pathlib import Path


def time_of(keys, values):
    return datetime.strptime(dict(zip(keys, values))["dt"], "%Y%m%d")


def notify(partition):
    files = sorted(path.suffix for path in Path(partition.path).iterdir())
    with open("notified.txt", "a") as lines:
        lines.write(f"{partition.spec['dt']} {files}\\n")
"""


def test_partitions_are_committed_behind_windows_whenever_the_process_dies(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for number, time in enumerate(("05 10:00:00", "05 10:30:00", "05 23:00:00", "06 01:00:00", "07 02:00:00")):
        path = tmp_path / f"log/{number}.json"
        path.write_text(json.dumps({"id": 1, "ts": f"2026-01-{time}"}) + "\n")
        os.utime(path, (1_700_000_000 + number,) * 2)
    (tmp_path / "script.sql").write_text(SCRIPT)
    (tmp_path / "own.py").write_text(OWN)
    for death, code in ((f"{Failpoint.SINK_COMMITTED.value}:kill@2", -9), ("", 0)):
        command = [sys.executable, "-m", "poundlock", "sql", "script.sql", "-D", "state_dir=state"]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "POUNDLOCK_FAILPOINTS": death}, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr[-2000:]
    lake = tmp_path / "lake"
    partitions = {path.name: sorted(each.suffix for each in path.iterdir()) for path in lake.iterdir()}
    assert sorted(partitions) == ["dt=20260105", "dt=20260106", "dt=20260107"]
    assert all("" in suffixes for suffixes in partitions.values()), partitions  # _SUCCESS has none
    notified = (tmp_path / "notified.txt").read_text().splitlines()
    assert sorted({line.split()[0] for line in notified}) == ["20260105", "20260106", "20260107"]
    for line in notified:
        day, files = line.split(" ", 1)
        assert files == str(partitions[f"dt={day}"]), "it was called before all files of the partition were there"
