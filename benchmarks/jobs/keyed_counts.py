"""Counts by key: a few checkpoints bring all keys, the rest change some of them; then the job is started once more.

Arguments: BACKEND KEYS CHANGED CHECKPOINTS WORK, WORK a folder in which `figures` is written: ms of the checkpoints that change
keys, ms of the first one after the second start, bytes of state on disk, and rows counted.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from poundlock import FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.runtime.progress import Progress, StopRequest

DAY_MS = 86_400_000
FILLING = 4


def write(path: Path, keys: list[int], day: int = 0) -> None:
    times = pa.array([day * DAY_MS + i % DAY_MS for i in range(len(keys))], pa.int64())
    pq.write_table(pa.table({"key": pa.array(keys, pa.int64()), "ts": times}), path)


def counts(backend: str, work: Path) -> Job:
    job = Job(
        "counts",
        checkpoint_interval="0 s",
        checkpoint_dir=str(work / "checkpoints"),
        parallelism=2,
        state_backend=backend,
        spark={"spark.sql.shuffle.partitions": "2"},
    )
    source = FileSource(
        str(work / "in"),
        format="parquet",
        schema="key bigint, ts bigint",
        max_files_per_checkpoint=1,
        watch=True,
        discover_every="100 ms",
    )
    windows = (
        job.from_source(source, name="in")
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp_millis(ts)"), name="times"
        )
        .key_by("key")
        .window(TumblingEventTimeWindows("1 d"))
    )
    counted = windows.aggregate("count(*) as n", name="counts").select("key", "n")
    counted.sink_to(FileSink(str(work / "out"), format="json"), name="out")
    return job


def run(backend: str, work: Path, rows: int) -> list[int]:
    """Run the job until it has read so many rows, and return the ms of its checkpoints."""
    took: dict[int, int] = {}
    stop = StopRequest()

    def note(progress: Progress) -> None:
        if progress.checkpoint is not None and progress.last_ms is not None:
            took.setdefault(progress.checkpoint, progress.last_ms)
        if progress.rows_read >= rows:
            stop.stop()

    counts(backend, work).run(on_progress=note, stop=stop)
    return [took[number] for number in sorted(took)]


if __name__ == "__main__":
    backend, keys, changed, checkpoints = sys.argv[1], *map(int, sys.argv[2:5])
    work, rng = Path(sys.argv[5]), random.Random(42)
    (work / "in").mkdir(parents=True)
    for n in range(FILLING):
        write(work / "in" / f"{n:03}.parquet", list(range(n * keys // FILLING, (n + 1) * keys // FILLING)))
    for n in range(FILLING, FILLING + checkpoints):
        write(work / "in" / f"{n:03}.parquet", rng.sample(range(keys), changed))
    first = run(backend, work, keys + changed * checkpoints)
    state = sum(path.stat().st_size for path in (work / "checkpoints/spark/state").rglob("*") if path.is_file())
    write(work / "in" / "900.parquet", rng.sample(range(keys), changed))
    second = run(backend, work, changed)
    for n in (901, 902):  # the next day's rows end the windows of this one
        write(work / "in" / f"{n}.parquet", [0], day=2)
    run(backend, work, 2)
    lines = (line for path in (work / "out").rglob("part-*") for line in path.read_bytes().splitlines())
    figures = {
        "ms": first[FILLING : FILLING + checkpoints],
        "start_ms": second[0],
        "state_bytes": state,
        "rows": sum(json.loads(line)["n"] for line in lines),
    }
    (work / "figures").write_text(json.dumps(figures))
