"""A driver without Spark that stands by on a checkpoint folder and, when it is its turn, decides checkpoint after checkpoint until it is killed.

Arguments: CHECKPOINT FOLDER, LEASE in seconds. It prints "active EPOCH" when its turn has come, and ends with 5 when it was succeeded.
"""

from __future__ import annotations

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
from poundlock.driver.standby.watch import ActiveDriver, Vacant
from poundlock.errors import FencedError
from poundlock.storage import Storage, open_storage
from poundlock.values import SystemClock

_FENCED = 5
_LOOK_S = 0.2


def turn(storage: Storage) -> Epoch:
    """Return the epoch of this driver once nobody runs the job and it was the first to see so."""
    active = ActiveDriver(storage=storage)
    while True:
        sight = active.look()
        if isinstance(sight, Vacant):
            try:
                return Epoch.claim(storage, clock=SystemClock(), succeeds=sight.succeeds)
            except EpochTaken:
                active = ActiveDriver(storage=storage)
        time.sleep(_LOOK_S)


def main(folder: str, lasts_s: str) -> int:
    """See above; return the exit code."""
    storage, clock = open_storage(folder), SystemClock()
    with turn(storage) as epoch:
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
