"""A job on a real Spark from one Delta table into two, of which one is merged by key; it goes on with what came meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from poundlock import DeltaSink, DeltaSource, Job
from poundlock.driver.driver import run
from support.delta_tables import append, rows_of
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]


def test_a_job_between_tables(tmp_path: Path) -> None:
    for first in range(0, 40, 10):
        ids = list(range(first, first + 10))
        append(
            str(tmp_path / "in"), pa.table({"id": ids, "k": [n % 7 for n in ids], "day": [f"d{n % 2}" for n in ids]})
        )
    job = Job(
        "delta", checkpoint_interval="0 s", checkpoint_dir=str(tmp_path / "checkpoint"), parallelism=2, on_error="fail"
    )
    rows = job.from_source(DeltaSource(str(tmp_path / "in"), max_files_per_checkpoint=1), name="rows")
    schema = "id bigint, k bigint, day string"
    rows.sink_to(DeltaSink(str(tmp_path / "added"), schema=schema, partition_by=["day"]), name="added")
    rows.where("id >= 5").sink_to(DeltaSink(str(tmp_path / "merged"), schema=schema, key="k"), name="merged")
    run(job, settings=settings(tmp_path))
    assert [row["id"] for row in rows_of(str(tmp_path / "added"), ["id"])] == list(range(40))
    assert sorted(row["k"] for row in rows_of(str(tmp_path / "merged"))) == list(range(7))
