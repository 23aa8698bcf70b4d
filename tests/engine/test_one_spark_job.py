"""A checkpoint as Spark sees it: rows pass each step once whatever hangs on it, and the UI names job, checkpoint and stages in words."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    NoRestart,
    RollingPolicy,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.spark.launch.spark_launch import begin_spark
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BASE, FILES, ROWS = 1_545_184_220_000, 3, 40


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One JVM that has a UI."""
    options = load_settings([f"state_dir={tmp_path_factory.mktemp('jvm')}", "master=local[2]", "driver_memory=1g"])
    job = Job("shared", spark={"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sql.shuffle.partitions": "2"})
    session = begin_spark(
        job, options, log="jvm.log", quick_start=False, exchanges=True, say=lambda line: None
    ).session()
    yield session.sql
    session.stop()


class Passing(KeyedProcessFunction):
    """Sends on what comes."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield {"k": value["k"], "n": value["n"], "at": value["at"]}


def mark(row: Any, *, path: str) -> Any:
    """Note in a file that a row passed."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{row['n']}\n".encode())
    os.close(handle)
    return {name: row[name] for name in ("k", "n", "at") if name in row}


def spoilt(row: Any) -> Any:
    """Fail for some rows."""
    if row["n"] % 9 == 0:
        raise ValueError("nine times something")
    return {name: row[name] for name in ("k", "n", "at")}


def summed(rows: Any) -> Any:
    """Return sums by key; nothing of it is read where it is only counted."""
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(F.sum("n").alias("n"))


SCHEMA = "k string, n bigint, at bigint"


def keyed_at_two_depths(rows: Any, to: Callable[[Any, str], None]) -> None:
    first = rows.key_by("k").process(Passing(), schema=SCHEMA, name="first")
    to(first.key_by("n").process(Passing(), schema=SCHEMA, name="second"), "second")
    to(rows.key_by("n").process(Passing(), schema=SCHEMA, name="beside"), "beside")
    to(first, "first")


def keyed_and_a_segment(rows: Any, to: Callable[[Any, str], None]) -> None:
    to(rows.key_by("k").process(Passing(), schema=SCHEMA, name="first"), "first")
    to(rows.select("upper(k) AS k", "n", "hash(n) AS h"), "selected")


def functions(rows: Any, to: Callable[[Any, str], None]) -> None:
    to(rows.apply(summed, name="summed"), "summed")
    to(rows.apply(lambda frame: frame.limit(1), name="limited"), "limited")
    to(
        rows.apply(lambda a, b: a.join(b.select("n"), "n"), rows.filter(lambda row: row["n"] % 2 == 0), name="joined"),
        "joined",
    )
    to(rows, "plain")


def several_sinks_late_and_dead(rows: Any, to: Callable[[Any, str], None]) -> None:
    windows = rows.key_by("k").window(TumblingEventTimeWindows("10 s")).side_output_late_data("late")
    counts = windows.aggregate("count(*) as n", name="counts")
    to(counts, "counts")
    to(counts.side_output("late"), "late")
    to(rows.map(spoilt, schema=SCHEMA, on_error="bad_record", name="spoilt"), "spoilt")
    to(rows, "plain")
    to(rows, "again")


GRAPHS = (keyed_at_two_depths, keyed_and_a_segment, functions, several_sinks_late_and_dead)


def ran(folder: Path, graph: Callable[[Any, Callable[[Any, str], None]], None]) -> Path:
    """Run a graph behind a step that notes each row that passes; return the folder of its sinks."""
    (folder / "in").mkdir()
    for number in range(FILES):
        rows = [
            {"k": f"k{n % 4}", "n": n, "at": BASE + 20_000 * number - 60_000 * (n % 7 == 0)}
            for n in range(ROWS * number, ROWS * (number + 1))
        ]
        (folder / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dead = str(folder / "dead")
    job = Job("one-job", checkpoint_interval="0 s", parallelism=2, dead_letters=dead, restart=NoRestart())
    source = FileSource(str(folder / "in"), format="json", schema=SCHEMA, max_files_per_checkpoint=1, split_size="1 kB")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
    noted = partial(mark, path=str(folder / "marks"))
    marked = job.from_source(source, name="rows").map(noted, schema=SCHEMA, name="marked")
    marked = marked.assign_timestamps_and_watermarks(times, name="times")

    def to(stream: Any, name: str) -> None:
        sink = FileSink(str(folder / name), format="json", rolling=RollingPolicy(on_checkpoint=True))
        stream.sink_to(sink, name=f"to-{name}")

    graph(marked, to)
    assert run(job, settings=settings(folder)).state == "FINISHED"
    return folder


def lines(folder: Path) -> list[Any]:
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_a_row_is_read_once_whatever_hangs_on_it(tmp_path: Path, graph: Any) -> None:
    folder = ran(tmp_path, graph)
    every = Counter(range(FILES * ROWS))
    assert Counter(map(int, (folder / "marks").read_text().split())) == every
    if graph is several_sinks_late_and_dead:
        assert lines(folder / "late"), "rows were late"
        assert len(lines(folder / "dead")) == sum(n % 9 == 0 for n in every)
    for sink in ("first", "second", "beside", "selected", "plain", "again"):
        if (folder / sink).exists():
            assert Counter(row["n"] for row in lines(folder / sink)) == every, sink


def test_a_second_reading_would_be_seen(jvm: Any, tmp_path: Path) -> None:
    """The control: a step that nothing keeps runs for each of its readers."""
    marks = tmp_path / "marks"
    rows = jvm.sparkContext.parallelize([{"n": n} for n in range(5)], 2).map(partial(mark, path=str(marks)))
    assert rows.count() == rows.count() == 5
    assert Counter(map(int, marks.read_text().split())) == Counter(2 * list(range(5)))


def test_the_ui_names_job_checkpoint_and_stages(jvm: Any, tmp_path: Path) -> None:
    def graph(rows: Any, to: Callable[[Any, str], None]) -> None:
        first = rows.key_by("k").process(Passing(), schema=SCHEMA, name="first")
        to(first.select("k", "n", "hash(n) AS h"), "selected")
        to(rows.apply(summed, name="summed"), "summed")

    context = jvm.sparkContext
    before = len(shown(context, "jobs"))
    ran(tmp_path, graph)
    jobs, stages = shown(context, "jobs"), shown(context, "stages")
    mine = [job for job in jobs[: len(jobs) - before] if job.get("jobGroup", "").startswith("poundlock-one-job-")]
    assert {job["description"] for job in mine} == {f"one-job: checkpoint {n}" for n in range(FILES)}
    ids = {stage for job in mine for stage in job["stageIds"]}
    names = {stage["name"] for stage in stages if stage["stageId"] in ids}
    read, sums = "read, decode, write", "read, decode, write, Spark SQL behind times"
    assert names == {read, sums, f"{sums}; by key: first, Spark SQL behind first"}
    assert context.getLocalProperty("callSite.short") is None


def shown(context: Any, what: str) -> Any:
    """Return what Spark's UI answers of the application, the newest first."""
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}") as answer:
        return json.load(answer)
