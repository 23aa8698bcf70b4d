"""One life of a driver without Spark and without sinks that decides checkpoint after checkpoint over very many partitions, until
it is killed. Arguments: CHECKPOINT FOLDER, PER-FILE.
"""

from __future__ import annotations

import sys

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

PARTITIONS, MOVED, GROWTH = 1500, 7, 3


def position(checkpoint: int) -> dict[str, dict[str, int]]:
    """Return where every partition stands behind a checkpoint: some moved in each, and new ones came."""
    offsets = dict.fromkeys(range(PARTITIONS + GROWTH * (checkpoint + 1)), 0)
    for n in range(checkpoint + 1):
        for i in range(MOVED):
            offsets[(n * 31 + i * 13) % PARTITIONS] += n + 1
    return {"t": {str(partition): offset for partition, offset in offsets.items()}}


def main(folder: str, per_file: str) -> None:
    storage, clock = LocalStorage(folder), SystemClock()
    with Epoch.claim(storage, clock=clock) as epoch:
        coordinator = Coordinator(
            identity=open_identity(storage, name="lives", clock=clock),
            epoch=epoch,
            ledger=Ledger(storage, per_file=int(per_file)),
            participants={},
            clock=clock,
        )
        recovery = coordinator.recover()
        before = recovery.sources["in"].end if recovery.sources else position(-1)
        while True:
            n = coordinator.newest.checkpoint + 1
            after = position(n)
            results = TaskResults(prepared=[], counts={}, rows_read={"in": n})
            coordinator.checkpoint(n, {"in": SourceRange(before, after)}, lambda directive, results=results: results)
            before = after
            print(n, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
