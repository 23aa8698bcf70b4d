from __future__ import annotations

from pathlib import Path

import pytest

from poundlock import DatagenSource, FileSink, Job, SparkSource
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger import Ledger
from poundlock.errors import DefinitionError
from poundlock.plan.plan import make_plan
from poundlock.runtime.backends import refuse_other_host
from poundlock.storage import LocalStorage


def job(source: DatagenSource | SparkSource) -> Job:
    made = Job("made")
    made.from_source(source, name="in").sink_to(FileSink("out", row="value"), name="out")
    return made


OURS, SPARKS = DatagenSource(count=1), SparkSource("rate")


@pytest.mark.parametrize("source", [OURS, SPARKS])
def test_a_new_folder_is_for_both(tmp_path: Path, source: DatagenSource | SparkSource) -> None:
    refuse_other_host(LocalStorage(str(tmp_path)), make_plan(job(source)), next="begin anew")


@pytest.mark.parametrize(("source", "refused"), [(OURS, True), (SPARKS, False)])
def test_the_checkpoint_of_a_query(tmp_path: Path, source: DatagenSource | SparkSource, refused: bool) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create_exclusive("spark/offsets/0", b"v2\n")
    if refused:
        with pytest.raises(DefinitionError, match="is of a job on Structured Streaming") as error:
            refuse_other_host(storage, make_plan(job(source)), next="begin anew")
        assert "begin anew" in error.value.next
    else:
        refuse_other_host(storage, make_plan(job(source)), next="begin anew")


@pytest.mark.parametrize(("source", "refused"), [(OURS, False), (SPARKS, True)])
def test_the_checkpoint_of_a_loop_of_our_own(
    tmp_path: Path, source: DatagenSource | SparkSource, refused: bool
) -> None:
    storage = LocalStorage(str(tmp_path))
    Ledger(storage).append(
        Decision(
            number=0, occasion="checkpoint", checkpoint=0, job_id="0" * 32, epoch=1, time_ms=0, sources={}, sinks={}
        )
    )
    if refused:
        with pytest.raises(DefinitionError, match="is of a job in poundlock's own loop"):
            refuse_other_host(storage, make_plan(job(source)), next="begin anew")
    else:
        refuse_other_host(storage, make_plan(job(source)), next="begin anew")
