"""Kills the active driver of a job again and again while another one stands by, and events are produced at a steady rate.

Arguments: SERVERS TOPIC ROOT KILLS FOLDER, as for `recovery_client`, and so is what FOLDER gets. Each driver is `poundlock run --standby`, and a
new one stands by with its Spark running before the next kill.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.recovery_client import PATIENCE_S, Decisions, Producer, Times, read
from poundlock.storage import open_storage
from poundlock.testing.job_process import JobProcess, end_tagged, new_tag

_JOB = Path(__file__).parent / "jobs/takeover.py"
_SEED = 42
_STOP = b'{"kind": "stop"}'


class Drivers:
    """The drivers of one job, of which one runs it.

    Args:
        servers: host:port.
        topic: is read.
        root: where output and checkpoint are.
        folder: a local one, for logs.
    """

    def __init__(self, servers: str, topic: str, root: str, folder: Path) -> None:
        self._environment = {"TAKEOVER_SERVERS": servers, "TAKEOVER_TOPIC": topic, "TAKEOVER_ROOT": root}
        self._folder, self._tag, self._started = folder, new_tag(), 0

    def start(self) -> JobProcess:
        """Start one more."""
        self._started += 1
        log = self._folder / f"driver-{self._started}.log"
        return JobProcess(_JOB, arguments=["--standby"], environment=self._environment, tag=self._tag, log=log)

    def stand_by(self) -> JobProcess:
        """Start one more, and return it when its Spark runs."""
        driver = self.start()
        warm = driver.wait_line(lambda line: "waits for the job" in str(line.get("message")), seconds=PATIENCE_S)
        if warm is None:
            raise SystemExit(f"nobody stands by:\n{driver.log_tail()}")
        return driver

    def end(self) -> None:
        """End all that is left of them."""
        end_tagged(self._tag, patience_s=0)


def _exit_code(driver: JobProcess) -> Callable[[], int | None]:
    return lambda: driver.exit_code


def main(servers: str, topic: str, root: str, kills: int, folder: Path) -> None:
    """See above."""
    moments = random.Random(_SEED)
    took: list[float] = []
    producer, decisions = Producer(servers, topic), Decisions(f"{root}/checkpoints")
    producer.start()
    drivers = Drivers(servers, topic, root, folder)
    try:
        active = drivers.start()
        newest, _ = decisions.checkpoint(_exit_code(active))
        for _ in range(kills):
            standby = drivers.stand_by()
            newest, _ = decisions.newest(_exit_code(active))
            time.sleep(moments.random())  # anywhere in a checkpoint
            killed = time.time()
            active.kill()
            active = standby
            newest, seen = decisions.checkpoint(_exit_code(active), epoch=newest.epoch + 1)
            took.append((seen - killed) * 1000)
        produced = producer.end()
        while read(newest) < produced:
            newest, _ = decisions.checkpoint(_exit_code(active))
        open_storage(f"{root}/checkpoints").create_exclusive(f"control/requests/{'0' * 32}.json", _STOP)
        if code := active.wait(PATIENCE_S):
            raise SystemExit(f"the job ended with {code} when it was stopped:\n{active.log_tail()}")
    finally:
        drivers.end()
    (folder / "times").write_text(json.dumps(asdict(Times(produced=produced, took_ms=took, parts_ms=[]))))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), Path(sys.argv[5]))
