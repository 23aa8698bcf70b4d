"""The checkpoint protocol under every death, stall, full disk and lost answer, against a model of what readers may see.

No Spark here: the machine plays Spark's part (plan, deliver, deliver again) and the tasks' part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from poundlock.checkpoint import committer as commits
from poundlock.checkpoint import coordinator, cycle
from poundlock.checkpoint.committer import Retry
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger import decision_log as history
from poundlock.checkpoint.ledger.decision_log import History
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import Directive, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared
from poundlock.errors import FencedError, PoundlockError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, InjectedFailure
from poundlock.values import ManualClock
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
SEGMENTS = st.lists(st.tuples(st.sampled_from(SINKS), st.integers(0, 3)), max_size=4)


class Silence:
    def info(self, event: str, **fields: Any) -> None: ...

    def warning(self, event: str, **fields: Any) -> None: ...


class Driver:
    """One life of a driver process."""

    def __init__(self, world: ProtocolMachine, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self.storage = MortalStorage(world.disk, plan.fault)
        self.identity = open_identity(self.storage, name="job", clock=world.clock)
        self.sinks = {name: world.sink(self.storage, name, self._unknown) for name in SINKS}
        self.epoch = Epoch.claim(self.storage, clock=world.clock)
        given: dict[str, Any] = {
            "identity": self.identity,
            "epoch": self.epoch,
            "ledger": Ledger(self.storage),
            "participants": self.sinks,
            "clock": world.clock,
            "retry": Retry(attempts=3),
            "sleep": lambda seconds: None,
            "log": Silence(),
            **world.options,
        }
        self.coordinator = world.variant(**given)
        if world.history is not History:
            self.coordinator._history = world.history(**given)
        self.coordinator.recover()

    def arm(self, plan: Plan) -> None:
        self.plan = plan
        self.storage.fault = plan.fault

    def _unknown(self) -> str | None:
        return self.plan.unknown.pop() if self.plan.unknown else None

    def run_tasks(self, batch: Batch, directive: Directive) -> TaskResults:
        counts = {name: Counts(read=batch.filtered, filtered=batch.filtered) for name in SINKS}
        prepared: list[Prepared] = []
        for task, (name, rows) in enumerate(batch.segments):
            counts[name].add(Counts(read=len(rows), written=len(rows)))
            if directive["decided"] or name not in directive["sinks"]:
                continue
            self.world.hit(Failpoint.SINK_WRITING)
            sink = self.sinks[name]
            if self.plan.speculative:
                sink.write_segment(self.world.attempt(), rows)  # a second attempt, never reported
            prepared.append(Prepared(name, task, sink.write_segment(self.world.attempt(), rows)))
            self.world.hit(Failpoint.SINK_PREPARED)
            if self.plan.task_fails:
                raise TransientError("a task failed")
        return TaskResults(prepared=prepared, counts=counts, rows_read={"source": batch.end - batch.start})


class ProtocolMachine(RuleBasedStateMachine):
    """Drivers come and go; what readers see is compared with what Spark delivered after every step."""

    variant: type[Coordinator] = Coordinator
    history: type[History] = History
    sink: type[ModelSink] = ModelSink
    options: Mapping[str, Any] = MappingProxyType({})

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
        self._patches = [
            mock.patch.object(module, "hit", self.hit) for module in (coordinator, cycle, history, commits)
        ]
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
            self.acting, self.actor = Plan(), None
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

    def _deliver(self, driver: Driver) -> None:
        if not self.planned:
            self.planned.append(self._new_batch([], 0, 1))
        index = min(self.committed + 1, len(self.planned) - 1)
        n, start, stream = self.planned[index].n, self._position(driver), self._stream()
        end = min(len(stream), start + self.attempts % 5)
        segments = tuple((name, (row,)) for name, row in stream[start:end])
        planned = Batch(n, start, end, segments, 0)
        ranges = {"source": SourceRange({"o": start} if start else None, {"o": end})}
        decided = driver.coordinator.decided(n)
        self.attempts += 1
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


class Forgets(Coordinator):
    """Broken on purpose: what was aborted after the decision is not produced again, as Flink's Kafka sink does."""

    def is_produced_again(self, checkpoint: int) -> bool:
        self._history.redo = {}
        return super().is_produced_again(checkpoint)


class ForgetsMachine(Transactions):
    variant = Forgets


class DriverPlansBelieving(DriverPlans):
    options: Mapping[str, Any] = MappingProxyType({"ignore_ledger": True})


class Believing(ProtocolMachine):
    """The control: no decision of the past is believed."""

    options: Mapping[str, Any] = MappingProxyType({"ignore_ledger": True})


class CommitsFirst(History):
    """Broken on purpose: makes things visible, then decides."""

    def _append(self, decision: Decision) -> None:
        self._carry_out(decision)
        super()._append(decision)


class CommitsFirstMachine(ProtocolMachine):
    history = CommitsFirst


class SweepsFirst(History):
    """Broken on purpose: a start removes orphans without closing the ledger to older drivers."""

    def take_over(self) -> tuple[Decision | None, int]:
        before = self._ledger.newest()
        if before is None:
            return super().take_over()
        committed = sum(len(done) for done in self._carry_out(before).done.values())
        self._newest, self._settled, self.sources = before, True, before.sources
        return before, committed


class SweepsFirstMachine(ProtocolMachine):
    history = SweepsFirst


class AbortsDecided(History):
    """Broken on purpose: what was decided is aborted when carrying it out fails."""

    def finish(self, decision: Decision, durations: Mapping[str, int]) -> Any:
        try:
            return super().finish(decision, durations)
        except Exception:
            for name, sink in decision.sinks.items():
                for part in sink.committables:
                    for path in part["sources"]:
                        self._participants[name].abort(Prepared(name, 0, {"path": path}))
            raise


class AbortsDecidedMachine(ProtocolMachine):
    history = AbortsDecided


_THOROUGH = int(os.environ.get("POUNDLOCK_PROTOCOL_EXAMPLES", "60"))
_SETTINGS = settings(
    max_examples=_THOROUGH, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
_HUNT = settings(_SETTINGS, max_examples=1000, database=None, derandomize=True, phases=[Phase.generate])


@pytest.mark.parametrize("machine", [ProtocolMachine, DriverPlans, Transactions])
def test_protocol_keeps_its_invariants_through_every_fault(machine: type[ProtocolMachine]) -> None:
    run_state_machine_as_test(machine, settings=_SETTINGS)


@pytest.mark.parametrize(
    "broken", [Believing, DriverPlansBelieving, ForgetsMachine, CommitsFirstMachine, AbortsDecidedMachine]
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
@pytest.mark.parametrize("point", list(Failpoint))
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
