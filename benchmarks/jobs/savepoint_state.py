"""Rows at a rate into windows whose state has a given size, with savepoints on the way. Arguments: KEYS RATE CHECKPOINTS OUT RESULT.

Each key's state is half a kilobyte that does not compress well. When every key has been seen, the rows go to a thousand keys.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from poundlock import DatagenSource, FileSink, Job, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests

_HOT = 1_000
_BASE, _SAVEPOINTS = 12, 3
_PAYLOAD = "concat_ws('', transform(sequence(1, 32), j -> hex(xxhash64(key, j))))"
TAKEN = re.compile(r"checkpoints waited ([0-9]+) ms of ([0-9]+) ms")


def job(keys: int, rate: int, checkpoints: str, out: str) -> Job:
    made = Job("state", checkpoint_interval="1 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    rows = made.from_source(
        DatagenSource("n bigint", fields={"n": "sequence"}, rate=rate, rows_per_checkpoint=500_000), name="rows"
    )
    keyed = rows.select(
        f"if(n < {keys}, n, n % {_HOT}) as key", f"n < {keys} as first", "timestamp_seconds(0) as at"
    ).select("key", "at", f"if(first, {_PAYLOAD}, null) as payload")
    counts = (
        keyed.assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at"), name="time"
        )
        .key_by("key")
        .window(TumblingEventTimeWindows("1 h"))
        .aggregate("count(*) as n", "max(payload) as payload", name="state")
        .select("cast(concat(key, payload) as binary) as line")
    )
    counts.sink_to(FileSink(out, row="line"), name="out")
    return made


class Watch:
    """Waits until all keys are in, takes savepoints between ordinary checkpoints, and notes how long everything took."""

    def __init__(self, keys: int, rate: int, directory: str) -> None:
        self.keys, self.rate, self.directory = keys, rate, directory
        self.requests, self.stop = Requests(), StopRequest()
        self.ends: list[tuple[float, int]] = []  # when a checkpoint was done (s, monotonic), and how long it took, ms
        self.said: list[str] = []
        self.state_bytes = 0
        self.rows = 0
        self._newest: int | None = None

    def told(self, progress: Progress) -> None:
        if progress.message:
            self.said.append(progress.message)
        self.state_bytes = progress.state_bytes or self.state_bytes
        self.rows = progress.rows_read
        if progress.checkpoint != self._newest and progress.last_ms is not None:
            self._newest = progress.checkpoint
            self.ends.append((time.monotonic(), progress.last_ms))

    def checkpoints(self, count: int) -> list[tuple[float, int]]:
        first = len(self.ends)
        while len(self.ends) < first + count:
            time.sleep(0.02)
        return self.ends[first : first + count]

    def measured(self, checkpoints: int) -> float:
        """Return the rows a second over so many checkpoints."""
        rows, at = self.rows, time.monotonic()
        self.checkpoints(checkpoints)
        return (self.rows - rows) / (time.monotonic() - at)

    def work(self, result: Path) -> None:
        while self.rows < self.keys + 200_000:
            time.sleep(0.1)
        while self.measured(5) > 1.2 * self.rate:
            pass  # it catches up
        first_rows, first_at = self.rows, time.monotonic()
        usual = self.checkpoints(_BASE)
        rate = (self.rows - first_rows) / (time.monotonic() - first_at)
        pauses, took, gaps = [], [], []
        for _ in range(_SAVEPOINTS):
            before = self.ends[-1][0]
            made = self.requests.trigger("savepoint", directory=self.directory)
            made.wait(600)
            after = [end for end, _ in self.checkpoints(2) if end > before]
            gaps.append((after[0] - before) * 1000)
            if made.failure is not None:
                raise SystemExit(str(made.failure))
            found = next(found for found in map(TAKEN.search, reversed(self.said)) if found)
            pauses.append(int(found[1]))
            took.append(int(found[2]))
            self.checkpoints(3)
        path = Path(str(made.location))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        value: dict[str, Any] = {
            "rows": self.rows,
            "rows_per_s": rate,
            "state_bytes": self.state_bytes,
            "savepoint_bytes": size,
            "checkpoint_ms": statistics.median(ms for _, ms in usual),
            "pause_ms": statistics.median(pauses),
            "savepoint_ms": statistics.median(took),
            "pause_max_ms": max(pauses),
        }
        result.write_text(json.dumps(value))
        self.stop.cancel()


if __name__ == "__main__":
    keys, rate, checkpoints, out, result = sys.argv[1:]
    watch = Watch(int(keys), int(rate), f"{checkpoints}-savepoints")
    threading.Thread(target=watch.work, args=(Path(result),), daemon=True).start()
    print(
        run(
            job(int(keys), int(rate), checkpoints, out),
            on_progress=watch.told,
            stop=watch.stop,
            requests=watch.requests,
        )
    )
