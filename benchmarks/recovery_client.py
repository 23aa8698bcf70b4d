"""Kills the driver of a job again and again and starts the next at once, while events are produced at a steady rate.

Arguments: SERVERS TOPIC ROOT KILLS FOLDER. The job writes to ROOT/out and keeps its checkpoint in ROOT/checkpoints, on any
storage; FOLDER, on the local disk, gets the file "times", whose form is that of `Times`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bench import program
from benchmarks.jobs.life import durations_ms
from benchmarks.latency_client import SteadyEvents
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.storage import open_storage

__all__ = ["PATIENCE_S", "Decisions", "Producer", "Times", "read"]

PATIENCE_S = 120.0
_LOOK_S = 0.02
_BETWEEN, _SEED = 5, 42


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """What a run of the client notes.

    Args:
        produced: how many events there were, numbered from 0.
        took_ms: for each kill, from the signal to when the next driver's first checkpoint was in the ledger.
        parts_ms: for each kill, how long each part of the next driver's start took, by name; none of those that stood by.
    """

    produced: int
    took_ms: list[float]
    parts_ms: list[dict[str, float]]


class Life:
    """One process of the job.

    Args:
        place: SERVERS/TOPIC.
        root: where output and checkpoint are.
        folder: a local one.
        number: how many there were before.
    """

    def __init__(self, place: str, root: str, folder: Path, number: int) -> None:
        self._parts, self._stop = folder / f"parts-{number}", folder / "stop"
        words = (place, f"{root}/out", f"{root}/checkpoints", self._parts, self._stop)
        self.process = subprocess.Popen(program("jobs/recovery.py", *words), stdin=subprocess.DEVNULL)

    def parts_ms(self, killed: float) -> dict[str, float]:
        """Return how long each part of the start took, the first of them from the death of the one before."""
        return durations_ms(killed, json.loads(self._parts.read_text()))

    def stop(self) -> None:
        """Let it end in order."""
        self._stop.touch()
        if code := self.process.wait(PATIENCE_S):
            raise SystemExit(f"the job ended with {code} when it was stopped")


class Decisions:
    """The checkpoints in the ledger of a running job, one after the other as they are decided.

    Args:
        folder: the job's checkpoint folder, on any storage.
    """

    def __init__(self, folder: str) -> None:
        self._storage = open_storage(folder)
        self._ledger = Ledger(self._storage)
        self._next = 0

    def checkpoint(self, exit_code: Callable[[], int | None], *, epoch: int = 0) -> tuple[Decision, float]:
        """Return the next one, and when it was seen, seconds since 1970.

        Args:
            exit_code: of what is to decide it; None = it lives.
            epoch: leave out those of an older epoch.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self._storage.stat(record_path(self._next)) is None:
                if (code := exit_code()) is not None:
                    raise SystemExit(f"the job ended by itself with {code}")
                time.sleep(_LOOK_S)
                continue
            seen = time.time()
            decision = self._ledger.read(self._next)
            self._next += 1
            if decision.occasion == "checkpoint" and decision.epoch >= epoch:
                return decision, seen
        raise SystemExit(f"no checkpoint in {PATIENCE_S:.0f} s")

    def newest(self, exit_code: Callable[[], int | None]) -> tuple[Decision, float]:
        """Return the next one that is decided from now on, and when it was seen; see `checkpoint`."""
        known = self._ledger.newest()
        self._next = max(self._next, 0 if known is None else known.number + 1)
        return self.checkpoint(exit_code)


class Producer(threading.Thread):
    """Produces events until it is ended.

    Args:
        servers: host:port.
        topic: gets them.
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._events = SteadyEvents(servers, topic)
        self._ended = threading.Event()

    def run(self) -> None:
        """Produce."""
        while not self._ended.is_set():
            self._events.step()

    def end(self) -> int:
        """Produce no more; return how many there were."""
        self._ended.set()
        self.join()
        return self._events.end()


def read(decision: Decision) -> int:
    """Return how many events were read up to the end of a checkpoint of a job with one topic."""
    (span,) = decision.sources.values()
    ((_, offsets),) = span.end.items()
    return sum(offsets.values())


def main(servers: str, topic: str, root: str, kills: int, folder: Path) -> None:
    """See above."""
    moments = random.Random(_SEED)
    took: list[float] = []
    parts: list[dict[str, float]] = []
    producer = Producer(servers, topic)
    producer.start()
    place, decisions = f"{servers}/{topic}", Decisions(f"{root}/checkpoints")
    life = Life(place, root, folder, 0)
    try:
        newest, _ = decisions.checkpoint(life.process.poll)
        for number in range(1, kills + 1):
            for _ in range(_BETWEEN):
                newest, _ = decisions.checkpoint(life.process.poll)
            time.sleep(moments.random())  # anywhere in a checkpoint
            killed, dead = time.time(), life.process
            dead.kill()
            life = Life(place, root, folder, number)
            dead.wait()
            newest, seen = decisions.checkpoint(life.process.poll, epoch=newest.epoch + 1)
            took.append((seen - killed) * 1000)
            decisions.checkpoint(life.process.poll)  # the one before is complete
            parts.append(life.parts_ms(killed))
        produced = producer.end()
        while read(newest) < produced:
            newest, _ = decisions.checkpoint(life.process.poll)
        life.stop()
    finally:
        life.process.kill()
        life.process.wait()
    times = Times(produced=produced, took_ms=took, parts_ms=parts)
    (folder / "times").write_text(json.dumps(asdict(times)))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), Path(sys.argv[5]))
