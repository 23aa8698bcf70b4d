"""Produces events at a rate that triples and falls back, into a job whose parallelism follows its lag.

Arguments: SERVERS TOPIC ROOT SECONDS WORKERS. Each of the three parts takes so many seconds. With WORKERS above 0 the job runs on a
standalone cluster of so many, whose executors come and go with its tasks. ROOT/produced gets the number of events, and that of the executors over the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
from tests.support.cluster import StandaloneCluster

from benchmarks.bench import program
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage

__all__ = ["BASE", "PARTITIONS"]

BASE = 500  # events a second: a task's whole time, or half of that of two
PARTITIONS = 8
_STEP_S, _PATIENCE_S = 0.05, 600.0
_LOOKS = 10  # at the executors there are, in each part


class Load:
    """Produces numbered events at a rate that may change."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self.produced = 0

    def run(self, rate: int, seconds: float, job: subprocess.Popen[bytes]) -> None:
        """Produce so many events a second for a time."""
        begun, first = time.monotonic(), self.produced
        while (passed := time.monotonic() - begun) < seconds:
            if (code := job.poll()) is not None:
                raise SystemExit(f"the job ended by itself with {code}")
            while self.produced < first + int(passed * rate):
                event = json.dumps({"number": self.produced}).encode()
                self._producer.produce(self._topic, event, partition=self.produced % PARTITIONS)
                self.produced += 1
            self._producer.poll(0)
            time.sleep(_STEP_S)

    def end(self) -> None:
        """Wait until the broker has all of them."""
        if self._producer.flush(60):
            raise SystemExit("the broker did not take all events")


def _read(checkpoints: Path) -> int:
    ledger = Ledger(LocalStorage(str(checkpoints)))
    newest = ledger.newest()
    if newest is None:
        return 0
    sources = next((record.sources for record in ledger.back(newest) if record.sources), None)
    ends = sources["events"].end if sources else {}
    return sum(offset for offsets in (ends or {}).values() for offset in offsets.values())


def main(servers: str, topic: str, root: Path, seconds: float, workers: int) -> None:
    """See above."""
    stop = root / "stop"
    with ExitStack() as exits:
        master, cluster = "local[*]", None
        if workers:
            cluster = exits.enter_context(StandaloneCluster(workers, cores=2, home=root / "cluster"))
            master = cluster.master
        words = (f"{servers}/{topic}", root / "out", root / "checkpoints", root / "series", stop, master)
        job = subprocess.Popen(program("jobs/autoscale.py", *words), stdin=subprocess.DEVNULL)
        try:
            load = Load(servers, topic)
            deadline = time.monotonic() + _PATIENCE_S
            while not _read(root / "checkpoints"):
                load.run(20, 1, job)
                if time.monotonic() > deadline:
                    raise SystemExit("the job completed no checkpoint")
            executors = []
            for rate in (BASE, 3 * BASE, BASE):
                for _ in range(_LOOKS):
                    load.run(rate, seconds / _LOOKS, job)
                    executors.append(0 if cluster is None else len(cluster.executors()))
            load.end()
            while _read(root / "checkpoints") < load.produced:
                if time.monotonic() > deadline + 4 * seconds or job.poll() is not None:
                    raise SystemExit("the job did not catch up")
                time.sleep(0.5)
            stop.touch()
            if code := job.wait(_PATIENCE_S):
                raise SystemExit(f"the job ended with {code}")
        finally:
            job.kill()
            job.wait()
    (root / "produced").write_text(json.dumps({"events": load.produced, "executors": executors}))


if __name__ == "__main__":
    main(*sys.argv[1:3], Path(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
