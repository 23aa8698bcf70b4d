"""The checkpoint protocol under every death, stall, full disk and lost answer, against a model of what readers may see.

No Spark here: the machine plays Spark's part (plan, deliver, deliver again) and the tasks' part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from poundlock.checkpoint import committer as commits
from poundlock.checkpoint import coordinator
from poundlock.checkpoint.committer import Carried, Retry
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.cycle import Planned, Ran, Verified, run_checkpoint
from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.epoch import Epoch, EpochTaken
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger import decision_log as history
from poundlock.checkpoint.ledger import record_form
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared
from poundlock.driver.standby.lease import LeaseKeeper
from poundlock.driver.standby.liveness import Liveness
from poundlock.driver.standby.watch import ActiveDriver, Vacant
from poundlock.errors import FencedError, PoundlockError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, InjectedFailure
from poundlock.values import ManualClock
from support.examples import examples
from support.forgetful_ledger import ForgetfulLedger
from support.lives import STATELESS
from support.memory_storage import Death, Disk, Fault, MortalStorage
from support.protocol_model import ModelSink, TransactionSink, decided_targets, ledger_files, visible_rows

SINKS = ("a", "b")
KINDS = ("die_before", "die_within", "die_after", "full_before", "broken_after", "stall")


@dataclass(frozen=True)
class Batch:
    """What Spark planned: never planned differently when it is delivered again."""

    n: int
    start: int
    end: int
    segments: tuple[tuple[str, tuple[int, ...]], ...]
    filtered: int


@dataclass
class Plan:
    """Faults of one action: at a storage operation, at a failpoint, in a task, in commits' answers."""

    fault: Fault | None = None
    failpoint: Failpoint | None = None
    at_failpoint: str = "die"
    task_fails: bool = False
    speculative: bool = False
    unknown: list[str] = field(default_factory=list)


PLANS = st.builds(
    Plan,
    fault=st.none() | st.builds(Fault, kind=st.sampled_from(KINDS), countdown=st.integers(1, 14)),
    failpoint=st.none() | st.none() | st.sampled_from(Failpoint),
    at_failpoint=st.sampled_from(["die", "raise"]),
    task_fails=st.sampled_from([False, False, False, True]),
    speculative=st.booleans(),
    unknown=st.lists(st.sampled_from(["before", "after"]), max_size=5),
)
WHEN = st.sampled_from(["before", "within", "after"])
SEGMENTS = st.lists(st.tuples(st.sampled_from(SINKS), st.integers(0, 3)), max_size=4)


class Silence:
    def info(self, event: str, **fields: Any) -> None: ...

    def warning(self, event: str, **fields: Any) -> None: ...


class Driver:
    """One life of a driver process."""

    def __init__(self, world: ProtocolMachine, plan: Plan, succeeds: int | None = None) -> None:
        self.world, self.plan = world, plan
        self.storage = MortalStorage(world.disk, plan.fault)
        self.identity = open_identity(self.storage, name="job", clock=world.clock)
        self.sinks = {name: world.sink(self.storage, name, self._unknown) for name in SINKS}
        self.epoch = Epoch.claim(self.storage, clock=world.clock, succeeds=succeeds)
        given: dict[str, Any] = {
            "identity": self.identity,
            "epoch": self.epoch,
            "ledger": world.ledger(self.storage),
            "participants": self.sinks,
            "clock": world.clock,
            "retry": Retry(attempts=3),
            "sleep": lambda seconds: None,
            "log": Silence(),
        }
        self.coordinator = world.variant(**given)
        self.coordinator.recover()

    def arm(self, plan: Plan) -> None:
        self.plan = plan
        self.storage.fault = plan.fault

    def _unknown(self) -> str | None:
        return self.plan.unknown.pop() if self.plan.unknown else None

    def run_tasks(self, batch: Batch, directive: SinkDirectives) -> TaskResults:
        counts = {name: Counts(read=batch.filtered, filtered=batch.filtered) for name in SINKS}
        prepared: list[Prepared] = []
        for task, (name, rows) in enumerate(batch.segments):
            counts[name].add(Counts(read=len(rows), written=len(rows)))
            if directive.decided or name not in directive.sinks:
                continue
            self.world.hit(Failpoint.TASKS_READING)
            self.world.hit(Failpoint.SINK_WRITING)
            sink = self.sinks[name]
            if self.plan.speculative:
                sink.write_segment(self.world.attempt(), rows)  # a second attempt, never reported
            prepared.append(Prepared(name, task, sink.write_segment(self.world.attempt(), rows)))
            self.world.hit(Failpoint.SINK_PREPARED)
            if self.plan.task_fails:
                raise TransientError("a task failed")
        return TaskResults(prepared=prepared, counts=counts, rows_read={"source": batch.end - batch.start})


class Ahead:
    """The steps of checkpoints whose tasks run beside the commit before, as the driver's loop takes them; see `CheckpointSteps`.

    One thread plays both: tasks run before, within or after that commit, as `when` says.
    """

    def __init__(self, world: ProtocolMachine, driver: Driver, when: str) -> None:
        self.world, self.driver, self.coordinator, self.when = world, driver, driver.coordinator, when
        self.index = -1
        self.batches: dict[int, tuple[Batch, dict[str, SourceRange]]] = {}
        self.open: list[tuple[int, Decision]] = []
        self.came: Carried | Exception | None = None

    def take(self, index: int) -> bool:
        """Take a checkpoint up to its decision; return False where parts of the one before come first."""
        self.index = index
        return run_checkpoint(self) is not None

    def plan(self) -> Planned:
        if self.index not in self.batches:
            self.batches[self.index] = self.world._ranges(self.driver, self.index)
        batch, ranges = self.batches[self.index]
        return Planned(batch.n, ranges)

    def taking(self, plan: Planned) -> AbstractContextManager[None]:
        return self.coordinator.taking(plan.checkpoint)

    def run(self, plan: Planned) -> Ran:
        directive = self.coordinator.directive(plan)
        batch, _ = self.batches[self.index]
        came: list[TaskResults | Exception] = []

        def tasks() -> None:
            try:
                came.append(self.driver.run_tasks(batch, directive))
            except Exception as error:
                came.append(error)

        if self.open and self.when != "before":
            self.world.beside = tasks if self.when == "within" else None
            self._commit()
            self.world.beside = None
        if not came:
            tasks()
        if isinstance(came[0], Exception):
            raise came[0]
        return Ran(plan, directive, came[0])

    def await_commit(self, plan: Planned) -> bool:
        again = self.coordinator.is_produced_again(plan.checkpoint)
        self.settle()
        return again or not self.coordinator.is_produced_again(self.coordinator.newest.checkpoint)

    def verify(self, ran: Ran) -> Verified:
        return self.coordinator.verify(ran)

    def dropped(self, plan: Planned) -> None:
        del self.batches[self.index]

    def commit(self, plan: Planned, ran: Ran, decision: Decision, verified: Verified) -> None:
        self.open.append((self.index, decision))

    def settle(self) -> None:
        """Commit what is open, and take note of it."""
        while self.open:
            if self.came is None:
                self._commit()
            (index, decision), came, self.came = self.open.pop(0), self.came, None
            if isinstance(came, Exception):
                raise came
            assert came is not None
            self.coordinator.committed(decision, came, {})
            if not self.coordinator.is_produced_again(decision.checkpoint):
                self.world.committed = max(self.world.committed, index)

    def _commit(self) -> None:
        try:
            self.came = self.coordinator.commit(self.open[0][1])
        except Exception as error:
            self.came = error


class ProtocolMachine(RuleBasedStateMachine):
    """Drivers come and go; what readers see is compared with what Spark delivered after every step."""

    variant: type[Coordinator] = Coordinator
    sink: type[ModelSink] = ModelSink
    ledger: type[Ledger] = Ledger
    ahead: type[Ahead] = Ahead

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.reader = MortalStorage(self.disk)
        self.clock = ManualClock(1_000)
        self.driver: Driver | None = None
        self.acting: Plan = Plan()
        self.actor: Driver | None = None
        self.planned: list[Batch] = []
        self.committed = -1  # index into planned of the newest batch in Spark's commit log
        self.records: dict[str, bytes] = {}
        self.attempts = 0
        self.next_row = 0
        self.rivals = 0
        self.beside: Callable[[], None] | None = None  # what runs within the next commit
        self._patches = [mock.patch.object(module, "hit", self.hit) for module in (coordinator, history, commits)]
        for patch in self._patches:
            patch.start()

    def teardown(self) -> None:
        for patch in self._patches:
            patch.stop()

    def attempt(self) -> str:
        self.attempts += 1
        return f"{self.attempts:06d}"

    def hit(self, point: Failpoint) -> None:
        """Stand in for failpoints.hit: die or fail where the acting plan says, once."""
        if point is Failpoint.SINK_COMMITTING and self.beside is not None:
            beside, self.beside = self.beside, None
            beside()
        if self.acting.failpoint is not point:
            return
        self.acting.failpoint = None
        if self.acting.at_failpoint == "raise":
            raise InjectedFailure(point.value)
        if self.actor is not None:
            self.actor.storage.dead = True
        raise Death

    # -- what can happen ------------------------------------------------------------------------------------------

    @rule(segments=SEGMENTS, filtered=st.integers(0, 2), gap=st.sampled_from([1, 1, 1, 2]), plan=PLANS)
    def deliver(self, segments: list[tuple[str, int]], filtered: int, gap: int, plan: Plan) -> None:
        """Spark delivers the next batch, or the one it has not seen committed."""
        if self.committed + 1 == len(self.planned):
            self.planned.append(self._new_batch(segments, filtered, gap))
        self._act(plan, lambda driver: self._deliver(driver))

    @rule(segments=st.tuples(SEGMENTS, SEGMENTS), when=WHEN, plan=PLANS)
    def deliver_two(self, segments: tuple[list[tuple[str, int]], list[tuple[str, int]]], when: str, plan: Plan) -> None:
        """The tasks of the next checkpoint run while this one is committed."""
        for after, given in enumerate(segments, 1):
            if self.committed + after == len(self.planned):
                self.planned.append(self._new_batch(given, 0, 1))
        self._act(plan, lambda driver: self._deliver_two(driver, when))

    @rule(plan=PLANS, occasion=st.sampled_from([Occasion.ROLL, Occasion.END]))
    def roll(self, plan: Plan, occasion: Occasion) -> None:
        self._act(plan, lambda driver: driver.coordinator.roll(occasion))

    @rule(plan=PLANS)
    def restart(self, plan: Plan) -> None:
        """The driver dies, and the next may die while it starts."""
        self.driver = None
        self._act(plan, lambda driver: None)

    @precondition(lambda self: self.committed >= 0)
    @rule(lost=st.integers(1, 2))
    def lose_spark_commits(self, lost: int) -> None:
        """The newest files of Spark's commit log are lost: batches are delivered again although they are done."""
        self.driver = None
        self.committed = max(-1, self.committed - lost)

    @rule()
    def settle(self) -> None:
        """With no more faults, everything planned ends up visible, exactly once, and nothing is left over."""
        self.driver = None
        while self._outstanding():
            self._act(Plan(), lambda driver: self._deliver(driver))
        self._act(Plan(), lambda driver: driver.coordinator.roll(Occasion.END))
        for name in SINKS:
            assert sorted(visible_rows(self.reader, name)) == sorted(self._arrived(name))
        self.driver = None
        self._act(Plan(), lambda driver: None)
        hidden = [path for path in self.disk.files if path.startswith(("a/.", "b/."))]
        assert not hidden, f"orphans left after a sweep: {hidden}"

    # -- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def no_row_twice_and_none_from_nowhere(self) -> None:
        for name in SINKS:
            rows = visible_rows(self.reader, name)
            assert len(rows) == len(set(rows)), f"sink {name} shows rows twice: {sorted(rows)}"
            assert set(rows) <= set(self._arrived(name))

    @invariant()
    def everything_visible_is_decided(self) -> None:
        shown = {path for path in self.disk.files if path.startswith(("a/part", "b/part"))}
        assert shown <= decided_targets(self.reader), "visible, and no decision names it"

    @invariant()
    def decisions_never_change(self) -> None:
        now = ledger_files(self.reader)
        for path, data in self.records.items():
            assert now.get(path) == data, f"{path} changed"
        self.records = now

    # -- how it is done -------------------------------------------------------------------------------------------

    def _outstanding(self) -> bool:
        return self.committed + 1 < len(self.planned)

    def _arrived(self, name: str) -> list[int]:
        return [row for batch in self.planned for sink, rows in batch.segments if sink == name for row in rows]

    def _new_batch(self, segments: list[tuple[str, int]], filtered: int, gap: int) -> Batch:
        before = self.planned[-1] if self.planned else None
        start = before.end if before else 0
        made = []
        for name, count in segments:
            made.append((name, tuple(range(self.next_row, self.next_row + count))))
            self.next_row += count
        n = before.n + gap if before else 0
        return Batch(n, start, start + sum(count for _, count in segments) + filtered, tuple(made), filtered)

    def _deliver(self, driver: Driver) -> None:
        index = min(self.committed + 1, len(self.planned) - 1)  # the last again if a rival was faster
        batch = self.planned[index]
        span = {"source": SourceRange({"o": batch.start} if batch.start else None, {"o": batch.end})}
        outcome = driver.coordinator.checkpoint(batch.n, span, lambda directive: driver.run_tasks(batch, directive))
        assert outcome.decision.checkpoint == batch.n
        self.committed = max(self.committed, index)

    def _ranges(self, driver: Driver, index: int) -> tuple[Batch, dict[str, SourceRange]]:
        """Return a batch that is not decided, and what it reads."""
        batch = self.planned[index]
        return batch, {"source": SourceRange({"o": batch.start} if batch.start else None, {"o": batch.end})}

    def _deliver_two(self, driver: Driver, when: str) -> None:
        first = self.committed + 1
        if first + 1 >= len(self.planned) or driver.coordinator.decided(self.planned[first].n) is not None:
            return self._deliver(driver)
        steps = self.ahead(self, driver, when)
        steps.take(first)
        while not steps.take(first + 1):
            while driver.coordinator.is_produced_again(self.planned[first].n):
                steps.take(first)
                steps.settle()
        return steps.settle()

    def _act(self, plan: Plan, action: Any) -> None:
        """Do something with the present driver, or a new one, under a plan of faults."""
        faulty = plan.fault is not None or plan.failpoint is not None or plan.task_fails or len(plan.unknown) > 3
        if plan.fault is not None and plan.fault.kind == "stall":
            plan.fault = Fault("stall", plan.fault.countdown, self._take_over)
        mine: Driver | None = None
        self.acting = plan
        try:
            if self.driver is None:
                self.driver = Driver(self, plan)
            else:
                self.driver.arm(plan)
            mine = self.actor = self.driver
            action(mine)
        except Death:
            assert faulty
            self._gone(mine)
        except FencedError:
            assert self.rivals, "fenced, and there never was another driver"
            self._gone(mine)
        except (PoundlockError, InjectedFailure, OSError):
            if not faulty:
                raise
            self._gone(mine)
        finally:
            self.acting, self.actor, self.beside = Plan(), None, None
        if self.driver is not None:
            self.driver.arm(Plan())

    def _gone(self, driver: Driver | None) -> None:
        if self.driver is driver:
            self.driver = None

    def _take_over(self) -> None:
        """While a driver stalls, another starts, takes the outstanding batch through, and carries on."""
        self.rivals += 1
        stalled, self.acting = (self.acting, self.actor), Plan()
        try:
            rival = Driver(self, Plan())
            if self.committed + 1 < len(self.planned):
                self._deliver(rival)
            self.driver = rival
        finally:
            self.acting, self.actor = stalled


class DriverPlans(ProtocolMachine):
    """The source is planned by the driver: Spark only numbers batches, and one that was not decided is planned anew.

    The rows of all batches so far are one stream; each delivery reads on from the decided position, as far as it likes.
    """

    def _stream(self) -> list[tuple[str, int]]:
        return [(name, row) for batch in self.planned for name, rows in batch.segments for row in rows]

    def _position(self, driver: Driver) -> int:
        found = driver.coordinator.sources.get("source")
        return found.end["o"] if found else 0

    def _outstanding(self) -> bool:
        if super()._outstanding() or self.driver is None:
            return True
        if self._position(self.driver) < len(self._stream()):
            self.planned.append(self._new_batch([], 0, 1))
            return True
        return False

    def _ranges(self, driver: Driver, index: int) -> tuple[Batch, dict[str, SourceRange]]:
        start, stream = self._position(driver), self._stream()
        end = min(len(stream), start + self.attempts % 5)
        self.attempts += 1
        segments = tuple((name, (row,)) for name, row in stream[start:end])
        batch = Batch(self.planned[index].n, start, end, segments, 0)
        return batch, {"source": SourceRange({"o": start} if start else None, {"o": end})}

    def _deliver(self, driver: Driver) -> None:
        if not self.planned:
            self.planned.append(self._new_batch([], 0, 1))
        index = min(self.committed + 1, len(self.planned) - 1)
        n = self.planned[index].n
        planned, ranges = self._ranges(driver, index)
        decided = driver.coordinator.decided(n)
        outcome = driver.coordinator.checkpoint(n, decided or ranges, lambda said: driver.run_tasks(planned, said))
        assert outcome.replayed == (decided is not None)
        self.committed = max(self.committed, index)


class Transactions(ProtocolMachine):
    """The sinks' data is held in transactions that time out, also after the decision, and is then produced again."""

    sink = TransactionSink

    @rule(which=st.integers(0, 3))
    def time_out(self, which: int) -> None:
        """One open transaction is aborted from outside."""
        self._expire(which)

    @rule(segments=SEGMENTS, which=st.integers(0, 3), dies=st.booleans())
    def time_out_after_the_decision(self, segments: list[tuple[str, int]], which: int, dies: bool) -> None:
        """A transaction is aborted between the decision and its commit, in the driver's life or while it is down."""
        if not self._outstanding():
            self.planned.append(self._new_batch(segments, 0, 1))
        if dies:
            self._act(Plan(failpoint=Failpoint.DECISION_RECORDED), lambda driver: self._deliver(driver))
            self._expire(which)
            return
        self.expiring = which
        try:
            self._act(Plan(), lambda driver: self._deliver(driver))
        finally:
            self.expiring = None

    @rule(segments=SEGMENTS, more=SEGMENTS, which=st.integers(0, 3), when=st.sampled_from(["within", "after"]))
    def time_out_beside_the_next(
        self, segments: list[tuple[str, int]], more: list[tuple[str, int]], which: int, when: str
    ) -> None:
        """A transaction is aborted before its commit, and the next checkpoint's tasks run already."""
        self.expiring = which
        try:
            self.deliver_two((segments, more), when, Plan())
        finally:
            self.expiring = None

    expiring: int | None = None

    def hit(self, point: Failpoint) -> None:
        if point is Failpoint.DECISION_RECORDED and self.expiring is not None:
            which, self.expiring = self.expiring, None
            self._expire(which)
        super().hit(point)

    def _expire(self, which: int) -> None:
        pending = sorted(path for path in self.disk.files if "/.seg-" in path)
        if pending:
            path = pending[which % len(pending)]
            self.disk.files.pop(path)


class JumpingClock(ManualClock):
    """The time of day, which somebody sets as they like."""

    def jump(self, by_ms: int) -> None:
        self._now += by_ms


class StandsBy(ProtocolMachine):
    """Two drivers stand by. Each judges the active one by its own monotonic clock and by what it sees of the lease, and may be wrong.

    What they take for dead may be stopped, and wakes up in the middle of anything.
    """

    LASTS_S = 6.0

    def __init__(self) -> None:
        super().__init__()
        self.clock = JumpingClock(1_000)
        self.seconds = [0.0, 0.0]  # what the monotonic clocks of the two show
        self.asleep: list[Driver] = []
        self.keepers: dict[int, LeaseKeeper] = {}
        self.watchers = [self._watcher(0), self._watcher(1)]
        self.overtaken = 0

    def _watcher(self, number: int) -> ActiveDriver:
        return ActiveDriver(
            storage=self.reader, liveness=lambda: Liveness(now=lambda: self.seconds[number]), holder=lambda _: None
        )

    def keeper(self, driver: Driver) -> LeaseKeeper:
        if driver.epoch.number not in self.keepers:
            self.keepers[driver.epoch.number] = LeaseKeeper(
                storage=driver.storage, epoch=driver.epoch, lasts=timedelta(seconds=self.LASTS_S), log=Silence()
            )
        return self.keepers[driver.epoch.number]

    @rule()
    def renew(self) -> None:
        """The active driver changes its lease; another may have taken over meanwhile."""
        if self.driver is not None and not self.keeper(self.driver).renew():
            assert self.rivals
            self.asleep.append(self.driver)
            self.driver = None

    @rule(by_ms=st.sampled_from([-86_400_000, -1000, 1000, 86_400_000]))
    def jump(self, by_ms: int) -> None:
        """The time of day is set on every machine."""
        self.clock.jump(by_ms)

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([0.5, 2.0, 2.9]), looks=st.integers(1, 4))
    def look(self, number: int, seconds: float, looks: int) -> None:
        """One that stands by looks for a while, and goes on where it sees nobody."""
        for _ in range(looks):
            self.seconds[number] += seconds
            sight = self.watchers[number].look()
            if isinstance(sight, Vacant):
                return self._succeed(number, sight.succeeds)

    @rule(which=st.integers(0, 3), renews=st.booleans(), plan=PLANS)
    def wake(self, which: int, renews: bool, plan: Plan) -> None:
        """One that was taken for dead goes on: it may decide nothing, nor take its lease back."""
        if not self.asleep:
            return
        woken = self.asleep[which % len(self.asleep)]
        before = ledger_files(self.reader)
        if renews:
            assert not self.keeper(woken).renew()
        else:
            plan.fault = None
            self.acting, self.actor = plan, woken
            woken.arm(plan)
            try:
                with pytest.raises((FencedError, Death)) as ended:
                    woken.coordinator.roll(Occasion.END)
                if ended.type is Death:
                    self.asleep.remove(woken)
            finally:
                self.acting, self.actor = Plan(), None
        assert ledger_files(self.reader) == before

    @invariant()
    def decisions_are_those_of_one_driver_after_the_other(self) -> None:
        epochs = [decision.epoch for decision in Ledger(self.reader)]
        assert epochs == sorted(epochs), "a driver decided that had been succeeded"

    def _succeed(self, number: int, succeeds: int) -> None:
        """One that stands by takes over, if no other was first."""
        try:
            rival = Driver(self, Plan(), succeeds)
        except EpochTaken:
            self.overtaken += 1
            self.watchers[number] = self._watcher(number)
            return
        self.rivals += 1
        self.keeper(rival).renew()
        if self.driver is not None:
            self.asleep.append(self.driver)
        self.driver = rival

    def _take_over(self) -> None:
        """While a driver is stopped, both that stand by look until its lease has expired, and want to take over at once."""
        stalled, self.acting = (self.acting, self.actor), Plan()
        try:
            seen: dict[int, int] = {}
            while len(seen) < 2:
                for number, watcher in enumerate(self.watchers):
                    self.seconds[number] += self.LASTS_S / 3
                    if number not in seen and isinstance(sight := watcher.look(), Vacant):
                        seen[number] = sight.succeeds
            for number, succeeds in seen.items():
                self._succeed(number, succeeds)
            if self.driver is not None and self._outstanding():
                self._deliver(self.driver)
            self.decisions_never_change()  # what is decided by now stands, whatever the other does when it wakes up
        finally:
            self.acting, self.actor = stalled


MANY = {str(partition): 1_000_000 + partition for partition in range(1200)}


class NotedLedger(Ledger):
    """Notes every decision that a driver tried to record, whole."""

    tried: ClassVar[dict[int, list[Decision]]] = {}

    def append(self, decision: Decision) -> None:
        read_back = Decision.from_json(json.loads(json.dumps(decision.to_json())))  # with lists for tuples
        self.tried.setdefault(decision.number, []).append(read_back)
        super().append(decision)


class Changes(ProtocolMachine):
    """Every record that may says only what changed, and is read as what was decided."""

    ledger: type[Ledger] = NotedLedger
    least_bytes, least_saving = 0, 0.0  # see `record_form`
    changes: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        NotedLedger.tried.clear()
        for name, value in (("LEAST_BYTES", self.least_bytes), ("LEAST_SAVING", self.least_saving)):
            patch = mock.patch.object(record_form, name, value)
            patch.start()
            self._patches.append(patch)

    @invariant()
    def records_are_read_as_what_was_decided(self) -> None:
        for path, data in ledger_files(self.reader).items():
            if (raw := json.loads(data))["v"] == 2:
                self.changes.add(f"{raw['occasion']} {path} of {id(self)}")
        for decision in Ledger(self.reader):
            assert decision in NotedLedger.tried[decision.number], f"record {decision.number} is read as another one"


class ChangesOfTransactions(Changes, Transactions):
    """The same, where parts that were aborted are produced again."""


class ManyPartitions(Changes):
    """The source has very many partitions, of which one moves: most records say only that."""

    least_bytes, least_saving = record_form.LEAST_BYTES, record_form.LEAST_SAVING

    def _ranges(self, driver: Driver, index: int) -> tuple[Batch, dict[str, SourceRange]]:
        batch = self.planned[index]
        start = {"t": {**MANY, "moving": batch.start}} if batch.start else None
        return batch, {"source": SourceRange(start, {"t": {**MANY, "moving": batch.end}})}

    def _deliver(self, driver: Driver) -> None:
        index = min(self.committed + 1, len(self.planned) - 1)
        batch, span = self._ranges(driver, index)
        outcome = driver.coordinator.checkpoint(batch.n, span, lambda directive: driver.run_tasks(batch, directive))
        assert outcome.decision.checkpoint == batch.n
        self.committed = max(self.committed, index)


class BuildsOnStale(NotedLedger):
    """Broken on purpose: a record says what changed since another one than it names."""

    stale: Any = None

    def append(self, decision: Decision) -> None:
        super().append(decision)
        base = self._writer._base
        self.stale = self.stale or base
        if base is not None:
            self._writer._base = replace(base, parts=self.stale.parts)


class BuildsOnStaleMachine(Changes):
    ledger = BuildsOnStale


class Forgets(Coordinator):
    """Broken on purpose: what was aborted after the decision is not produced again, as Flink's Kafka sink does."""

    def is_produced_again(self, checkpoint: int) -> bool:
        self.redo = {}
        return super().is_produced_again(checkpoint)


class ForgetsMachine(Transactions):
    variant = Forgets


class DriverPlansForgetting(DriverPlans):
    ledger = ForgetfulLedger


class Forgetting(ProtocolMachine):
    """The control: no decision of earlier lives is believed."""

    ledger = ForgetfulLedger


class TooEarly(Ahead):
    """Broken on purpose: decides while it is not known what became of the checkpoint before."""

    def await_commit(self, plan: Planned) -> bool:
        return True


class TooEarlyMachine(ProtocolMachine):
    ahead = TooEarly


class CommitsFirst(Coordinator):
    """Broken on purpose: makes things visible, then decides."""

    def _append(self, decision: Decision) -> None:
        self._commit_all(decision)
        super()._append(decision)


class CommitsFirstMachine(ProtocolMachine):
    variant = CommitsFirst


class Unfenced(Ledger):
    """Broken on purpose: the last to write a record wins, as if who holds a lease might decide."""

    def append(self, decision: Decision) -> None:
        self._storage.delete(record_path(decision.number))
        super().append(decision)


class UnfencedMachine(StandsBy):
    ledger = Unfenced


class SweepsFirst(Coordinator):
    """Broken on purpose: a start removes orphans without closing the ledger to older drivers."""

    def take_over(self, before: Decision | None, carried: Carried | None) -> bool:
        if before is None:
            return super().take_over(before, carried)
        self._newest, self._open, self.sources = before, False, before.sources
        return True


class SweepsFirstMachine(ProtocolMachine):
    variant = SweepsFirst


class AbortsDecided(Coordinator):
    """Broken on purpose: what was decided is aborted when carrying it out fails."""

    def commit(self, decision: Decision) -> Carried:
        try:
            return super().commit(decision)
        except Exception:
            for name, sink in decision.sinks.items():
                for part in sink.committables:
                    for path in part["sources"]:
                        self.participants[name].abort(Prepared(name, 0, {"path": path}))
            raise


class AbortsDecidedMachine(ProtocolMachine):
    variant = AbortsDecided


_EXAMPLES = int(os.environ.get("POUNDLOCK_PROTOCOL_EXAMPLES", "60"))
_SETTINGS = settings(stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
_HUNT = settings(_SETTINGS, max_examples=1000, database=None, derandomize=True, phases=[Phase.generate])


_MACHINES = [ProtocolMachine, DriverPlans, Transactions, Changes, ChangesOfTransactions, ManyPartitions, StandsBy]


@pytest.mark.parametrize("machine", _MACHINES)
def test_protocol_keeps_its_invariants_through_every_fault(machine: type[ProtocolMachine]) -> None:
    Changes.changes.clear()
    share = 4 if machine is ManyPartitions else 2 if issubclass(machine, Changes) else 1  # reading all of it takes long
    tried = examples(max(1, _EXAMPLES // share)).max_examples
    run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=tried))
    if issubclass(machine, Changes):
        assert "checkpoint" in {each.partition(" ")[0] for each in Changes.changes}


def test_a_record_of_every_occasion_may_say_only_what_changed() -> None:
    """Chance has rarely a roll behind a record that it can build on."""
    Changes.changes.clear()
    machine = Changes()
    try:
        for occasion in (Occasion.ROLL, Occasion.END):
            machine.deliver([("a", 2), ("b", 1)], 0, 1, Plan())
            machine.roll(Plan(), occasion)
            machine.records_are_read_as_what_was_decided()
        machine.settle()
    finally:
        machine.teardown()
    assert {each.partition(" ")[0] for each in Changes.changes} == {"checkpoint", "roll", "end"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        Forgetting,
        DriverPlansForgetting,
        ForgetsMachine,
        CommitsFirstMachine,
        AbortsDecidedMachine,
        BuildsOnStaleMachine,
    ],
)
def test_a_broken_protocol_is_found(broken: type[ProtocolMachine]) -> None:
    with pytest.raises((AssertionError, TerminalError)):
        run_state_machine_as_test(broken, settings=_HUNT)


def _stalled_before_deciding(machine: ProtocolMachine) -> None:
    """A driver stalls on its way to its decision; another starts, finds nothing to do, and then the first goes on."""
    machine.planned.append(Batch(0, 0, 4, (("a", (0, 1)), ("a", (2, 3))), 0))
    first = Driver(machine, Plan())
    machine.driver = first

    def rival_starts() -> None:
        machine.driver = Driver(machine, Plan())

    # Two segments, then the record: the third change is the decision itself, after every check has passed.
    first.arm(Plan(fault=Fault("stall", 3, rival_starts)))
    with pytest.raises(FencedError):
        machine._deliver(first)
    assert machine.driver is not first
    machine.settle()


def test_a_driver_that_stalls_before_its_decision_is_fenced_by_the_next_start() -> None:
    machine = ProtocolMachine()
    try:
        _stalled_before_deciding(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("machine", [StandsBy, UnfencedMachine])
def test_a_driver_that_is_stopped_before_its_decision_is_fenced_by_one_that_stood_by(machine: type[StandsBy]) -> None:
    """It has looked at its epoch, and writes the record when both that stand by have wanted to succeed it, and one has."""
    world = machine()
    try:
        world.deliver([("a", 1)], 0, 1, Plan())
        world.renew()
        with nullcontext() if machine is StandsBy else pytest.raises((AssertionError, TerminalError)):
            # A segment, then the record.
            world.deliver([("a", 1)], 0, 1, Plan(fault=Fault("stall", 2)))
            assert (world.rivals, world.overtaken) == (1, 1)
            world.decisions_never_change()
            world.decisions_are_those_of_one_driver_after_the_other()
            world.settle()
    finally:
        world.teardown()


def test_a_driver_whose_plan_a_newer_one_has_overtaken_is_fenced() -> None:
    """It stalled behind its last look at the epoch; what it is to read next goes on behind what the other has decided."""
    machine = Transactions()
    try:
        machine.planned += [Batch(n, n, n + 1, (("b", (n,)),), 0) for n in range(3)]
        machine._deliver(Driver(machine, Plan()))
        stale = Driver(machine, Plan())
        machine._deliver(Driver(machine, Plan()))
        with pytest.raises(FencedError):
            machine.ahead(machine, stale, "before").take(2)
        machine.settle()
    finally:
        machine.teardown()


def test_sweeping_before_the_ledger_is_closed_would_lose_data() -> None:
    machine = SweepsFirstMachine()
    try:
        with pytest.raises((TerminalError, pytest.fail.Exception)):
            _stalled_before_deciding(machine)
    finally:
        machine.teardown()


def test_a_start_that_stalls_before_its_sweep_removes_nothing_of_the_next() -> None:
    """Its leftovers were to be swept; meanwhile another driver started, and has pending files of its own."""
    machine = ProtocolMachine()
    try:
        machine.deliver([("a", 1)], 0, 1, Plan(task_fails=True))
        # The epoch, the start record, the note that it is carried out: then it sweeps.
        machine.restart(Plan(fault=Fault("stall", 3)))
        assert machine.rivals == 1
        machine.settle()
    finally:
        machine.teardown()


@pytest.mark.parametrize("kind", KINDS[:5])
@pytest.mark.parametrize("countdown", range(1, 15))
def test_every_single_operation_of_a_checkpoint_may_be_the_last(kind: str, countdown: int) -> None:
    machine = ProtocolMachine()
    try:
        machine.deliver([("a", 2), ("b", 1)], 0, 1, Plan())
        machine.deliver([("a", 1), ("b", 2), ("a", 0)], 1, 1, Plan(fault=Fault(kind, countdown)))
        machine.roll(Plan(), Occasion.ROLL)
        machine.settle()
    finally:
        machine.teardown()


@pytest.mark.parametrize("how", ["die", "raise"])
@pytest.mark.parametrize("point", STATELESS)
def test_every_failpoint(point: Failpoint, how: str) -> None:
    machine = ProtocolMachine()
    try:
        machine.deliver([("a", 2), ("b", 1)], 0, 1, Plan())
        plan = Plan(failpoint=point, at_failpoint=how)
        machine.deliver([("a", 1), ("b", 2), ("a", 0)], 1, 1, plan)
        assert plan.failpoint is None, "the failpoint was never passed"
        machine.settle()
    finally:
        machine.teardown()


def _killed_with_two_in_flight(machine: ProtocolMachine) -> None:
    """The driver dies as it begins to commit a checkpoint, and the tasks of the next have prepared theirs."""
    machine.deliver_two(
        ([("a", 2), ("a", 1)], [("a", 1), ("a", 2)]), "before", Plan(failpoint=Failpoint.DECISION_RECORDED)
    )
    assert machine.driver is None
    machine.settle()


def test_a_kill_with_two_checkpoints_in_flight_loses_nothing() -> None:
    machine = ProtocolMachine()
    try:
        _killed_with_two_in_flight(machine)
    finally:
        machine.teardown()


def test_deciding_before_the_commit_before_is_known_would_lose_data() -> None:
    machine = TooEarlyMachine()
    try:
        with pytest.raises(AssertionError):
            _killed_with_two_in_flight(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("when", ["within", "after"])
def test_what_was_prepared_ahead_is_dropped_where_the_commit_finds_data_aborted(when: str) -> None:
    class Watched(Ahead):
        def dropped(self, plan: Planned) -> None:
            dropped.append(plan.checkpoint)
            super().dropped(plan)

    dropped: list[int] = []
    machine = Transactions()
    machine.ahead = Watched
    try:
        machine.time_out_beside_the_next([("a", 2), ("b", 1)], [("a", 1)], 1, when)
        assert dropped == [1]
        assert machine.committed == 1
        machine.settle()
    finally:
        machine.teardown()
