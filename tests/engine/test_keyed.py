"""Keyed steps of ours with a real Spark: a chain of them, a savepoint that moves, their state for people."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock import (
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    ListStateDescriptor,
    Side,
    TerminalError,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.driver import run
from poundlock.driver.savepoints.restore import Beginning
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.plan.sql_text import parse_aggregates
from poundlock.storage import LocalStorage
from support.jobs_in_threads import Running, settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BASE = 1_545_184_220_000
SINKS = ("counts", "late", "seen", "gone", "busy")


class Seen(KeyedProcessFunction):
    """Numbers the rows of a key; says what a key had when nothing has come for ten seconds."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))
        self.times = context.get_list_state(ListStateDescriptor("times"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        self.times.add(value["at"])
        ctx.timer_service().register_event_time_timer(value["at"] + 10_000)
        yield {"k": value["k"], "n": self.rows.value()}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        times = self.times.get()
        if timestamp == max(times) + 10_000:
            yield Side("gone", {"k": ctx.get_current_key(), "times": sorted(times)})
            self.times.clear()


def put(folder: Path, number: int) -> None:
    """Write a file of rows that go on by four seconds; some are late."""
    folder.mkdir(exist_ok=True)
    rows = [{"k": f"k{(number + i) % 5}", "at": BASE + 4_000 * number + (i * 997) % 4_000} for i in range(12)]
    rows += [{"k": "k0", "at": BASE + 4_000 * number - back} for back in (5_000, 17_000)]
    hidden = folder / f".{number:03d}.jsonl"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:03d}.jsonl")


def keyed(folder: Path, out: str, **source: Any) -> Job:
    job = Job("keyed", checkpoint_interval="0 s", on_error="fail", parallelism=1)
    read = FileSource(
        str(folder / "in"), format="json", schema="k string, at bigint", max_files_per_checkpoint=1, **source
    )
    rows = job.from_source(read, WatermarkStrategy.bounded_out_of_orderness("2 s", timestamp="at"), name="rows")
    counts = (
        rows.key_by("k")
        .window(TumblingEventTimeWindows("10 s"))
        .allowed_lateness("6 s")
        .side_output_late_data("late")
        .aggregate("count(*) as n", "max(at) as last", name="counts")
    )
    # Windows over the results of windows: how many keys there were, which goes by the windows' last timestamps.
    busy = counts.window_all(TumblingEventTimeWindows("20 s")).allowed_lateness("1 s").aggregate(
        "count(distinct k) as keys", "sum(n) as n", name="busy"
    )  # fmt: skip
    seen = rows.key_by("k").process(
        Seen(), schema="k string, n bigint", side_outputs={"gone": "k string, times array<bigint>"}, name="seen"
    )
    streams = (counts, counts.side_output("late"), seen, seen.side_output("gone"), busy)
    for name, stream in zip(SINKS, streams, strict=True):
        stream.sink_to(FileSink(str(folder / out / name), format="json"), name=f"{name}-out")
    return job


def written(folder: Path) -> dict[str, Counter[str]]:
    files = {
        name: [p for p in (folder / name).rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
        for name in SINKS
    }
    return {name: Counter(line for p in found for line in p.read_text().splitlines()) for name, found in files.items()}


def test_a_chain_of_steps_a_savepoint_that_moves_and_state_for_people(tmp_path: Path) -> None:
    for number in range(12):
        put(tmp_path / "in", number)
    assert run(keyed(tmp_path, "undisturbed"), settings=settings(tmp_path)).state == "FINISHED"
    wanted = written(tmp_path / "undisturbed")
    assert all(wanted.values()), wanted
    rows = [json.loads(line) for line in wanted["counts"].elements()]
    assert sum(row["n"] for row in rows) > 12 * 14, "windows fired again for rows that were late"
    records = [r for r in Ledger(LocalStorage(str(tmp_path / "checkpoint"))) if r.occasion == "checkpoint"]
    read = sum(record.sinks["late-out"].counts.read for record in records)
    assert read == 12 * 14

    # The same with a savepoint in the middle, which is moved; its job's folder goes away.
    later = tmp_path / "later"
    later.mkdir()
    for number in range(6, 12):
        (tmp_path / f"in/{number:03d}.jsonl").rename(later / f"{number:03d}.jsonl")
    first = Running(keyed(tmp_path, "out", watch=True), settings(tmp_path, "first"))
    first.until(lambda: first.progress.rows_read >= 6 * 14)
    saving = first.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop")
    first.end()
    assert saving.location is not None, saving.failure
    shutil.rmtree(tmp_path / "first")
    moved = Path(shutil.move(str(saving.location), tmp_path / "moved"))

    asked = ["state", str(moved), "seen", "--json", "-D", f"state_dir={tmp_path}/state"]
    done = subprocess.run([sys.executable, "-m", "poundlock", *asked], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)
    names = {name for group in groups for name in group["state"]}
    assert {"state:rows", "state:times"} <= names, names

    for path in later.iterdir():
        path.rename(tmp_path / "in" / path.name)
    job = keyed(tmp_path, "out", watch=True)
    second = Running(job, settings(tmp_path, "second"), beginning=Beginning(str(moved)))
    second.until(lambda: second.progress.rows_read >= 6 * 14)
    second.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    second.end()
    assert written(tmp_path / "out") == wanted


class Numbering(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "d": value["d"], "n": self.rows.value()}


def numbering(folder: Path, name: str, **source: Any) -> Job:
    job = Job("numbering", checkpoint_interval="0 s", on_error="fail", parallelism=1)
    read = FileSource(str(folder / "in"), format="json", schema="k string, d bigint", **source)
    numbered = job.from_source(read, name="rows").key_by("k", "d").process(
        Numbering(), schema="k string, d bigint, n bigint", name=name
    )  # fmt: skip
    numbered.sink_to(FileSink(str(folder / "out"), format="json"), name="out")
    return job


def poundlock(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "poundlock", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_state_that_a_person_wrote_is_gone_on_from_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"k": k, "d": d} for k in ("a", "b", "c") for d in (1, 2)]
    (tmp_path / "in/0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = Running(numbering(tmp_path, "before", watch=True), settings(tmp_path, "first"))
    first.until(lambda: first.progress.rows_read >= len(rows))
    saving = first.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop")
    first.end()
    saved = str(saving.location)
    pq.write_table(pa.table({"user": ["b", "d"], "day": [2, 7], "n": [200, 700]}), tmp_path / "state.parquet")

    made = poundlock(
        "savepoint", "edit", saved, "--rename-operator", "before=behind", "--set-state", 'behind/rows:["a", 1]=100',
        "--delete-state", 'behind/rows:["a", 2]', "--state-file", f"behind/rows={tmp_path / 'state.parquet'}",
        "--key-columns", "user,day", "--value-column", "n", "--json",
    )  # fmt: skip
    assert len(made["done"]) == 4
    assert poundlock("savepoint", "inspect", made["savepoint"], "--json")["damage"] == []
    (entry,) = poundlock("state", made["savepoint"], "behind", "--key", '["a", 1]', "--json")
    assert [each["value"] for each in entry["state"]["state:rows"]["entries"]] == [100]
    (entry,) = poundlock("state", saved, "before", "--key", '["a", 1]', "--json")
    assert [each["value"] for each in entry["state"]["state:rows"]["entries"]] == [1], "the old one stays as it is"

    more = [*rows, {"k": "d", "d": 7}]
    (tmp_path / "in/1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in more))
    beginning = Beginning(made["savepoint"])
    with pytest.raises(DefinitionError, match="has state of stateful 'behind'"):
        run(numbering(tmp_path, "before"), settings=settings(tmp_path, "second"), beginning=beginning)
    second = Running(numbering(tmp_path, "behind", watch=True), settings(tmp_path, "second"), beginning=beginning)
    second.until(lambda: second.progress.rows_read >= len(more))
    second.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    second.end()
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    last: dict[tuple[str, int], int] = {}
    for row in (json.loads(line) for path in files for line in path.read_text().splitlines()):
        last[row["k"], row["d"]] = max(row["n"], last.get((row["k"], row["d"]), 0))
    assert last == {
        ("a", 1): 101, ("a", 2): 1, ("b", 1): 2, ("b", 2): 201, ("c", 1): 2, ("c", 2): 2, ("d", 7): 701
    }  # fmt: skip


def test_state_that_is_damaged_is_refused_and_the_newest_whole_checkpoint_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / f"in/{number}.jsonl").write_text(json.dumps({"k": "a", "d": number % 2}) + "\n")
    job = numbering(tmp_path, "numbering", max_files_per_checkpoint=1)
    job.checkpoints_retained = 3
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    checkpoint = tmp_path / "checkpoint"
    newest = Ledger(LocalStorage(str(checkpoint))).newest()
    assert newest is not None
    copies = sorted(path.name for path in (checkpoint / "retained").iterdir())
    inside = json.loads((checkpoint / "retained" / copies[-1] / "_metadata.json").read_text())["files"]
    before = json.loads((checkpoint / "retained" / copies[-2] / "_metadata.json").read_text())["files"]
    only = [path for path in inside if path.startswith("state/") and path not in before]
    assert only, "the newest checkpoint wrote a file of its own"
    for path in (checkpoint / only[0], checkpoint / "retained" / copies[-1] / only[0]):
        path.unlink()

    (tmp_path / "in/4.jsonl").write_text(json.dumps({"k": "a", "d": 0}) + "\n")
    with pytest.raises(
        TerminalError, match=r"the state file state/.* of numbering, .* for key groups .* is missing"
    ) as caught:
        run(job, settings=settings(tmp_path))
    whole = str(checkpoint / "retained" / copies[-2])
    assert (
        caught.value.next
        == f"checkpoint {copies[-2][4:]} is whole; go on from it: poundlock run JOB.PY -s {whole} -D checkpoint_dir=NEW"
    )
    again = run(job, settings=settings(tmp_path, "again"), beginning=Beginning(whole, newer="keep"))
    assert again.state == "FINISHED"


def test_sql_aggregates_are_what_their_texts_say_of_nulls() -> None:
    texts = ["first(a)", "last(a IGNORE NULLS) as l", "first_value(a) IGNORE NULLS", "count(1)", "count(NULL)"]
    assert parse_aggregates(texts, "step").aggregates == [
        SqlAggregate(kind="first", column=0),
        SqlAggregate(kind="last", column=0, ignore_nulls=True),
        SqlAggregate(kind="first", column=0, ignore_nulls=True),
        SqlAggregate(kind="count"),
        SqlAggregate(kind="count", column=1),
    ]
    for text in (
        "collect_list(a) RESPECT NULLS",
        "collect_list(a) WITHIN GROUP (ORDER BY b)",
        "first(a) FILTER (WHERE b)",
    ):
        with pytest.raises(DefinitionError, match="cannot be computed"):
            parse_aggregates([text], "step")
