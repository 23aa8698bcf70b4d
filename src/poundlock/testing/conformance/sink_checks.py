"""What is asked of a sink while all goes well; of tasks that die or come twice in `sink_attempts`, of drivers in `sink_crashes`."""

from __future__ import annotations

import json
import pickle
from typing import Any

from poundlock.checkpoint.capabilities import Inspectable, takes_columns
from poundlock.checkpoint.participant import Occasion
from poundlock.checkpoint.validation import holds_pending
from poundlock.spark.pickled_functions import shipped
from poundlock.testing.conformance import lives
from poundlock.testing.conformance.lives import SinkDriver, SinkJob
from poundlock.testing.conformance.report import Broken, Checks, Skipped
from poundlock.testing.conformance.sink_rig import CHECKPOINTS, HIDING, SinkRig, same_json

_DIRECTIVE_BYTES = 32 * 1024

CHECKS = Checks[SinkRig]()


def _rounds(rig: SinkRig, driver: SinkDriver) -> None:
    """Take all checkpoints and the end, with tasks of their own processes."""
    for n in range(CHECKPOINTS):
        driver.decide(n, rig.write(driver.directive(n), *rig.tasks(n)))
    driver.end()


@CHECKS.add("pickling", "a sink travels to the tasks pickled, before and after it was used; describe_json is JSON")
def travels(rig: SinkRig) -> None:
    again = pickle.loads(rig.job.sink)
    if type(again).__qualname__ != type(rig.sink).__qualname__:
        raise Broken(f"a {type(rig.sink).__name__} came back as a {type(again).__name__}")
    job = SinkJob(shipped(again), rig.job.folder, rig.job.name, rig.job.job_id)
    if job.participant().kind is not rig.kind:
        raise Broken(f"its kind was {rig.kind} and came back as {job.participant().kind}")
    participant = rig.job.participant()
    if isinstance(participant, Inspectable):
        description = participant.describe_json()
        same_json(description, "describe_json()")
        if "kind" not in description:
            raise Broken(f'describe_json() has no "kind": {description!r}')
    with rig.driver(job) as driver:
        driver.decide(0, rig.write(driver.directive(0), *rig.tasks(0), job=job))
        shipped(driver.participant)  # after work it still has to travel: every checkpoint has tasks
        driver.decide(1, rig.write(driver.directive(1), *rig.tasks(1), job=job))
        driver.end()
    rig.expect(rig.rows(0, 1), "after it was pickled twice and two checkpoints")


@CHECKS.add("commits", "everything that decisions name becomes visible, once, at the latest at the end of input")
def commits(rig: SinkRig) -> None:
    with rig.driver() as driver:
        _rounds(rig, driver)
        if holds_pending(driver.state):
            raise Broken(f"after the end of input its state still holds pending data: {driver.state!r}")
    rig.expect(rig.rows(), f"after {CHECKPOINTS} checkpoints and the end of input")


@CHECKS.add("hidden", "nothing is visible before a decision names it, not even when it is verified and staged", HIDING)
def hidden(rig: SinkRig) -> None:
    with rig.driver() as driver:
        outputs = rig.write(driver.directive(0), *rig.tasks(0))
        rig.expect_within([], "prepared, and not decided")
        driver.participant.verify(rig.prepared(outputs))
        driver.participant.stage(driver.state, rig.prepared(outputs), Occasion.CHECKPOINT, 0)
        rig.expect_within([], "verified and staged, and not decided")
        driver.decide(0, outputs)
        driver.end()
    rig.expect(rig.rows(0), "after the decision and the end of input")


@CHECKS.add(
    "plain-values", 'payloads, committables and state are JSON objects with "v"; a directive is JSON below 32 KB'
)
def plain(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            directive = driver.directive(n)
            given = directive.sinks["out"]
            if json.loads(json.dumps(given)) != given:
                raise Broken(f"directive() is not plain JSON: {given!r}")
            if len(json.dumps(given)) > _DIRECTIVE_BYTES:
                raise Broken(f"directive() has {len(json.dumps(given))} bytes of JSON")
            outputs = rig.write(directive, *rig.tasks(n))
            for one in outputs:
                for payload in one.payloads:
                    same_json(payload, "a prepared payload")
                if all("rows" in payload for payload in one.payloads) and one.payloads:
                    rows = sum(payload["rows"] for payload in one.payloads)
                    if rows != one.written:
                        raise Broken(f"a task wrote {one.written} rows and its payloads say {rows}")
            for committable in driver.decide(n, outputs):
                same_json(committable, "a committable")
            same_json(driver.state, "the state")
        for committable in driver.end():
            same_json(committable, "a committable")
        same_json(driver.state, "the state")


@CHECKS.add("stage-pure", "stage() is a function of its arguments, touches nothing and changes none of them")
def stage_pure(rig: SinkRig) -> None:
    with rig.driver() as driver:
        for n in range(2):
            outputs = rig.write(driver.directive(n), *rig.tasks(n))
            prepared, state = rig.prepared(outputs), driver.state
            kept = json.dumps([state, [item.payload for item in prepared]], sort_keys=True)
            now = 1_700_000_000_000
            one = driver.participant.stage(state, prepared, Occasion.CHECKPOINT, now)
            two = rig.job.participant().stage(driver.state, prepared, Occasion.CHECKPOINT, now)
            if (one.state, list(one.committables)) != (two.state, list(two.committables)):
                raise Broken(f"two calls with the same arguments gave {one!r} and {two!r}")
            if json.dumps([state, [item.payload for item in prepared]], sort_keys=True) != kept:
                raise Broken("stage() changed its arguments")
            driver.decide(n, outputs)
        driver.end()
    rig.expect(rig.rows(0, 1), "after two checkpoints that were staged twice")


@CHECKS.add("rolls", "next_roll_ms() names a time at which a roll does something; None when nothing waits")
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


@CHECKS.add("empty", "a checkpoint without rows, and a writer that gets none, make nothing visible and harm nothing")
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


@CHECKS.add("chunk-forms", "a writer takes rows as Arrow columns, as dicts unless `bulk`, and as lines")
def forms(rig: SinkRig) -> None:
    bulk = takes_columns(rig.job.participant())
    raw = rig.subject.schema.names == ["value"] and all(isinstance(row["value"], bytes) for row in rig.subject.rows)
    wanted: list[Any] = ["batch", *([] if bulk else ["records"]), *(["lines"] if raw else [])]
    with rig.driver() as driver:
        for n, form in enumerate(wanted):
            driver.decide(n, rig.write(driver.directive(n), rig.task(n, 0, form=form), rig.task(n, 1, form=form)))
        driver.end()
    rig.expect(rig.rows(*range(len(wanted))), f"rows that came as {', '.join(wanted)}")


@CHECKS.add(
    "rejects", "a row that cannot be written goes to context.reject, is not counted as written, and keeps no other back"
)
def rejects(rig: SinkRig) -> None:
    bad, good = rig.subject.bad_rows, rig.task(0, 0)
    if not bad:
        raise Skipped("no bad_rows were given")
    mixed = lives.Task(0, 0, rig.subject.schema, [[*good.rows[0], *bad], good.rows[1]])
    with rig.driver() as driver:
        (output,) = rig.write(driver.directive(0), mixed)
        if (output.written, len(output.rejects)) != (output.read - len(bad), len(bad)):
            raise Broken(
                f"of {output.read} rows, {len(bad)} of them bad, {output.written} count as written and {len(output.rejects)} were rejected"
            )
        for reject in output.rejects:
            if not reject.reason or not isinstance(reject.value, bytes) or not reject.where:
                raise Broken(f"a rejected record needs a reason, its value as bytes and its place: {reject!r}")
        driver.decide(0, [output])
        driver.end()
    rig.expect([row for rows in good.rows for row in rows], "after a checkpoint with bad rows")
