"""The loop: what runs beside a commit and what waits for it, with tasks and commits that end when the test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from poundlock import DatagenSource
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.cycle import Planned, Ran, Verified
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import JSON, Aborted, Committed, Counts, Occasion, Prepared, Staged
from poundlock.driver.attempts import Attempts
from poundlock.driver.checkpoints import JobCheckpoints, JobPlan, JobRan
from poundlock.driver.loop import JobLoop
from poundlock.driver.parallelism import JobParallelism
from poundlock.driver.planner import Planner
from poundlock.driver.progress import StopRequest, Tracker
from poundlock.driver.requests import CheckpointScheduler, Requests
from poundlock.errors import PoundlockError, TerminalError
from poundlock.savepoint.take import Cut
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.protocol_model import TransactionSink, visible_rows

SECONDS = 20.0


class GatedSink(TransactionSink):
    """Every commit waits until the test opens its gate."""

    prepares_ahead = True

    def __init__(self, storage: LocalStorage, log: list[str]) -> None:
        super().__init__(storage, "a")
        self.log = log
        self.gate = threading.Event()
        self.fails: Exception | None = None
        self.roll_is_due = False

    def commit(self, committable: JSON) -> Committed | Aborted:
        if not self.gate.is_set():
            self.log.append("commit waits")
        assert self.gate.wait(SECONDS)
        if self.fails is not None:
            raise self.fails
        outcome = super().commit(committable)
        self.log.append("aborted" if isinstance(outcome, Aborted) else "committed")
        return outcome

    def next_roll_ms(self, state: JSON) -> int | None:
        return 0 if self.roll_is_due else None

    def stage(self, state: JSON, prepared: Any, occasion: Occasion, now_ms: int) -> Staged:
        if occasion is Occasion.ROLL:
            self.roll_is_due = False
            self.log.append("roll")
        elif occasion is Occasion.END:
            self.log.append("drained")
        return super().stage(state, prepared, occasion, now_ms)


class NoTime:
    """A job without event time."""

    active = False

    def held(self) -> dict[str, Any]:
        return {}

    def directive(self, inputs: Any, *, drain: bool = False) -> None: ...

    def is_due(self, inputs: Any, timers: Any, sinks: Any) -> bool:
        return False

    def checkpointed(self, advanced: Any, *, drained: bool = False) -> None: ...


class NoJobs:
    def cancel(self) -> None: ...

    def idle(self, seconds: float) -> bool:
        return True


class NoCopies:
    def due(self, checkpoint: int) -> bool:
        return False

    def finish(self) -> None: ...


class Checkpoints(JobCheckpoints):
    """Checkpoints whose tasks write one row into a hidden segment, its number, in this process."""

    world: World

    def run(self, plan: JobPlan) -> JobRan:
        given = self.coordinator.directive(plan.reads)
        self.world.log.append(f"run {plan.checkpoint}")
        self._attempt.ran = True
        self.world.attempts += 1
        payload = self.world.sink.write_segment(f"{self.world.attempts:04d}", [plan.checkpoint])
        counts = {"a": Counts(read=1, written=1)}
        results = TaskResults(prepared=[Prepared("a", 0, payload)], counts=counts, rows_read={"numbers": 1})
        return JobRan(plan.reads, given, results, None)  # type: ignore[arg-type]


class LoggedCoordinator(Coordinator):
    events: list[str]

    def verify(self, ran: Ran) -> Verified:
        self.events.append(f"verify {ran.planned.checkpoint}")
        return super().verify(ran)

    def decide(self, plan: Planned, verified: Verified) -> Decision:
        decision = super().decide(plan, verified)
        self.events.append(f"decided {plan.checkpoint}")
        return decision


class World:
    """A job over three numbers, one a checkpoint, whose loop runs in a thread of its own."""

    def __init__(self, folder: Path, sink: type[GatedSink] = GatedSink) -> None:
        self.log: list[str] = []
        self.attempts = 0
        storage, clock = LocalStorage(str(folder / "checkpoint")), SystemClock()
        self.sink = sink(LocalStorage(str(folder / "out")), self.log)
        self.epoch = Epoch.claim(storage, clock=clock)
        self.coordinator = LoggedCoordinator(
            identity=open_identity(storage, name="job", clock=clock),
            epoch=self.epoch,
            ledger=Ledger(storage),
            participants={"a": self.sink},
            clock=clock,
        )
        self.coordinator.events = self.log
        self.coordinator.recover()
        self.requests, self.stop = Requests(), StopRequest()
        planner = Planner(
            {"numbers": DatagenSource(count=3, rows_per_checkpoint=1)}, lambda name: LocalStorage(str(folder / name)), 1
        )
        scheduler = CheckpointScheduler(timedelta(0), timedelta(0), self.requests)
        attempts, jobs, tracker = Attempts(), NoJobs(), Tracker(None)
        self.checkpoints = Checkpoints(
            chain=None, jobs=jobs, planner=planner, parallelism=JobParallelism(1), max_parallelism=128, time=NoTime(), state=None, coordinator=self.coordinator,
            scheduler=scheduler, tracker=tracker, attempts=attempts, on_checkpoint=lambda: self.log.append("completed"),
        )  # type: ignore[arg-type]  # fmt: skip
        self.checkpoints.world = self
        self.loop = JobLoop(
            checkpoints=self.checkpoints, requests=self.requests, clock=clock, save=self._save, retained=NoCopies()
        )  # type: ignore[arg-type]  # fmt: skip
        self.came: list[Any] = []
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.came.append(self.loop.wait(self.stop))
        except Exception as error:
            self.came.append(error)

    def _save(self, directory: str | None, first: Callable[[], None]) -> Cut:
        if directory != "refused":
            first()
        self.log.append("savepoint")
        raise PoundlockError("this disk is full")

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.002)

    def start_with_a_commit_waiting(self) -> None:
        self.thread.start()
        self.until(lambda: "commit waits" in self.log)

    def end(self) -> Any:
        """Open the gate; return what the loop ended with."""
        self.sink.gate.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive(), self.log
        return self.came[0]

    @property
    def visible(self) -> list[int]:
        return sorted(visible_rows(self.sink.storage, "a"))

    def before(self, first: str, second: str) -> bool:
        return self.log.index(first) < self.log.index(second)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.sink.gate.set()
    made.stop.cancel()
    made.epoch.release()


def test_the_next_tasks_run_beside_a_commit_and_their_decision_waits(world: World) -> None:
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    time.sleep(0.1)
    assert "verify 1" not in world.log
    assert "completed" not in world.log
    assert world.coordinator.newest.checkpoint == 0
    assert world.visible == []
    assert world.end() is Occasion.END
    assert world.before("committed", "verify 1")
    assert world.before("completed", "decided 1")
    assert world.log.count("completed") == 3
    assert world.visible == [0, 1, 2]


def test_the_lag_of_a_job_that_has_ended_is_that_of_its_end(world: World) -> None:
    world.checkpoints.planner.lag = lambda sources: 2 - world.coordinator.newest.checkpoint  # type: ignore[method-assign]
    shown: list[int | None] = []
    world.checkpoints.tracker.lag = lambda lag, state_bytes=None, lags=None: shown.append(lag)  # type: ignore[method-assign]
    world.thread.start()
    assert world.end() is Occasion.END
    assert (shown[0], shown[-1]) == (3, 0)


def test_where_a_sink_cannot_have_two_prepared_the_next_tasks_wait(tmp_path: Path) -> None:
    class OneAtATime(GatedSink):
        prepares_ahead = False

    world = World(tmp_path, OneAtATime)
    world.start_with_a_commit_waiting()
    time.sleep(0.2)
    assert "run 1" not in world.log
    assert world.end() is Occasion.END
    assert world.before("committed", "run 1")
    assert world.visible == [0, 1, 2]


def test_what_was_prepared_ahead_is_dropped_where_data_was_aborted_behind_its_decision(world: World) -> None:
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    (segment,) = (e.path for e in world.sink.storage.list() if e.path.endswith("0001"))
    world.sink.storage.delete(segment)
    assert world.end() is Occasion.END
    steps = [entry for entry in world.log if entry.startswith("run")]
    assert steps == ["run 0", "run 1", "run 0", "run 1", "run 2"]
    assert world.log.count("completed") == 3
    assert world.visible == [0, 1, 2]
    assert [e.path for e in world.sink.storage.list() if ".seg" in e.path] == [], "what was dropped is aborted"


def test_a_failed_commit_ends_the_attempt_and_the_next_checkpoint_is_not_decided(world: World) -> None:
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    world.sink.fails = TerminalError("the broker is gone for good")
    assert isinstance(world.end(), TerminalError)
    world.loop.kill()
    assert not world.loop.hangs
    assert world.coordinator.newest.checkpoint == 0
    assert "verify 1" not in world.log
    assert not world.checkpoints.attempts.tolerates(PoundlockError("it was the commit that failed"))


def test_who_ends_an_attempt_keeps_what_was_prepared_ahead_from_being_decided(world: World) -> None:
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    world.stop.cancel()
    world.thread.join(SECONDS)
    assert world.came == [None]
    assert world.loop.hangs
    killing = threading.Thread(target=world.loop.kill)
    killing.start()
    world.until(lambda: world.loop._turn is not None and world.loop._turn.done())
    world.sink.gate.set()
    killing.join(SECONDS)
    assert not world.loop.hangs
    assert world.coordinator.newest.checkpoint == 0
    assert "verify 1" not in world.log


def test_a_stop_finishes_what_is_under_way_and_takes_no_further_checkpoint(world: World) -> None:
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    world.stop.stop()
    time.sleep(0.1)
    assert world.thread.is_alive()
    assert world.end() is Occasion.END
    assert world.visible == [0, 1]


def test_a_roll_and_a_savepoint_wait_until_nothing_is_under_way(world: World) -> None:
    world.sink.roll_is_due = True
    world.coordinator.next_roll_ms = lambda: 0 if world.sink.roll_is_due and "decided 0" in world.log else None  # type: ignore[method-assign]
    world.start_with_a_commit_waiting()
    asked = world.requests.trigger("savepoint")
    time.sleep(0.2)
    assert "run 1" not in world.log, "it would keep both waiting for longer"
    assert "roll" not in world.log
    assert "savepoint" not in world.log
    assert world.end() is Occasion.END
    assert world.before("committed", "savepoint")
    assert world.before("completed", "roll")
    assert world.before("roll", "run 1")
    assert asked.status == "FAILED"


@pytest.mark.parametrize("directory", ["taken", "refused"])
def test_nothing_is_drained_for_a_savepoint_whose_folder_will_not_do(world: World, directory: str) -> None:
    world.start_with_a_commit_waiting()
    asked = world.requests.trigger("savepoint", directory=directory, then="stop", drain=True)
    assert world.end() is Occasion.END
    assert asked.status == "FAILED"
    assert ("drained" in world.log) is (directory == "taken")


def test_who_asked_for_a_checkpoint_is_answered_when_it_is_committed(world: World) -> None:
    asked = world.requests.trigger("checkpoint")
    world.start_with_a_commit_waiting()
    world.until(lambda: "run 1" in world.log)
    assert asked.status == "IN_PROGRESS"
    world.end()
    assert asked.location == 0
