"""A driver without Spark that stands by on a checkpoint folder and, when it is its turn, decides checkpoint after checkpoint until it is killed.

Arguments: CHECKPOINT FOLDER, LEASE in seconds, and a file whose appearance it waits for before it looks at anything, so that several begin at
the same moment. It prints "ready", "stands by" when another one is active, "active EPOCH" when its turn has come, and ends with 5 when it was
succeeded.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch, EpochTaken
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.driver.standby.lease import LeaseKeeper
from poundlock.driver.standby.watch import ActiveDriver, Alive, Vacant
from poundlock.errors import FencedError
from poundlock.storage import Storage, open_storage
from poundlock.values import SystemClock

_FENCED = 5
_LOOK_S = 0.2


def turn(storage: Storage, lease_ms: int) -> Epoch:
    """Return the epoch of this driver once nobody runs the job and it was the first to see so."""
    active, waits = ActiveDriver(storage=storage), False
    while True:
        sight = active.look()
        if isinstance(sight, Alive) and not waits:
            waits = True
            print("stands by", flush=True)
        if isinstance(sight, Vacant):
            try:
                return Epoch.claim(storage, clock=SystemClock(), succeeds=sight.succeeds, lease_ms=lease_ms)
            except EpochTaken:
                active = ActiveDriver(storage=storage)
        time.sleep(_LOOK_S)


def main(folder: str, lasts_s: str, start: str = "") -> int:
    """See above; return the exit code."""
    storage, clock = open_storage(folder), SystemClock()
    print("ready", flush=True)
    while start and not os.path.exists(start):
        time.sleep(0.001)
    with turn(storage, round(float(lasts_s) * 1000)) as epoch:
        lease = LeaseKeeper(storage=storage, epoch=epoch, lasts=timedelta(seconds=float(lasts_s)))
        lease.start()
        print("active", epoch.number, flush=True)
        identity = open_identity(storage, name="standby", clock=clock)
        coordinator = Coordinator(identity=identity, epoch=epoch, ledger=Ledger(storage), participants={}, clock=clock)
        try:
            coordinator.recover()
            while True:
                n = coordinator.newest.checkpoint + 1
                results = TaskResults(prepared=[], counts={}, rows_read={"in": 1})
                coordinator.checkpoint(n, {"in": SourceRange(n, n + 1)}, lambda _, results=results: results)
        except FencedError:
            return _FENCED
        finally:
            lease.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
