"""What kills a driver: at each step of a checkpoint, and within a commit; a fresh process has to go on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import JSON, Kind
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.conformance import lives
from poundlock.testing.conformance.children import Killed
from poundlock.testing.conformance.report import Broken, Checks, Skipped
from poundlock.testing.conformance.sink_rig import ANSWERING, SinkRig

_COMMITTING = (Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED)
_WITHIN = 5


CHECKS = Checks[SinkRig]()


def _killed_at(point: Failpoint) -> Callable[[SinkRig], None]:
    def test(rig: SinkRig) -> None:
        rig.life(only=[0], end=False)
        mark = rig.folder / "hit"
        try:
            rig.life(failpoints=f"{point.value}:kill;once={mark}")
        except Killed:
            pass
        else:
            if point in _COMMITTING and rig.kind is not Kind.TRANSACTIONAL:
                raise Skipped("the sink has nothing to commit")
            raise Broken(f"{point.value} was never passed: no decision named anything to commit")
        decided = _decided(rig)
        rig.expect_within(rig.rows(*range(decided + 1)) if decided >= 0 else [], f"after a kill at {point.value}")
        rig.life()
        rig.expect(rig.rows(), f"after a kill at {point.value} and a start from a fresh process")
        rig.life()
        rig.expect(rig.rows(), "after one more start")

    return test


for _point in Failpoint:
    if _point is not Failpoint.STATE_WRITING:  # a sink has no keyed state
        CHECKS.add(
            f"crash.{_point.value}",
            f"killed at {_point.value}, a job goes on from a fresh process with nothing lost and nothing twice",
            ANSWERING,
        )(_killed_at(_point))


def _decided(rig: SinkRig) -> int:
    newest = Ledger(LocalStorage(rig.job.folder)).newest()
    return -1 if newest is None else newest.checkpoint


@CHECKS.add(
    "crash-within-commit",
    "a process that dies anywhere within commit() leaves what another commit() can finish",
    ANSWERING,
)
def within_commit(rig: SinkRig) -> None:
    steps = int(rig.children.call(lives.commit_steps, rig.job, _decided_not_committed(rig)))
    rig.expect(rig.rows(0), "after a commit from a process that did not decide")
    for part in range(_WITHIN):
        again = rig.fresh(f"step-{part}")
        at = 1 + part * max(0, steps - 1) // (_WITHIN - 1)
        committables = _decided_not_committed(again)
        with suppress(Killed):
            again.children.call(lives.commit_steps, again.job, committables, at)
        again.life()
        again.expect(
            again.rows(), f"after a kill at step {at} of {steps} of commit(), and a start from a fresh process"
        )


def _decided_not_committed(rig: SinkRig) -> Sequence[JSON]:
    """Decide a checkpoint and die before anything is committed; return what was decided."""
    try:
        rig.life(only=[0], failpoints=f"{Failpoint.SINK_COMMITTING.value}:kill")
    except Killed:
        newest = Ledger(LocalStorage(rig.job.folder)).newest()
        assert newest is not None
        return newest.sinks["out"].committables
    raise Skipped("the sink has nothing to commit")
