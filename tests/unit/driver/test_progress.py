"""What a watcher is told: the newest of everything, and an end that stays the end."""

from __future__ import annotations

import threading
import time

import pytest

from poundlock.checkpoint.participant import Counts
from poundlock.driver.progress import Progress, State, Tracker
from poundlock.metrics.timeline import UnderWay


def test_counts_add_up_over_checkpoints() -> None:
    told: list[Progress] = []
    tracker = Tracker(told.append)
    tracker.state("RUNNING")
    tracker.checkpoint(0, 10, {"out": Counts(read=10, written=9, filtered=1)}, 2, 5)
    tracker.rolled(1)
    tracker.checkpoint(1, 5, {"out": Counts(read=5, written=5)}, 0, 7)
    newest = told[-1]
    assert (newest.checkpoint, newest.rows_read, newest.rows_written, newest.filtered) == (1, 15, 14, 1)
    assert (newest.files_finished, newest.last_ms) == (3, 7)


@pytest.mark.parametrize("end", ["CANCELED", "FINISHED", "FAILED"])
def test_a_checkpoint_that_was_under_way_does_not_bring_an_ended_job_back(end: State) -> None:
    """Its callback runs on in a thread of Spark's for a moment; the registry takes the newest state for the last word."""
    told: list[Progress] = []
    tracker = Tracker(told.append)
    tracker.state("RUNNING")
    tracker.state(end)
    tracker.checkpoint(0, 10, {"out": Counts(read=10, written=10)}, 0, 5)
    assert told[-1].state == end


def test_threads_that_tell_at_once_lose_nothing() -> None:
    tracker, together = Tracker(lambda progress: time.sleep(0)), threading.Barrier(2)

    def complete() -> None:
        together.wait()
        for number in range(300):
            tracker.checkpoint(number, 1, {}, 0, 1)

    thread = threading.Thread(target=complete)
    thread.start()
    together.wait()
    for number in range(300):
        tracker.under_way((UnderWay(number, "run", number),))
        tracker.lag(number)
    thread.join()
    assert tracker.progress.rows_read == 300
