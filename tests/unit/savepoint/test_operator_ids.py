"""What state of our own is made of, from one start of a job to the next: Spark does not see a change of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poundlock import DatagenSource, DefinitionError, FileSink, Job
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import Epoch, newest_life
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.savepoints.checkpoint_as_savepoint import described
from poundlock.plan.plan import Plan, make_plan
from poundlock.savepoint.operator_ids import refuse_changed
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

CLOCK = SystemClock()
WHO = Identity(job_id="0" * 32, name="job", created_ms=0)


def plan_of(key: str = "user", name: str = "job", **more: Any) -> Plan:
    job = Job(name, on_error="fail", **more)
    rows = job.from_source(DatagenSource("user string, n int", rate=1), name="in")
    rows.key_by(key).sum("n", name="total").sink_to(FileSink("/out", format="json"), name="out")
    return make_plan(job)


def start(storage: LocalStorage, plan: Plan, *, checkpoint: int) -> None:
    Epoch.claim(storage, clock=CLOCK, sinks={}, operators=described(plan)).release()
    Ledger(storage).append(
        Decision(
            number=0,
            occasion="checkpoint",
            checkpoint=checkpoint,
            job_id="0" * 32,
            epoch=1,
            time_ms=0,
            sources={},
            sinks={},
        )
    )


def refuse(storage: LocalStorage, plan: Plan) -> None:
    refuse_changed(storage.root, WHO, newest_life(storage), Ledger(storage).newest(), plan)


@pytest.mark.parametrize("changed", [{"max_parallelism": 64}, {"key": "n"}])
def test_state_of_other_keys_or_key_groups_is_not_gone_on_from(tmp_path: Path, changed: dict[str, Any]) -> None:
    storage = LocalStorage(str(tmp_path))
    start(storage, plan_of(), checkpoint=3)
    refuse(storage, plan_of())
    with pytest.raises(DefinitionError, match="'total' cannot go on from its state: its key"):
        refuse(storage, plan_of(**changed))


def test_before_the_first_checkpoint_there_is_no_state(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    refuse(storage, plan_of())
    start(storage, plan_of(), checkpoint=-1)
    refuse(storage, plan_of(max_parallelism=64))


def unnamed(name: str, sink: FileSink | None = None) -> Plan:
    job = Job(name, dead_letters="/dead")
    job.from_source(DatagenSource("user string, n int", rate=1)).sink_to(sink or FileSink("/out", format="json"))
    return make_plan(job)


def test_a_name_may_change_where_an_operator_has_stayed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    start(storage, plan_of(), checkpoint=3)
    refuse(storage, plan_of(name="other"))
    refuse(storage, unnamed("job"))
    for strange in (unnamed("other"), unnamed("source-0")):
        with pytest.raises(DefinitionError, match=r"is of job 'job', and '.*' has no operator in common") as caught:
            refuse(storage, strange)
        assert "checkpoint_dir=" in caught.value.next


def test_ids_that_nobody_gave_tell_only_where_there_are_no_others(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    start(storage, unnamed("job"), checkpoint=3)
    refuse(storage, unnamed("other"))
    with pytest.raises(DefinitionError, match="has no operator in common"):
        refuse(storage, plan_of(name="other"))


def test_a_folder_of_which_nothing_is_known_is_its_jobs_alone(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(DefinitionError, match="has no operator in common"):
        refuse(storage, plan_of(name="other"))
    refuse(storage, plan_of())
