"""Discovery of very many input files, without Spark and without reading them. Arguments: WORKSPACE FOUND FILES.

FOUND gets what it took to take all files, to start again, to see that none is new, and to plan checkpoint after checkpoint: a
JSON object. The folder is made up, so that the figures are those of the source and not of a file system.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.jobs.ledger_life import CountingStorage
from poundlock.connectors.files.source.discovery import DiscoveryLog
from poundlock.connectors.files.source.enumerator import FileEnumerator, Limits
from poundlock.storage import Entry
from poundlock.values import ManualClock

__all__ = ["BYTES", "PER_CHECKPOINT", "file_entry"]

BYTES = 1000  # of a file
PER_CHECKPOINT = 10_000  # files


def file_entry(number: int) -> Entry:
    """Return a file as a store lists it: by name, which is not by age."""
    path = f"dt=2018-12-{number % 28 + 1:02d}/hour={number % 24:02d}/part-{number:012d}.json.gz"
    return Entry(path, BYTES, number * 7919 % 1_000_003)


class Discovery:
    """A watched folder, and a source whose driver starts now and then."""

    def __init__(self, folder: Path, files: int) -> None:
        self.storage, self.files, self.clock = CountingStorage(str(folder)), files, ManualClock(0)
        self.enumerator: FileEnumerator
        self.start()

    def start(self) -> None:
        """Make the source of a new driver."""
        limits = Limits(64 << 20, 1 << 40, PER_CHECKPOINT, lambda path: False)
        self.enumerator = FileEnumerator(
            DiscoveryLog(self.storage), self._look, limits, watch=True, look_every_ms=1, clock=self.clock, extra={}
        )

    def _look(self) -> tuple[str, Iterator[Entry]]:
        return "/in", map(file_entry, range(self.files))

    def look(self) -> None:
        """Look at the folder; the next plan would."""
        self.enumerator.log.add(*self._look(), note_empty=False)


def timed(call: Callable[[], object]) -> float:
    """Return how long a call took, s."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main(workspace: Path, found: Path, files: int) -> None:
    """See above."""
    before = _peak_mb()
    job = Discovery(workspace, files)
    figures = {"discover s": timed(job.look)}
    figures["start s"] = timed(job.start)
    figures["look again s"] = timed(job.look)
    position, plans, largest = job.enumerator.initial(), list[float](), 0
    read = 0
    while True:
        begin = time.perf_counter()
        end = job.enumerator.latest(position)
        splits = job.enumerator.splits(position, end) if end != position else []
        plans.append(time.perf_counter() - begin)
        if end == position:
            break
        read += sum(len(split.payload["parts"]) for split in splits)
        largest = max(largest, len(json.dumps(end)))
        position = end
        job.clock.set(0)  # no look is due
    if read != files:
        raise SystemExit(f"{read} of {files} files were planned")
    figures |= {
        "plan ms": 1000 * sorted(plans)[len(plans) // 2],
        "position bytes": largest,
        "peak MB": _peak_mb() - before,
        "log bytes / file": sum(entry.bytes for entry in job.storage.list("log")) / files,
    }
    found.write_text(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    print(found.read_text(), flush=True)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
