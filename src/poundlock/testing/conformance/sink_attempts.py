"""What is asked of a sink when attempts of tasks die, go on too long, are aborted or come again, and of others in the same place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poundlock.checkpoint.capabilities import CommitsMany
from poundlock.checkpoint.participant import Committed, Kind
from poundlock.testing.conformance import lives
from poundlock.testing.conformance.children import Killed
from poundlock.testing.conformance.lives import SinkDriver, SinkJob, TaskOutput
from poundlock.testing.conformance.report import Broken, Checks, Skipped
from poundlock.testing.conformance.sink_rig import ANSWERING, HIDING, ONCE, SinkRig

CHECKS = Checks[SinkRig]()


@CHECKS.add("abandon", "abandon() does not raise, and nothing of what was written is ever visible", ONCE)
def abandons(rig: SinkRig) -> None:
    with rig.driver() as driver:
        rig.write(driver.directive(0), rig.task(0, 0, abandon=True))
        rig.expect_within([], "after a task gave up")
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        driver.end()
    rig.expect(rig.rows(0), "after a task gave up and was run again")


@CHECKS.add("task-killed", "a task that dies leaves nothing visible, and its next attempt is not disturbed", ANSWERING)
def task_killed(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n, die in enumerate(("writing", "prepared")):
            directive = driver.directive(n)
            _expect_killed(rig, directive, rig.task(n, 0, die=die))
            rig.expect_within(rig.rows(*range(n)), f"after a task was killed ({die})")
            driver.decide(n, rig.write(directive, *rig.tasks(n)))
        driver.end()
    rig.expect(rig.rows(0, 1), "after tasks were killed and run again")


@CHECKS.add("zombie", "an older attempt of a task that goes on when a newer one is decided changes nothing", ONCE)
def zombie(rig: SinkRig) -> None:
    gate = rig.folder / "gate"
    with rig.driver() as driver:
        directive = driver.directive(0)
        late = rig.start(directive, rig.task(0, 0, hold=str(gate)))
        lives._wait_for(gate.with_name("gate.held"))
        driver.decide(0, rig.write(directive, *rig.tasks(0)))
        gate.touch()
        _let_end(late)
        driver.decide(1, rig.write(driver.directive(1), *rig.tasks(1)))
        driver.end()
    rig.expect(rig.rows(0, 1), "after an older attempt of a task prepared when its checkpoint was decided")
    rig.life(end=True)
    rig.expect(rig.rows(), "after the next start")


@CHECKS.add("zombie-of-older-driver", "a task of a driver that is gone can do no harm to a newer one's", ONCE)
def zombie_of_an_older_driver(rig: SinkRig) -> None:
    gate = rig.folder / "gate"
    with rig.driver() as driver:
        late = rig.start(driver.directive(0), rig.task(0, 0, hold=str(gate)))
        lives._wait_for(gate.with_name("gate.held"))
    with rig.driver() as driver:
        outputs = rig.write(driver.directive(0), *rig.tasks(0))
        gate.touch()
        _let_end(late)
        driver.decide(0, outputs)
        driver.end()
    rig.expect(rig.rows(0), "after a task of an older driver prepared beside those of the newer one")
    rig.life(end=True)
    rig.expect(rig.rows(), "after the next start")


@CHECKS.add("abort-twice", "abort() may be called any number of times, from any process, and for what is gone", HIDING)
def abort_twice(rig: SinkRig) -> None:
    with rig.driver() as driver:
        gone = rig.write(driver.directive(0), *rig.tasks(0))
        prepared = rig.prepared(gone)
        for one in prepared:
            driver.participant.abort(one)
        rig.children.call(lives.abort, rig.job, prepared, 2)
        rig.expect_within([], "after an abort")
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        rig.children.call(lives.abort, rig.job, prepared)
        driver.end()
    rig.expect(rig.rows(0), "after three aborts of an attempt and the commit of another")


@CHECKS.add("abort-of-another", "attempts have output of their own: aborting one leaves the other as it is", HIDING)
def abort_of_another(rig: SinkRig) -> None:
    with rig.driver() as driver:
        directive = driver.directive(0)
        one, two = rig.write(directive, rig.task(0, 0), rig.task(0, 1))
        (again,) = _newer(rig, driver, one)
        rig.children.call(lives.abort, rig.job, rig.prepared([one]))
        driver.decide(0, [again, two])
        driver.end()
    rig.expect(rig.rows(0), "after one attempt of a task was aborted and another one committed")


def _newer(rig: SinkRig, driver: SinkDriver, one: TaskOutput) -> list[TaskOutput]:
    outputs = rig.write(driver.directive(0), rig.task(0, one.subtask))
    if outputs[0].payloads and outputs[0].payloads == one.payloads:
        raise Broken(f"two attempts of a task prepared the same output: {one.payloads!r}")
    return outputs


@CHECKS.add("commit-twice", "commit() does nothing where it was done before, from any process", ONCE)
def commit_twice(rig: SinkRig) -> None:
    with rig.driver() as driver:
        committables = list(driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0))))
        committables += driver.end()
        rig.expect(rig.rows(0), "after a commit")
        for _ in range(2):
            aborted = rig.children.call(lives.commit, rig.job, committables)
            if aborted:
                raise Broken(f"a second commit, from another process, says that it was aborted: {aborted[0]}")
        for committable in committables:
            driver.participant.commit(committable)
    rig.expect(rig.rows(0), "after four commits of the same, two of them from other processes")
    rig.life(end=True)
    rig.expect(rig.rows(), "after the next start")


@CHECKS.add(
    "commit-many",
    "commit_many() gives an outcome for each committable, in their order, and does nothing where it was done before",
    ONCE,
)
def commit_many(rig: SinkRig) -> None:
    with rig.driver() as driver:
        sink = driver.participant
        if not isinstance(sink, CommitsMany):
            raise Skipped("it commits one by one")
        committables = list(driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0))))
        committables += driver.end()
        rig.expect(rig.rows(0), "after a commit of many")
        for _ in range(2):
            outcomes = list(sink.commit_many(iter(committables)))
            if len(outcomes) != len(committables):
                raise Broken(f"commit_many() gave {len(outcomes)} outcomes for {len(committables)} committables")
            if wrong := [outcome for outcome in outcomes if not isinstance(outcome, Committed)]:
                raise Broken(f"commit_many() of what is committed says: {wrong[0]!r}")
        if any(True for _ in sink.commit_many(iter(()))):
            raise Broken("commit_many() of nothing gave an outcome")
    rig.expect(rig.rows(0), "after three commits of the same")


@CHECKS.add("replay-decided", "a decided checkpoint that is delivered again changes nothing", ANSWERING)
def replay_decided(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
    with rig.driver() as driver:
        directive = driver.directive(0)
        if not directive.decided:
            raise Broken("the decision was not there any more")
        # What a zombie of the first attempt reports is aborted: its checkpoint is decided.
        stale = replace(directive, decided=False, sinks={"out": driver.participant.directive(driver.state)})
        outputs = (
            rig.write(stale, rig.task(0, 0)) if rig.kind is Kind.TRANSACTIONAL else rig.write(directive, *rig.tasks(0))
        )
        driver.decide(0, outputs)
        driver.decide(1, rig.write(driver.directive(1), *rig.tasks(1)))
        driver.end()
    rig.expect(rig.rows(0, 1), "after a decided checkpoint was delivered again")


@CHECKS.add(
    "sweep-orphans", "sweep() finds what dead attempts of this job prepared, asks `check`, and removes it", HIDING
)
def sweep_orphans(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        directive = driver.directive(1)
        _expect_killed(rig, directive, rig.task(1, 0, die="writing"))
        _expect_killed(rig, directive, rig.task(1, 1, die="prepared"))
        state = driver.state
    before, _ = rig.sweep(state, remove=False)
    if not before and rig.subject.finds_orphans:
        raise Broken(
            "a task was killed after it had prepared, and sweep() finds nothing; "
            "where the system cannot list what is open, or leaves nothing, say orphans_found=False"
        )
    _, stopped = rig.sweep(state, remove=True, fenced=True)
    if before and not stopped:
        raise Broken("sweep(remove=True) did not call `check` before it removed something")
    again, _ = rig.sweep(state, remove=False)
    if sorted(again) != sorted(before):
        raise Broken(f"a sweep that was stopped by a newer driver removed something: {before} became {again}")
    rig.sweep(state, remove=True)
    left, _ = rig.sweep(state, remove=False)
    if left:
        raise Broken(f"after a sweep this is still there: {left}")
    rig.life(end=True)
    rig.expect(rig.rows(), "after a sweep, and the checkpoint taken again")


@CHECKS.add("sweep-keeps", "sweep() leaves what is finished and what the state names")
def sweep_keeps(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            driver.decide(n, rig.write(driver.directive(n), *rig.tasks(n)))
            rig.sweep(driver.state, remove=True)
        driver.end()
        rig.sweep(driver.state, remove=True)
    rig.expect(rig.rows(0, 1), "after sweeps behind decisions")


@CHECKS.add("other-job", "another job in the same place is left alone", ANSWERING)
def other_job(rig: SinkRig) -> None:
    other = rig.new_job("other", rig.subject.beside(rig.sink))
    _beside(rig, other, "another job")


@CHECKS.add("other-sink", "another sink of the same job in the same place is left alone", ANSWERING)
def other_sink(rig: SinkRig) -> None:
    other = rig.new_job("other", rig.subject.beside(rig.sink), job_id=rig.job.job_id, sink_name="out2")
    _beside(rig, other, "another sink of the job")


def _beside(rig: SinkRig, other: SinkJob, who: str) -> None:
    with rig.driver(other) as its:
        # It has pending data, and prepared data that is not decided, all the while.
        its.decide(0, rig.write(its.directive(0), rig.task(0, 0), job=other))
        waiting = rig.write(its.directive(1), rig.task(1, 0), job=other)
        with rig.driver() as driver:
            rig.sweep(driver.state, remove=True)
            driver.decide(0, rig.write(driver.directive(0), rig.task(0, 1)))
            driver.end()
            rig.sweep(driver.state, remove=True)
        its.decide(1, waiting)
        its.end()
    rows = [row for task in (rig.task(0, 0), rig.task(1, 0), rig.task(0, 1)) for rows in task.rows for row in rows]
    rig.expect(rows, f"after a run beside {who} in the same place")


def _expect_killed(rig: SinkRig, directive: Any, task: lives.Task) -> None:
    try:
        rig.write(directive, task)
    except Killed:
        return
    raise AssertionError("a task that should have been killed came to its end")


def _let_end(child: Any) -> None:
    """Wait for a zombie; that it is refused is as good as that it is ignored."""
    try:
        child.result()
    except Exception:
        return
