"""Every way a job can be laid out over Spark and the tasks, on real input: what comes out, and that the ledger adds up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    EventTimeBucketAssigner,
    ExpressionBucketAssigner,
    FileSink,
    FileSource,
    Job,
    Side,
    SparkSource,
    TerminalError,
)
from poundlock.audit.write_totals import ReplayReport
from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.interactive.replay import replay
from poundlock.storage import open_storage
from support.finished import assert_ledger_adds_up, lines, rows, visible

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

GOOD = 3000
BAD = [b"not json", b'{"n": "x", "ts": 1545184226}', b"[1]", b'{"n": 5, "ts": 1545184226, "k": "\xff"}']


def produce(folder: Path, files: int = 3) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        with (folder / f"in-{number}.jsonl").open("wb") as out:
            for i in range(number * GOOD // files, (number + 1) * GOOD // files):
                out.write(b'{"n":%d,"ts":%d,"k":"k%d"}\n' % (i, 1545184226 + i * 60, i % 7))
            out.writelines(line + b"\n" for line in (BAD if number == 1 else []))


def settings(tmp_path: Path) -> Any:
    return load_settings(
        [f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]", "driver_memory=1g"]
    )


def split(record: dict[str, Any]) -> Iterator[dict[str, Any] | Side]:
    if record["n"] % 10 == 0:
        yield Side("tens", {"n": record["n"], "why": "ten"})
    else:
        yield {"n": record["n"]}
        yield {"n": -record["n"]}


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.compute.multiply(batch.column("n"), 2)], ["n"])


def test_many_branches_in_one_query(tmp_path: Path) -> None:
    produce(tmp_path / "in")
    out = tmp_path / "out"
    job = Job("layout", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"))
    raw = job.from_source(FileSource(str(tmp_path / "in")), name="raw")
    raw.sink_to(FileSink(f"{out}/raw", row="value", bucket=EventTimeBucketAssigner("ts", zone="UTC")), name="by-day")
    few = raw.filter(lambda r: b'"k":"k1"' in r["value"])
    few.map(lambda r: {"n": json.loads(r["value"])["n"]}, schema="n bigint").union(
        job.from_source(DatagenSource("n bigint", count=100, seed=1), name="made").map(
            lambda r: {"n": -1}, schema="n bigint"
        )
    ).sink_to(FileSink(f"{out}/union", format="json"), name="union")

    typed = job.from_source(
        FileSource(str(tmp_path / "in"), format="json", schema="n bigint, ts bigint, k string"), name="typed"
    )
    parts = typed.flat_map(split, schema="n bigint", side_outputs={"tens": "n bigint, why string"}, name="split")
    parts.map_batches(doubled, schema="n bigint").sink_to(FileSink(f"{out}/doubled", format="parquet"), name="doubled")
    parts.side_output("tens").sink_to(FileSink(f"{out}/tens", format="json"), name="tens")

    both = job.from_source(
        FileSource(str(tmp_path / "in"), format="json", schema="n bigint, ts bigint, k string"), name="both"
    )
    both.where("n % 3 = 0").select("n", "1 / IF(n % 3 = 0, 1, 0) as safe").sink_to(
        FileSink(f"{out}/thirds", format="json"), name="thirds"
    )
    both.with_column("day", "date_format(timestamp_seconds(ts), 'yyyyMMdd')").drop("k").sink_to(
        FileSink(f"{out}/days", format="csv", bucket=ExpressionBucketAssigner("concat('dt=', day)")), name="days"
    )
    middle = job.from_source(
        FileSource(str(tmp_path / "in"), format="json", schema="n bigint, ts bigint, k string"), name="middle"
    )
    middle.map(lambda r: {"n": r["n"] + 1}, schema="n bigint").where("n <= 10").sink_to(
        FileSink(f"{out}/ten", format="json"), name="ten"
    )

    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    good = [{"n": i, "ts": 1545184226 + i * 60, "k": f"k{i % 7}"} for i in range(GOOD)]
    # a text for n is no fault where only ts is looked at
    assert Counter(str(json.loads(line)["n"]) for line in lines(out / "raw")) == Counter(["x", *map(str, range(GOOD))])
    assert {p.parent.name for p in visible(out / "raw")} == {"dt=20181219", "dt=20181220", "dt=20181221"}
    assert Counter(r["n"] for r in rows(out / "union")) == Counter([*range(1, GOOD, 7), *([-1] * 100)])
    assert len(rows(out / "tens")) == GOOD // 10
    assert all(r == {"n": r["n"], "why": "ten"} and r["n"] % 10 == 0 for r in rows(out / "tens"))
    values = (
        pa.concat_tables([pq.read_table(p, partitioning=None) for p in visible(out / "doubled")])
        .column("n")
        .to_pylist()
    )
    assert sorted(values) == sorted(2 * s * i for i in range(GOOD) if i % 10 for s in (1, -1))
    assert sorted(r["n"] for r in rows(out / "thirds")) == list(range(0, GOOD, 3))
    assert sorted(lines(out / "days")) == sorted(f'{g["n"]},{g["ts"]},"{day(g["ts"])}"'.encode() for g in good)
    assert {p.parent.name for p in visible(out / "days")} == {"dt=20181219", "dt=20181220", "dt=20181221"}
    assert sorted(r["n"] for r in rows(out / "ten")) == list(range(1, 11))

    dead = rows(tmp_path / "dead")
    assert Counter(letter["source"] for letter in dead) == {"raw": 3, "typed": 4, "both": 4, "middle": 4}
    assert all(letter["file"].endswith("in-1.jsonl") and letter["reason"] for letter in dead)
    assert sum("value_base64" in letter for letter in dead) == 4
    assert_ledger_adds_up(
        tmp_path,
        {
            "by-day": GOOD + 1,
            "union": 429 + 100,
            "doubled": 5400,
            "tens": 300,
            "thirds": 1000,
            "days": GOOD,
            "ten": 10,
            "dead-letter": 15,
        },
    )
    (decision,) = (
        r for r in Ledger(open_storage(f"{tmp_path}/checkpoint")) if r.occasion == "checkpoint" and r.checkpoint == 0
    )
    read = {name: span.rows for name, span in decision.sources.items()}
    assert read == {"raw": GOOD + 4, "typed": GOOD + 4, "both": GOOD + 4, "middle": GOOD + 4, "made": 100}

    size = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    files = ("raw", "typed", "both", "middle")
    assert {name: span.bytes for name, span in decision.sources.items()} == {**dict.fromkeys(files, size), "made": None}

    there = everything(tmp_path)
    report = replayed(job, tmp_path)
    assert report.differences == []
    assert set(report.sinks) == {*decision.sinks}
    assert report.rows_read == {name: (count, count) for name, count in read.items()}
    assert report.sinks["days"].now.places == report.sinks["days"].committed.places != {}
    assert everything(tmp_path) == there, "nothing is written"


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each file below a folder but logs, with its size and when it was written."""
    found = {p: p.stat() for p in folder.rglob("*") if "logs" not in p.parts}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def replayed(job: Job, tmp_path: Path) -> ReplayReport:
    identity = read_identity(open_storage(f"{tmp_path}/checkpoint"))
    assert identity is not None
    return replay(job, identity, 0, settings=settings(tmp_path))


def day(seconds: int) -> str:
    return ("20181219", "20181220", "20181221")[(seconds - 1545177600) // 86400]


def test_a_dataframe_function_after_a_decoded_source(tmp_path: Path) -> None:
    """Undecodable records are dead letters before the function, which a replay runs like any other step."""
    produce(tmp_path / "in")
    job = Job("applied", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"))
    typed = job.from_source(
        FileSource(str(tmp_path / "in"), format="json", schema="n bigint, ts bigint, k string"), name="typed"
    )
    typed.apply(lambda df: df.where("n < 100").selectExpr("n", "upper(k) as k")).sink_to(
        FileSink(f"{tmp_path}/out", format="json"), name="out"
    )
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert not replayed(job, tmp_path).differences
    assert sorted(r["n"] for r in rows(tmp_path / "out")) == list(range(100))
    assert len(rows(tmp_path / "dead")) == 4
    assert_ledger_adds_up(tmp_path, {"out": 100, "dead-letter": 4})


def test_anything_else_spark_reads(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb{number}\n")
    job = Job("spark-read", checkpoint_interval="0 s", on_error="fail")
    source = SparkSource("text", {"maxFilesPerTrigger": 1}, path=f"{tmp_path}/in", schema="value string", bounded=True)
    job.from_source(source, name="text").map(lambda r: {"v": r["value"]}, schema="v string").sink_to(
        FileSink(f"{tmp_path}/out", format="json"), name="out"
    )
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    with pytest.raises(DefinitionError, match="source 'text' cannot be read from one offset to another"):
        replayed(job, tmp_path)
    assert sorted(r["v"] for r in rows(tmp_path / "out")) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_bad_record_fails_the_job_where_the_user_wants_that(tmp_path: Path) -> None:
    produce(tmp_path / "in")
    job = Job("strict", checkpoint_interval="0 s", on_error="fail")
    typed = job.from_source(FileSource(str(tmp_path / "in"), format="json", schema="n bigint"), name="typed")
    typed.sink_to(FileSink(f"{tmp_path}/out", format="json"), name="out")
    with pytest.raises(TerminalError, match=r"bad record at file .*in-1.jsonl, offset \d+: "):
        run(job, settings=settings(tmp_path))
    assert visible(tmp_path / "out") == []


def test_a_sink_that_lacks_its_column_is_refused_before_anything_runs(tmp_path: Path) -> None:
    produce(tmp_path / "in")
    job = Job("lacking", checkpoint_interval="0 s", on_error="skip")
    lines = job.from_source(FileSource(str(tmp_path / "in")), name="lines")
    lines.sink_to(FileSink(f"{tmp_path}/out", row="valeu"), name="out")
    with pytest.raises(
        DefinitionError, match=r"needs a column 'valeu', and the rows have value\nNext: did you mean 'value'?"
    ):
        run(job, settings=settings(tmp_path))
