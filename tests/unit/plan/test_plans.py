"""Lowering by plan fixtures: a job, and the plan text it must give. The texts stand in `plans/`, one file a job.

After a change that is meant, write them anew with POUNDLOCK_WRITE_PLANS=1 and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
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
from poundlock.config import load_settings
from poundlock.driver.driver import checkpoint_dir, run
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


def pipeline(source: FileSource, out: FileSink, **more: object) -> Job:
    job = Job("plan", **more)
    job.from_source(source, name="in").sink_to(out, name="out")
    return job


def to(path: str, **more: object) -> FileSink:
    return FileSink(path, format="json", **more)


BY_KEY = ExpressionBucketAssigner("concat('k=', k)")


@pytest.mark.parametrize(
    ("read", "written", "taken"),
    [
        ({"path": "in"}, to("in/out"), True),
        ({"path": "in"}, to("{tmp}/in"), True),
        ({"path": "file://{tmp}/in"}, to("./link/out"), True),
        ({"path": "link"}, to("in/a/b"), True),
        ({"path": "in/*.jsonl"}, to("in"), True),
        ({"path": "in/*/*.jsonl"}, to("in/out"), True),
        ({"path": "in/**/*.jsonl"}, to("in/out", bucket=BY_KEY), True),
        ({"path": "in/k=*/*.jsonl"}, to("in", bucket=BY_KEY), True),
        ({"path": "in", "recursive": False}, to("in"), True),
        ({"path": "s3://b/in"}, to("s3a://b/in/out/"), True),
        ({"path": "in"}, to("in2"), False),
        ({"path": "in/sub"}, to("in"), False),
        ({"path": "in"}, to("in/_out"), False),
        ({"path": "in"}, to("in/.a/out"), False),
        ({"path": "in", "recursive": False}, to("in/out"), False),
        ({"path": "in", "recursive": False}, to("in", bucket=BY_KEY), False),
        ({"path": "in", "glob": "*.csv"}, to("in/out"), False),
        ({"path": "in/*.jsonl"}, to("in/out"), False),
        ({"path": "in/*/x-*.jsonl"}, to("in/out"), False),
        ({"path": "s3://b/in"}, to("s3://b/in-2"), False),
    ],
)
def test_no_source_reads_what_its_job_writes(
    read: dict[str, object], written: FileSink, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job had read its own output, without end where it was to watch the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    read["path"] = str(read["path"]).format(tmp=tmp_path)
    job = pipeline(FileSource(watch=True, **read), replace(written, path=written.path.format(tmp=tmp_path)))  # type: ignore[arg-type]
    if not taken:
        make_plan(job)
        return
    with pytest.raises(
        DefinitionError, match=r"source 'in', which reads .*, would read the files of sink 'out' in .*\nNext: "
    ):
        make_plan(job)


def test_dead_letters_are_not_read_again_but_another_sources_files_may_be() -> None:
    with pytest.raises(DefinitionError, match="would read the files of sink 'dead-letter' in /in/bad\n"):
        make_plan(pipeline(files(), sink("a"), dead_letters="/in/bad"))
    make_plan(pipeline(files(), sink("a"), dead_letters="/in/_bad"))
    job = Job("plan", on_error="skip")
    job.from_source(kafka(), name="kafka").sink_to(FileSink("/in/kafka", row="value"), name="first")
    job.from_source(files(), name="in").sink_to(sink("a", row="value"), name="second")
    make_plan(job)


@pytest.mark.parametrize("given", ["job", "settings", "state"])
def test_no_source_reads_its_jobs_checkpoint(given: str, tmp_path: Path) -> None:
    inside, outside = f"{tmp_path}/in/ck", f"{tmp_path}/out/ck"
    settings = load_settings(
        [f"state_dir={tmp_path}/{'in' if given == 'state' else 'state'}"]
        + ([f"checkpoint_dir={inside}"] if given == "settings" else [])
    )
    job = pipeline(FileSource(f"{tmp_path}/in", watch=True), sink("a"))
    job.checkpoint_dir = {"job": inside, "settings": outside}.get(given)
    with pytest.raises(
        DefinitionError, match=r"would read the job's own checkpoint in .*/in/c.*\nNext: give one of them"
    ):
        run(job, settings=settings)
    assert not (tmp_path / "in").exists()
    for path, glob in ((f"{tmp_path}/in/_ck", "*"), (inside, "*.csv"), (f"{tmp_path}/in-ck", "*")):
        job = pipeline(FileSource(f"{tmp_path}/in", watch=True, glob=glob), sink("a"), checkpoint_dir=path)
        assert checkpoint_dir(job, load_settings([f"state_dir={tmp_path}/state"])) == path


def test_copies_of_checkpoints_are_not_kept_where_a_sink_removes_unfinished_files(tmp_path: Path) -> None:
    """The sink's next start removed what was unfinished from the copies, which then were damaged."""
    settings = load_settings([f"state_dir={tmp_path}/state"])
    job = pipeline(files(), FileSink(f"{tmp_path}/out", row="value"), checkpoint_dir=f"{tmp_path}/out/_checkpoint")
    assert checkpoint_dir(job, settings) == f"{tmp_path}/out/_checkpoint"
    job.checkpoints_retained = 2
    said = "copies of the checkpoint in .*/out/_checkpoint would be in the folder of sink 'out', .*/out, which removes"
    with pytest.raises(DefinitionError, match=said):
        checkpoint_dir(job, settings)


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
