"""What is asked of a sink, check by check; what kills a driver is in `sink_crashes`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

from poundlock.checkpoint.checks import holds_pending
from poundlock.checkpoint.participant import JSON, Inspectable, Kind, Occasion, Prepared
from poundlock.plan.shipping import shipped
from poundlock.testing.conformance import lives
from poundlock.testing.conformance.children import Killed
from poundlock.testing.conformance.lives import Driver, Job, Written
from poundlock.testing.conformance.report import Broken, Check, Skipped
from poundlock.testing.conformance.sink_rig import CHECKPOINTS, SinkRig, same_json

__all__ = ["CHECKS", "HIDING", "ONCE"]

HIDING = frozenset({Kind.TRANSACTIONAL})
ONCE = frozenset({Kind.TRANSACTIONAL, Kind.IDEMPOTENT, Kind.SKIPPING})
ANSWERING = ONCE | {Kind.APPEND}
_DIRECTIVE_BYTES = 32 * 1024


def _rounds(rig: SinkRig, driver: Driver) -> None:
    """Take all checkpoints and the end, with tasks of their own processes."""
    for n in range(CHECKPOINTS):
        driver.decide(n, rig.write(driver.directive(n), *rig.tasks(n)))
    driver.end()


def travels(rig: SinkRig) -> None:
    again = pickle.loads(rig.job.sink)
    if type(again).__qualname__ != type(rig.sink).__qualname__:
        raise Broken(f"a {type(rig.sink).__name__} came back as a {type(again).__name__}")
    job = Job(shipped(again), rig.job.folder, rig.job.name, rig.job.job_id)
    if job.participant().kind is not rig.kind:
        raise Broken(f"its kind was {rig.kind} and came back as {job.participant().kind}")
    participant = rig.job.participant()
    if isinstance(participant, Inspectable):
        said = participant.describe_json()
        same_json(said, "describe_json()")
        if "kind" not in said:
            raise Broken(f'describe_json() has no "kind": {said!r}')
    with rig.driver(job) as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0), job=job))
        shipped(driver.participant)  # after work it still has to travel: every checkpoint has tasks
        driver.decide(1, rig.write(driver.directive(1), *rig.tasks(1), job=job))
        driver.end()
    rig.expect(rig.rows(0, 1), "after it was pickled twice and two checkpoints")


def commits(rig: SinkRig) -> None:
    with rig.driver() as driver:
        _rounds(rig, driver)
        if holds_pending(driver.state):
            raise Broken(f"after the end of input its state still holds pending data: {driver.state!r}")
    rig.expect(rig.rows(), f"after {CHECKPOINTS} checkpoints and the end of input")


def hidden(rig: SinkRig) -> None:
    with rig.driver() as driver:
        found = rig.write(driver.directive(0), *rig.tasks(0))
        rig.expect_within([], "prepared, and not decided")
        driver.participant.verify(_prepared(rig, found))
        driver.participant.stage(driver.state, _prepared(rig, found), Occasion.CHECKPOINT, 0)
        rig.expect_within([], "verified and staged, and not decided")
        driver.decide(0, found)
        driver.end()
    rig.expect(rig.rows(0), "after the decision and the end of input")


def plain(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            directive = driver.directive(n)
            told = directive["sinks"]["out"]
            if json.loads(json.dumps(told)) != told:
                raise Broken(f"directive() is not plain JSON: {told!r}")
            if len(json.dumps(told)) > _DIRECTIVE_BYTES:
                raise Broken(f"directive() has {len(json.dumps(told))} bytes of JSON")
            found = rig.write(directive, *rig.tasks(n))
            for one in found:
                for payload in one.payloads:
                    same_json(payload, "a prepared payload")
                if all("rows" in payload for payload in one.payloads) and one.payloads:
                    rows = sum(payload["rows"] for payload in one.payloads)
                    if rows != one.written:
                        raise Broken(f"a task wrote {one.written} rows and its payloads say {rows}")
            for committable in driver.decide(n, found):
                same_json(committable, "a committable")
            same_json(driver.state, "the state")
        for committable in driver.end():
            same_json(committable, "a committable")
        same_json(driver.state, "the state")


def stage_pure(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            found = rig.write(driver.directive(n), *rig.tasks(n))
            prepared, state = _prepared(rig, found), driver.state
            kept = json.dumps([state, [item.payload for item in prepared]], sort_keys=True)
            now = 1_700_000_000_000
            one = driver.participant.stage(state, prepared, Occasion.CHECKPOINT, now)
            two = rig.job.participant().stage(driver.state, prepared, Occasion.CHECKPOINT, now)
            if (one.state, list(one.committables)) != (two.state, list(two.committables)):
                raise Broken(f"two calls with the same arguments gave {one!r} and {two!r}")
            if json.dumps([state, [item.payload for item in prepared]], sort_keys=True) != kept:
                raise Broken("stage() changed its arguments")
            driver.decide(n, found)
        driver.end()
    rig.expect(rig.rows(0, 1), "after two checkpoints that were staged twice")


def rolls(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        due, state = driver.participant.next_roll_ms(driver.state), driver.state
        if due is not None:
            staged = driver.participant.stage(state, [], Occasion.ROLL, due)
            if not staged.committables and staged.state == state:
                raise Broken(f"next_roll_ms() says {due}, and a roll at that time changes nothing")
        driver.end()
        if driver.participant.next_roll_ms(driver.state) is not None:
            raise Broken("after the end of input next_roll_ms() still names a time")
    rig.expect(rig.rows(0), "after the end of input")


def empty(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, [])
        nothing = rig.write(driver.directive(1), lives.Task(1, 0, rig.subject.schema, [[]]))
        if nothing[0].written:
            raise Broken(f"a chunk without rows counted as {nothing[0].written} written")
        driver.decide(1, nothing)
        rig.expect([], "after two empty checkpoints")
        driver.decide(2, rig.write(driver.directive(2), rig.task(2, 0)))
        driver.decide(3, [])
        driver.end()
    rig.expect([row for rows in rig.task(2, 0).rows for row in rows], "after empty checkpoints and one with rows")


def forms(rig: SinkRig) -> None:
    bulk = getattr(rig.job.participant(), "bulk", False)
    raw = rig.subject.schema.names == ["value"] and all(isinstance(row["value"], bytes) for row in rig.subject.rows)
    wanted: list[Any] = ["batch", *([] if bulk else ["records"]), *(["lines"] if raw else [])]
    with rig.driver() as driver:
        for n, form in enumerate(wanted):
            driver.decide(n, rig.write(driver.directive(n), rig.task(n, 0, form=form), rig.task(n, 1, form=form)))
        driver.end()
    rig.expect(rig.rows(*range(len(wanted))), f"rows that came as {', '.join(wanted)}")


def rejects(rig: SinkRig) -> None:
    bad, good = rig.subject.bad_rows, rig.task(0, 0)
    if not bad:
        raise Skipped("no bad_rows were given")
    mixed = lives.Task(0, 0, rig.subject.schema, [[*good.rows[0], *bad], good.rows[1]])
    with rig.driver() as driver:
        (found,) = rig.write(driver.directive(0), mixed)
        if (found.written, len(found.rejects)) != (found.read - len(bad), len(bad)):
            raise Broken(
                f"of {found.read} rows, {len(bad)} of them bad, {found.written} count as written and {len(found.rejects)} were rejected"
            )
        for reject in found.rejects:
            if not reject.reason or not isinstance(reject.value, bytes) or not reject.where:
                raise Broken(f"a rejected record needs a reason, its value as bytes and its place: {reject!r}")
        driver.decide(0, [found])
        driver.end()
    rig.expect([row for rows in good.rows for row in rows], "after a checkpoint with bad rows")


def abandons(rig: SinkRig) -> None:
    with rig.driver() as driver:
        rig.write(driver.directive(0), rig.task(0, 0, abandon=True))
        rig.expect_within([], "after a task gave up")
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        driver.end()
    rig.expect(rig.rows(0), "after a task gave up and was run again")


def task_killed(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n, die in enumerate(("writing", "prepared")):
            directive = driver.directive(n)
            _expect_killed(rig, directive, rig.task(n, 0, die=die))
            rig.expect_within(rig.rows(*range(n)), f"after a task was killed ({die})")
            driver.decide(n, rig.write(directive, *rig.tasks(n)))
        driver.end()
    rig.expect(rig.rows(0, 1), "after tasks were killed and run again")


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


def zombie_of_an_older_driver(rig: SinkRig) -> None:
    gate = rig.folder / "gate"
    with rig.driver() as driver:
        late = rig.start(driver.directive(0), rig.task(0, 0, hold=str(gate)))
        lives._wait_for(gate.with_name("gate.held"))
    with rig.driver() as driver:
        found = rig.write(driver.directive(0), *rig.tasks(0))
        gate.touch()
        _let_end(late)
        driver.decide(0, found)
        driver.end()
    rig.expect(rig.rows(0), "after a task of an older driver prepared beside those of the newer one")
    rig.life(end=True)
    rig.expect(rig.rows(), "after the next start")


def abort_twice(rig: SinkRig) -> None:
    with rig.driver() as driver:
        gone = rig.write(driver.directive(0), *rig.tasks(0))
        pairs = _pairs(gone)
        for one in _prepared(rig, gone):
            driver.participant.abort(one)
        rig.children.call(lives.abort, rig.job, pairs, 2)
        rig.expect_within([], "after an abort")
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        rig.children.call(lives.abort, rig.job, pairs)
        driver.end()
    rig.expect(rig.rows(0), "after three aborts of an attempt and the commit of another")


def abort_of_another(rig: SinkRig) -> None:
    with rig.driver() as driver:
        directive = driver.directive(0)
        one, two = rig.write(directive, rig.task(0, 0), rig.task(0, 1))
        (again,) = _newer(rig, driver, one)
        rig.children.call(lives.abort, rig.job, _pairs([one]))
        driver.decide(0, [again, two])
        driver.end()
    rig.expect(rig.rows(0), "after one attempt of a task was aborted and another one committed")


def _newer(rig: SinkRig, driver: Driver, one: Written) -> list[Written]:
    found = rig.write(driver.directive(0), rig.task(0, one.subtask))
    if found[0].payloads and found[0].payloads == one.payloads:
        raise Broken(f"two attempts of a task prepared the same output: {one.payloads!r}")
    return found


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


def replay_decided(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
    with rig.driver() as driver:
        directive = driver.directive(0)
        if not directive["decided"]:
            raise Broken("the decision was not found again")
        # What a zombie of the first attempt reports is aborted: its checkpoint is decided.
        stale = {**directive, "decided": False, "sinks": {"out": driver.participant.directive(driver.state)}}
        found = (
            rig.write(stale, rig.task(0, 0)) if rig.kind is Kind.TRANSACTIONAL else rig.write(directive, *rig.tasks(0))
        )
        driver.decide(0, found)
        driver.decide(1, rig.write(driver.directive(1), *rig.tasks(1)))
        driver.end()
    rig.expect(rig.rows(0, 1), "after a decided checkpoint was delivered again")


def sweep_orphans(rig: SinkRig) -> None:
    with rig.driver() as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0)))
        directive = driver.directive(1)
        _expect_killed(rig, directive, rig.task(1, 0, die="writing"))
        _expect_killed(rig, directive, rig.task(1, 1, die="prepared"))
        state = driver.state
    before, _ = rig.sweep(state, remove=False)
    if not before and rig.subject.orphans_found:
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


def sweep_keeps(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            driver.decide(n, rig.write(driver.directive(n), *rig.tasks(n)))
            rig.sweep(driver.state, remove=True)
        driver.end()
        rig.sweep(driver.state, remove=True)
    rig.expect(rig.rows(0, 1), "after sweeps behind decisions")


def other_job(rig: SinkRig) -> None:
    other = rig.new_job("other", rig.subject.second(rig.sink))
    _beside(rig, other, "another job")


def other_sink(rig: SinkRig) -> None:
    other = rig.new_job("other", rig.subject.second(rig.sink), job_id=rig.job.job_id, sink_name="out2")
    _beside(rig, other, "another sink of the job")


def _beside(rig: SinkRig, other: Job, who: str) -> None:
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


# Help


def _prepared(rig: SinkRig, found: Sequence[Written]) -> list[Prepared]:
    return [Prepared("out", one.subtask, payload) for one in found for payload in one.payloads]


def _pairs(found: Sequence[Written]) -> list[tuple[int, JSON]]:
    return [(one.subtask, payload) for one in found for payload in one.payloads]


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


CHECKS: Sequence[Check[SinkRig]] = [
    Check(
        "pickling", "a sink travels to the tasks pickled, before and after it was used; describe_json is JSON", travels
    ),
    Check(
        "commits", "everything that decisions name becomes visible, once, at the latest at the end of input", commits
    ),
    Check(
        "hidden",
        "nothing is visible before a decision names it, not even when it is verified and staged",
        hidden,
        HIDING,
    ),
    Check(
        "plain-values",
        'payloads, committables and state are JSON objects with "v"; a directive is JSON below 32 KB',
        plain,
    ),
    Check("stage-pure", "stage() is a function of its arguments, touches nothing and changes none of them", stage_pure),
    Check("rolls", "next_roll_ms() names a time at which a roll does something; None when nothing waits", rolls),
    Check(
        "empty", "a checkpoint without rows, and a writer that gets none, make nothing visible and harm nothing", empty
    ),
    Check("chunk-forms", "a writer takes rows as Arrow columns, as dicts unless `bulk`, and as lines", forms),
    Check(
        "rejects",
        "a row that cannot be written goes to context.reject, is not counted as written, and keeps no other back",
        rejects,
    ),
    Check("abandon", "abandon() does not raise, and nothing of what was written is ever visible", abandons, ONCE),
    Check(
        "task-killed",
        "a task that dies leaves nothing visible, and its next attempt is not disturbed",
        task_killed,
        ANSWERING,
    ),
    Check(
        "zombie", "an older attempt of a task that goes on when a newer one is decided changes nothing", zombie, ONCE
    ),
    Check(
        "zombie-of-older-driver",
        "a task of a driver that is gone can do no harm to a newer one's",
        zombie_of_an_older_driver,
        ONCE,
    ),
    Check(
        "abort-twice",
        "abort() may be called any number of times, from any process, and for what is gone",
        abort_twice,
        HIDING,
    ),
    Check(
        "abort-of-another",
        "attempts have output of their own: aborting one leaves the other as it is",
        abort_of_another,
        HIDING,
    ),
    Check("commit-twice", "commit() does nothing where it was done before, from any process", commit_twice, ONCE),
    Check("replay-decided", "a decided checkpoint that is delivered again changes nothing", replay_decided, ANSWERING),
    Check(
        "sweep-orphans",
        "sweep() finds what dead attempts of this job prepared, asks `check`, and removes it",
        sweep_orphans,
        HIDING,
    ),
    Check("sweep-keeps", "sweep() leaves what is finished and what the state names", sweep_keeps),
    Check("other-job", "another job in the same place is left alone", other_job, ANSWERING),
    Check("other-sink", "another sink of the same job in the same place is left alone", other_sink, ANSWERING),
]
