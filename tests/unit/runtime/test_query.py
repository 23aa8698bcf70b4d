"""When checkpoints begin: the interval lies between those that are taken, never between those that were decided before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock import DatagenSource
from poundlock.checkpoint.decision import SourceRange
from poundlock.runtime.progress import StopRequest
from poundlock.runtime.query import Query, QueryStopped

HOUR = timedelta(hours=1)


class Coordinator:
    """Takes checkpoints of which so many are decided already."""

    def __init__(self, decided: int) -> None:
        self.lock = threading.RLock()
        self.sources: dict[str, Any] = {}
        self.newest = SimpleNamespace(checkpoint=decided)
        self.taken: list[int] = []

    def decided(self, n: int) -> dict[str, Any] | None:
        return {} if n <= self.newest.checkpoint else None

    def checkpoint(self, n: int, ranges: Any, run: Callable[[Any], Any]) -> Any:
        replayed = n <= self.newest.checkpoint
        run({"decided": replayed})
        self.taken.append(n)
        return SimpleNamespace(files_made=0, replayed=replayed, decision=SimpleNamespace(sinks={}))


class Planner:
    """Has one source with something new at every look."""

    names = ("made",)

    def ranges(self) -> dict[str, Any]:
        return {"made": SourceRange(0, 1)}

    def splits(self, name: str, span: SourceRange) -> list[Any]:
        return []

    def committed(self) -> None:
        pass

    def finished(self, name: str) -> bool:
        return False


def query(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Query:
    made: Any = Query(
        plan=SimpleNamespace(
            job=SimpleNamespace(name="made"),
            only_split=True,
            bounded=False,
            stateless=True,
            timed=False,
            shared={},
            hosted=False,
        ),  # type: ignore[arg-type]
        lowered=SimpleNamespace(times=(), untimed=(), ticks=False),  # type: ignore[arg-type]
        sources={"made": DatagenSource("n int")},
        spark_log=SimpleNamespace(
            planned=lambda n: {"made": {"offset": n + 1}}, planned_before=lambda n: {}, check_gap=lambda n: None
        ),  # type: ignore[arg-type]
        checkpoint_path="",
        coordinator=coordinator,  # type: ignore[arg-type]
        tracker=SimpleNamespace(checkpoint=lambda *a: None),  # type: ignore[arg-type]
        planner=Planner(),  # type: ignore[arg-type]
        interval=HOUR,
        clock=None,  # type: ignore[arg-type]
    )
    monkeypatch.setattr(made._carrying, "_collect", lambda *a: None)
    return made  # type: ignore[no-any-return]


def test_old_batches_go_by_without_waiting_and_a_wait_ends_with_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's log was set back, or lost: all batches since come again, and thousands of intervals would be days."""
    coordinator = Coordinator(decided=4)
    made = query(coordinator, monkeypatch)
    waits: list[float] = []
    stopping = made._stopping
    monkeypatch.setattr(made._serving, "pause", lambda seconds: waits.append(seconds) or stopping.set())
    for batch in range(6):
        made._on_batch(None, batch)
    assert coordinator.taken == [0, 1, 2, 3, 4, 5]
    assert waits == []

    with pytest.raises(QueryStopped):
        made._on_batch(None, 6)
    assert coordinator.taken[-1] == 5
    (waited,) = waits
    assert 0 < waited <= HOUR.total_seconds()


def test_a_source_that_spark_has_not_planned_yet_does_not_wait_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job was stopped while it waited, with a batch planned; then a source was added, and only that one has data."""
    coordinator = Coordinator(decided=-1)
    made = query(coordinator, monkeypatch)
    ranges = {"made": SourceRange(0, 0), "new": SourceRange(0, 1)}
    monkeypatch.setattr(made.planner, "ranges", lambda: ranges)
    assert made._take(None, 0), "the next batch has a place for the new source"

    monkeypatch.setattr(made.planner, "ranges", lambda: {name: SourceRange(0, 0) for name in ranges})
    monkeypatch.setattr(made, "spark_log", None)
    assert not made._take(None, 1), "there is nothing to read, and Spark's log need not be looked at to know it"


def test_a_checkpoint_that_is_asked_for_begins_at_once_and_with_nothing_to_read_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = Coordinator(decided=0)
    made = query(coordinator, monkeypatch)
    monkeypatch.setattr(made.planner, "ranges", lambda: {"made": SourceRange(1, 1)})
    asked = made.requests.trigger("checkpoint")
    made._on_batch(None, 0)
    made._serve()
    assert asked.status == "IN_PROGRESS", "a checkpoint that was decided before is not what was asked for"
    made._on_batch(None, 1)
    assert (asked.location, coordinator.taken) == (1, [0, 1])

    made._turns._began = time.monotonic()
    later = made.requests.trigger("checkpoint")
    threading.Timer(0.05, made._serve).start()
    made._on_batch(None, 2)  # the interval is an hour
    assert later.location == 2


@pytest.mark.parametrize("spark_keeps_the_interval", [False, True])
def test_a_pause_lies_between_checkpoints_that_are_taken(
    monkeypatch: pytest.MonkeyPatch, spark_keeps_the_interval: bool
) -> None:
    coordinator = Coordinator(decided=1)
    made = query(coordinator, monkeypatch)
    made.plan.only_split = not spark_keeps_the_interval  # type: ignore[misc]
    made._turns.interval, made._turns.min_pause = timedelta(0), HOUR
    waits: list[float] = []
    monkeypatch.setattr(made._serving, "pause", waits.append)
    for batch in range(3):
        made._on_batch(None, batch)
    assert waits == [], "none between those that were decided before, and none before the first that is taken"
    made._on_batch(None, 3)
    (waited,) = waits
    assert HOUR.total_seconds() - 60 < waited <= HOUR.total_seconds()


def test_what_a_query_could_not_serve_the_next_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = query(Coordinator(decided=-1), monkeypatch)
    made._spark._started = SimpleNamespace(stop=lambda: None)
    asked = made.requests.trigger("checkpoint")
    made._serve()
    assert made.requests.take() is None
    made.kill()
    assert made.requests.take() is asked


class SparkQuery:
    """Looks for data when it is started, and finds none."""

    isActive = True

    def __init__(self) -> None:
        self.stopped = 0
        self.status = {"isTriggerActive": False, "message": "Waiting for next trigger", "isDataAvailable": False}

    def stop(self) -> None:
        self.stopped += 1


def test_where_spark_keeps_the_interval_it_is_made_to_look_and_finds_all_is_checkpointed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = query(Coordinator(decided=5), monkeypatch)
    made.plan = SimpleNamespace(only_split=False, bounded=False)  # type: ignore[assignment]
    made._spark._started = found = SparkQuery()
    starts: list[bool] = []
    monkeypatch.setattr(made, "start", lambda: starts.append(made._stopping.is_set()))
    asked = made.requests.trigger("checkpoint")
    found.status["isTriggerActive"] = True
    made._serve()
    assert (found.stopped, asked.status) == (0, "IN_PROGRESS"), "a checkpoint is about to begin anyway"
    found.status["isTriggerActive"] = False
    made._serve()
    assert (found.stopped, starts, asked.status) == (1, [False], "IN_PROGRESS")
    made._serve()
    assert (found.stopped, asked.location) == (1, 5)


def test_nothing_is_decided_behind_the_savepoint_with_which_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that fell due would be in the savepoint and visible too, and a query started anew would read on."""
    made = query(Coordinator(decided=5), monkeypatch)
    made.plan = SimpleNamespace(only_split=False, bounded=False)  # type: ignore[assignment]
    made._spark._started = found = SparkQuery()
    found.isActive = False  # its next checkpoint was turned away
    done: list[str] = []
    monkeypatch.setattr(made._upkeep, "roll_if_due", lambda: done.append("rolled"))
    monkeypatch.setattr(made, "_nudge", lambda: done.append("started anew"))
    monkeypatch.setattr(made._upkeep, "tell", lambda: None)
    monkeypatch.setattr(made, "_stop", lambda stop: True)
    made.requests.trigger("checkpoint")
    rounds: list[int] = []

    class Making:
        ending = True

        def step(self) -> object:
            rounds.append(len(rounds))
            return "saved" if len(rounds) == 3 else None

    made._savepoints = Making()  # type: ignore[assignment]
    assert made.wait(StopRequest()) == "saved"
    assert done == []


def test_a_query_that_ends_by_itself_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    made = query(Coordinator(decided=5), monkeypatch)
    made._spark._started = SimpleNamespace(isActive=False, exception=lambda: OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        made.wait(StopRequest())
