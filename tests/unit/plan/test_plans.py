"""Lowering by plan fixtures: a job, and the plan text it must give. The texts stand in `plans/`, one file a job.

After a change that is meant, write them anew with POUNDLOCK_WRITE_PLANS=1 and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    ExpressionBucketAssigner,
    FileSink,
    FileSource,
    Job,
    KafkaSource,
    Side,
    SparkSource,
)
from poundlock.plan.explain import explain_json
from poundlock.plan.plan import make_plan

PLANS = Path(__file__).parent / "plans"
TYPED = {"format": "json", "schema": "n bigint, k string"}


def kafka(**more: object) -> KafkaSource:
    return KafkaSource(bootstrap_servers="localhost:9092", topics="events", **more)


def files(**more: object) -> FileSource:
    return FileSource("/in", **more)


def sink(name: str, **more: object) -> FileSink:
    return FileSink(f"/out/{name}", **(more or {"format": "json"}))


def keep(record: dict[str, object]) -> dict[str, object]:
    return record


def one_stage(job: Job) -> None:
    job.from_source(files(), name="in").sink_to(sink("a", row="value"), name="a")


def python_functions(job: Job) -> None:
    lines = job.from_source(files(), name="in").filter(keep, name="keep")
    lines.map(keep, schema="n bigint", name="n").sink_to(sink("a"), name="a")
    lines.sink_to(sink("b", row="value"), name="b")


def kafka_lines(job: Job) -> None:
    job.from_source(kafka(), name="in").sink_to(sink("a", row="value"), name="a")


def kafka_json(job: Job) -> None:
    job.from_source(kafka(**TYPED), name="in").map(keep, schema="n bigint").sink_to(sink("a"), name="a")


def sql(job: Job) -> None:
    job.from_source(kafka(**TYPED), name="in").where("n > 1").select("n").sink_to(sink("a"), name="a")


def python_before_sql(job: Job) -> None:
    job.from_source(files(), name="in").map(keep, schema="n bigint").where("n > 1").sink_to(sink("a"), name="a")


def bucket_by_expression(job: Job) -> None:
    by = ExpressionBucketAssigner("concat('k=', k)")
    job.from_source(files(**TYPED), name="in").sink_to(sink("a", format="json", bucket=by), name="a")


def one_pass_for_several(job: Job) -> None:
    rows = job.from_source(files(**TYPED), name="in")
    rows.where("n > 1").sink_to(sink("a"), name="a")
    rows.drop("k").sink_to(sink("b"), name="b")
    rows.sink_to(sink("c"), name="c")


def dataframe_function(job: Job) -> None:
    rows = job.from_source(files(**TYPED), name="in")
    rows.apply(keep, name="any").sink_to(sink("a"), name="a")


def two_sources_one_sink(job: Job) -> None:
    made = job.from_source(DatagenSource("n bigint, k string", count=5), name="made")
    job.from_source(kafka(**TYPED), name="in").union(made).sink_to(sink("a"), name="a")


def side_outputs(job: Job) -> None:
    parts = job.from_source(files(), name="in").flat_map(
        lambda r: [Side("bad", r)], schema="n bigint", side_outputs={"bad": "value binary"}, name="split"
    )
    parts.sink_to(sink("a"), name="a")
    parts.side_output("bad").sink_to(sink("b", row="value"), name="b")


def streamed(frame: object) -> object:
    return frame


def spark_stream(job: Job) -> None:
    rows = job.from_source(SparkSource("rate"), name="rate").where("value > 1").apply(streamed, name="own")
    rows.filter(keep, name="kept").sink_to(sink("a"), name="a")
    rows.select("value").sink_to(sink("b"), name="b")


JOBS = [
    one_stage, python_functions, kafka_lines, kafka_json, sql, python_before_sql, bucket_by_expression,
    one_pass_for_several, dataframe_function, two_sources_one_sink, side_outputs, spark_stream,
]  # fmt: skip


@pytest.mark.parametrize("build", JOBS, ids=lambda build: build.__name__)
def test_plan(build: Callable[[Job], None]) -> None:
    job = Job("plan", on_error="skip")
    build(job)
    text = job.explain() + "\n"
    path = PLANS / f"{build.__name__}.txt"
    if os.environ.get("POUNDLOCK_WRITE_PLANS") == "1":
        path.write_text(text)
    assert text == path.read_text()
    assert next(stage["kind"] for stage in explain_json(job)["stages"]) == "source"


def test_a_job_needs_a_sink_and_a_place_for_dead_letters() -> None:
    job = Job("plan")
    rows = job.from_source(files(), name="in")
    with pytest.raises(DefinitionError, match="job 'plan' has no sink"):
        make_plan(job)
    rows.sink_to(sink("a", row="value"), name="dead-letter")
    with pytest.raises(DefinitionError, match="'dead-letter' is taken"):
        make_plan(job)


def test_dead_letters_go_below_the_first_file_sink_unless_told() -> None:
    for told, path in ((None, "/out/a/_dead_letters"), ("/dead", "/dead")):
        job = Job("plan", dead_letters=told)
        kafka_lines(job)
        assert make_plan(job).sinks["dead-letter"].path == path


def test_two_sinks_that_would_make_files_of_one_name_are_refused() -> None:
    job = Job("plan", on_error="skip")
    rows = job.from_source(files(), name="in")
    rows.sink_to(sink("a", row="value"), name="one")
    rows.sink_to(sink("a", format="json", suffix=""), name="two")
    with pytest.raises(DefinitionError, match="sinks 'one' and 'two' both write part-… files to /out/a"):
        make_plan(job)


@pytest.mark.parametrize("spelled", ["out/../out/", "./out", "{tmp}/out", "file://{tmp}/out", "link"])
def test_a_folder_is_the_same_however_it_is_written(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal content of the two had been taken for one file, and the rows of the second were lost."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("out")
    job = Job("plan", on_error="skip")
    rows = job.from_source(files(), name="in")
    for name, path in (("one", "out"), ("two", spelled.format(tmp=tmp_path))):
        rows.sink_to(FileSink(path, row="value"), name=name)
    with pytest.raises(DefinitionError, match="sinks 'one' and 'two' both write part-… files to"):
        make_plan(job)


def test_a_sink_in_anothers_folder_has_another_prefix_or_ending() -> None:
    """One could have a bucket of the other's name, and the outer one would retract the inner one's files with its own."""

    def plan(**inner: object) -> None:
        job = Job("plan", on_error="skip")
        rows = job.from_source(kafka(), name="in")
        rows.sink_to(sink("sub", **({"format": "json"} | inner)), name="one")
        rows.sink_to(FileSink("/out", format="json", bucket=lambda record: "sub"), name="two")
        make_plan(job)

    with pytest.raises(DefinitionError, match="both write part-… files to /out/sub and /out, one in the other\nNext: "):
        plan()
    plan(prefix="other")
    plan(format="parquet")


@pytest.mark.parametrize("mode", ["automatic", "streaming", "batch"])
@pytest.mark.parametrize("source", [files, kafka])
def test_only_the_end_of_what_ends_is_waited_for(mode: str, source: Callable[[], object]) -> None:
    job = Job("modes", on_error="skip", runtime_mode=mode)
    job.from_source(source(), name="in").sink_to(sink("a", row="value"), name="a")
    if source is kafka and mode == "batch":
        with pytest.raises(DefinitionError, match=r"needs sources that end; 'in' does not.*\nNext: make it bounded"):
            make_plan(job)
        return
    assert make_plan(job).batch is (source is files and mode != "streaming")


def test_a_mode_is_one_of_three() -> None:
    with pytest.raises(DefinitionError, match="runtime_mode='fast' is not known"):
        Job("modes", runtime_mode="fast")
