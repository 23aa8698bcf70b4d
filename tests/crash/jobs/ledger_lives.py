"""One life of a driver without Spark that decides checkpoint after checkpoint over very many partitions, with a sink that has very many
pending files, and rolls now and then, until it is killed. Arguments: CHECKPOINT FOLDER, PER-FILE.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Counts,
    Kind,
    Occasion,
    Participant,
    Prepared,
    Staged,
    Writer,
    WriterContext,
)
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

PARTITIONS, MOVED, GROWTH = 1500, 7, 3
FILES, TOUCHED, ROLL_EVERY = 600, 3, 4


def position(checkpoint: int) -> dict[str, dict[str, int]]:
    """Return where every partition stands behind a checkpoint: some moved in each, and new ones came."""
    offsets = dict.fromkeys(range(PARTITIONS + GROWTH * (checkpoint + 1)), 0)
    for n in range(checkpoint + 1):
        for i in range(MOVED):
            offsets[(n * 31 + i * 13) % PARTITIONS] += n + 1
    return {"t": {str(partition): offset for partition, offset in offsets.items()}}


def pending(steps: int) -> list[JSON]:
    """Return what is pending behind so many checkpoints and rolls: each grew some files, finished one and began one."""
    segments: dict[int, list[JSON]] = {n: [] for n in range(FILES)}
    for step in range(steps):
        for i in range(TOUCHED):
            segments[step + (step * 31 + i * 17) % FILES].append({"path": f".seg-{step}-{i}", "rows": step})
        del segments[step]
        segments[step + FILES] = []
    return [{"name": f"part-{n}", "kind": "lines", "segments": each} for n, each in segments.items()]


class PendingFiles(Participant):
    """Files that are never finished; without a file."""

    kind = Kind.TRANSACTIONAL

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError("nothing is written by tasks here")

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        steps = state.get("steps", -1) + 1
        return Staged({"v": 1, "pending": 0, "steps": steps, "parts": pending(steps)}, [])

    def commit(self, committable: JSON) -> Committed | Aborted:
        raise NotImplementedError("nothing is finished here")


def main(folder: str, per_file: str) -> None:
    storage, clock = LocalStorage(folder), SystemClock()
    with Epoch.claim(storage, clock=clock) as epoch:
        coordinator = Coordinator(
            identity=open_identity(storage, name="lives", clock=clock),
            epoch=epoch,
            ledger=Ledger(storage, per_file=int(per_file)),
            participants={"files": PendingFiles()},
            clock=clock,
        )
        recovery = coordinator.recover()
        before = recovery.sources["in"].end if recovery.sources else position(-1)
        while True:
            n = coordinator.newest.checkpoint + 1
            after = position(n)
            results = TaskResults(prepared=[], counts={"files": Counts()}, rows_read={"in": 0})
            coordinator.checkpoint(n, {"in": SourceRange(before, after)}, lambda directive, results=results: results)
            if n % ROLL_EVERY == 0:
                coordinator.roll(Occasion.ROLL)
            before = after
            print(n, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
