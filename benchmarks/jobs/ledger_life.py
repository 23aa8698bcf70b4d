"""A long life of a checkpoint coordinator without Spark. Arguments: CHECKPOINTS BANDS RETENTION_S MARK…, BANDS a file.

BANDS gets, per mark, what the checkpoints before it cost one by one, and what a start, a listing of the newest, a look for an old
one and an audit of the newest cost there: a JSON list. A retention of 0 s keeps all.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from poundlock.audit.audit import audit
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.ledger.records import checkpoint_records
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Counts,
    Kind,
    Occasion,
    Orphan,
    Participant,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.storage import Storage
from poundlock.storage.local import LocalStorage
from poundlock.values import Clock, ManualClock

__all__ = ["STEP_MS", "source_range"]

STEP_MS = 1000  # of the job's clock from one checkpoint to the next
BEGIN_MS = 1_545_184_226_432
PARTITIONS = 3
ROWS = 1000
TASKS = 2
SINKS = ("copy", "alerts")
STARTS = 9
LISTED = 20  # newest decisions of a listing
AUDITED = 50  # newest checkpoints of an audit


class MemorySink:
    """What was committed, in memory: every committable once, or the run is wrong."""

    kind = Kind.TRANSACTIONAL

    def __init__(self) -> None:
        self.committed = 0

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError("nothing is written by tasks here")

    def directive(self, state: JSON) -> JSON:
        return {}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        pass

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return Staged({"v": 1, "pending": []}, [dict(item.payload) for item in prepared])

    def next_roll_ms(self, state: JSON) -> int | None:
        return None

    def commit(self, committable: JSON) -> Committed | Aborted:
        self.committed += 1
        return Committed({"transaction": committable["transaction"]})

    def abort(self, prepared: Prepared) -> None:
        raise RuntimeError("nothing fails here")

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return []


class CountingStorage(LocalStorage):
    """Local files, with a count of the calls that the storage of a cluster would have to answer."""

    calls = 0

    def create_exclusive(self, path: str, data: bytes) -> bool:
        self.calls += 1
        return super().create_exclusive(path, data)

    def settle(self, path: str) -> None:
        self.calls += 1
        super().settle(path)

    def read(self, path: str) -> bytes:
        self.calls += 1
        return super().read(path)

    def open(self, path: str) -> BinaryIO:
        self.calls += 1
        return super().open(path)

    def stat(self, path: str) -> Any:
        self.calls += 1
        return super().stat(path)

    def delete(self, path: str) -> bool:
        self.calls += 1
        return super().delete(path)

    def names(self, folder: str) -> Sequence[str]:
        self.calls += 1
        return super().names(folder)


def source_range(checkpoint: int) -> tuple[JSON | None, JSON]:
    """Return what a checkpoint reads: the offsets before it and after it."""
    before, after = (
        {"events": {str(p): 1_000_000 + n * ROWS for p in range(PARTITIONS)}} for n in (checkpoint, checkpoint + 1)
    )
    return (before if checkpoint else None), after


class Drivers:
    """The drivers of one job, one after the other, as their coordinators."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        self._epoch: Epoch | None = None

    def stop(self) -> None:
        """End the driver that there is, if there is one."""
        if self._epoch is not None:
            self._epoch.release()

    def start(self, sinks: Mapping[str, Participant], retention_ms: int | None = None) -> Coordinator:
        """Return the coordinator of a new one, which has recovered nothing yet."""
        identity = open_identity(self._storage, name="life", clock=self._clock)
        self._epoch = Epoch.claim(self._storage, clock=self._clock)
        return Coordinator(
            identity=identity,
            epoch=self._epoch,
            ledger=Ledger(self._storage, retention_ms=retention_ms),
            participants=sinks,
            clock=self._clock,
        )


class Life:
    """A job whose driver starts now and then.

    Args:
        folder: its checkpoint folder.
        retention_ms: of the ledger; None = for ever.
    """

    def __init__(self, folder: Path, retention_ms: int | None) -> None:
        self.storage = CountingStorage(str(folder))
        self.clock = ManualClock(BEGIN_MS)
        self.sinks = {name: MemorySink() for name in SINKS}
        self._retention_ms = retention_ms
        self._drivers = Drivers(self.storage, self.clock)
        self.checkpoints = 0
        self.coordinator: Coordinator

    def start(self) -> float:
        """Start the driver anew; return how long it took, ms."""
        self._drivers.stop()
        begin = time.perf_counter()
        self.coordinator = self._drivers.start(self.sinks, self._retention_ms)
        recovery = self.coordinator.recover()
        took = (time.perf_counter() - begin) * 1000
        if recovery.checkpoint != self.checkpoints - 1:
            raise SystemExit(f"recovered checkpoint {recovery.checkpoint} of {self.checkpoints}")
        return took

    def take(self) -> float:
        """Take the next checkpoint; return how long it took, ms."""
        n = self.checkpoints
        self.clock.set(BEGIN_MS + n * STEP_MS)
        start, end = source_range(n)
        begin = time.perf_counter()
        self.coordinator.checkpoint(n, {"events": SourceRange(start, end, {"topic_id": "x" * 22})}, self._tasks)
        self.checkpoints += 1
        return (time.perf_counter() - begin) * 1000

    def list_newest(self) -> None:
        """Read the newest decisions, as a listing does."""
        ledger = Ledger(self.storage)
        newest = ledger.newest()
        assert newest is not None
        if len([*islice(ledger.back(newest), LISTED)]) != LISTED:
            raise SystemExit("the newest decisions are not there")

    def find(self) -> None:
        """Find the middle one of the checkpoints that are kept."""
        ledger = Ledger(self.storage)
        wanted = (ledger.checkpoint_of(ledger.first()) + self.checkpoints) // 2
        if checkpoint_records(ledger, wanted)[0].checkpoint != wanted:
            raise SystemExit(f"checkpoint {wanted} was not found")

    def audit(self) -> None:
        """Audit the newest checkpoints; what sinks hold is left out."""
        first = self.checkpoints - AUDITED
        report = audit(Ledger(self.storage), dict.fromkeys(SINKS), first=first)
        if not report.agrees or (report.first, report.last) != (first, self.checkpoints - 1):
            raise SystemExit(f"the audit found {report.to_json()}")

    def _tasks(self, directive: SinkDirectives) -> TaskResults:
        n = directive.checkpoint
        prepared = [
            Prepared(
                sink, task, {"v": 1, "transaction": f"poundlock.{sink}.{task}@{n}:0", "rows": ROWS, "bytes": 95_000}
            )
            for sink in SINKS
            for task in range(TASKS)
        ]
        counts = {sink: Counts(read=ROWS * TASKS, written=ROWS * TASKS) for sink in SINKS}
        return TaskResults(prepared=prepared, counts=counts, rows_read={"events": ROWS * TASKS})

    def check(self) -> None:
        """Exit unless every sink was told to commit everything, once."""
        for name, sink in self.sinks.items():
            if sink.committed != self.checkpoints * TASKS:
                raise SystemExit(f"{sink.committed} commits of {self.checkpoints * TASKS} in {name}")


def band(life: Life, count: int, folder: Path) -> dict[str, float]:
    """Take so many checkpoints, then start a few times; return what one cost."""
    calls, cpu_s = life.storage.calls, time.process_time()
    took = [life.take() for _ in range(count)]
    cpu_ms, calls = (time.process_time() - cpu_s) * 1000, life.storage.calls - calls
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return {
        "checkpoint": life.checkpoints,
        "ms": round(statistics.median(took), 3),
        "longest_ms": round(max(took), 1),
        "cpu_ms": round(cpu_ms / count, 3),
        "calls": round(calls / count, 3),
        "files": len(sizes),
        "bytes": sum(sizes),
        # The quickest: a start is a few ms, and anything else that runs makes one longer.
        "start_ms": round(min(life.start() for _ in range(STARTS)), 2),
        "record_bytes": newest_bytes(life.storage),
        **{f"{call.__name__}_ms": quickest_ms(call) for call in (life.list_newest, life.find, life.audit)},
    }


def newest_bytes(storage: LocalStorage) -> int:
    """Return the size of the newest checkpoint's record."""
    ledger = Ledger(storage)
    newest = ledger.newest()
    assert newest is not None
    number = next(each.number for each in ledger.back(newest) if each.occasion == "checkpoint")
    entry = storage.stat(record_path(number))
    return 0 if entry is None else entry.bytes


def quickest_ms(call: Callable[[], None]) -> float:
    """Return the least time that a call took, ms."""
    took = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        call()
        took.append((time.perf_counter() - begin) * 1000)
    return round(min(took), 2)


def main(folder: Path, bands: Path, retention_s: int, marks: Sequence[int]) -> None:
    """See above. A band is a thousand checkpoints at least: whole rounds of archiving."""
    logging.basicConfig(level=logging.WARNING)
    life = Life(folder, retention_s * 1000 or None)
    life.start()
    width, found = max(marks[0], 1000), []
    for mark in marks:
        while life.checkpoints < mark - width:
            life.take()
        found.append(band(life, mark - life.checkpoints, folder))
        print(json.dumps(found[-1]), flush=True)
    life.check()
    bands.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(word) for word in sys.argv[4:]])
