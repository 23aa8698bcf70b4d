"""A keyed job from version to version: operators renamed for each other, dropped, added and moved; another name, another parallelism."""

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
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.cli.main import main
from poundlock.driver.driver import run
from poundlock.driver.savepoints.restore import Beginning
from poundlock.storage import LocalStorage
from poundlock.stream.stream import DataStream
from support.jobs_in_threads import Running, settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

SCHEMA = "k string, at bigint, n bigint"
KEYS = ("a", "b", "c", "d")
ROWS = 3 * len(KEYS)
SWAPPED = {"ones": "tens", "tens": "ones"}
Numbers = dict[str, int]


class Adding(KeyedProcessFunction):
    """Adds so much to what a key has, with every row; hands the row on with the sum."""

    def __init__(self, step: int) -> None:
        self.step = step

    def open(self, context: Any) -> None:
        self.sum = context.get_state(ValueStateDescriptor("sum", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.sum.update(self.sum.value() + self.step)
        yield {"k": value["k"], "at": value["at"], "n": self.sum.value()}


def put(folder: Path, number: int) -> None:
    """Write a file of three rows for each key."""
    (folder / "in").mkdir(exist_ok=True)
    hidden = folder / f"in/.{number}.jsonl"
    hidden.write_text(
        "".join(json.dumps({"k": k, "at": 1000 * number + i, "n": 1}) + "\n" for k in KEYS for i in range(3))
    )
    hidden.rename(folder / f"in/{number}.jsonl")


class Version:
    """A version of the job: rows by key into operators of state, each into a sink of its own."""

    def __init__(self, folder: Path, name: str, *, parallelism: int = 1) -> None:
        self.folder = folder
        self.job = Job(name, checkpoint_interval="0 s", on_error="fail", parallelism=parallelism, max_parallelism=16)
        read = FileSource(str(folder / "in"), format="json", schema=SCHEMA, watch=True)
        times = WatermarkStrategy.bounded_out_of_orderness("0 s", timestamp="at")
        self.rows = self.job.from_source(read, times, name="rows")

    def adding(self, name: str, step: int, behind: DataStream | None = None) -> DataStream:
        stream = (behind or self.rows).key_by("k").process(Adding(step), schema=SCHEMA, name=name)
        stream.sink_to(FileSink(str(self.folder / f"out/{name}"), format="json"), name=f"{name}-out")
        return stream

    def windows(self) -> None:
        counted = self.rows.key_by("k").window(TumblingEventTimeWindows("1 h")).aggregate("count(*) as n", name="hours")
        counted.sink_to(FileSink(str(self.folder / "out/hours"), format="json"), name="hours-out")


def first(folder: Path) -> Job:
    version = Version(folder, "walk")
    version.adding("ones", 1)
    version.adding("tens", 10)
    version.windows()
    return version.job


def second(folder: Path) -> Job:
    """Windows dropped, an operator added."""
    version = Version(folder, "walk")
    version.adding("new", 1000)
    version.adding("tens", 1)
    version.adding("ones", 10)
    return version.job


def third(folder: Path) -> Job:
    """Another name and parallelism; an operator behind another one's exchange, in a stage of its own."""
    version = Version(folder, "stroll", parallelism=3)
    tens = version.adding("tens", 1)
    ones = version.adding("ones", 10, behind=tens)
    version.adding("new", 1000, behind=ones)
    return version.job


def newest(folder: Path, name: str) -> Numbers:
    """Return the sum that came with the newest row of each key."""
    files = (p for p in (folder / "out" / name).rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {row["k"]: row["n"] for row in sorted(rows, key=lambda row: row["at"])}


def sums(number: int) -> Numbers:
    return dict.fromkeys(KEYS, number)


def read_one_more(folder: Path, number: int, job: Job, where: Any, **more: Any) -> list[str]:
    """Run a job until it has read one more file, and stop it; return the lines it showed."""
    put(folder, number)
    running = Running(job, where, **more)
    running.until(lambda: running.progress.rows_read >= ROWS)
    running.stop.stop()
    running.end()
    return running.lines


def identity(folder: Path) -> Identity:
    found = read_identity(LocalStorage(str(folder)))
    assert found is not None
    return found


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The first version ran and ended with a savepoint, with windows that are open."""
    put(tmp_path, 0)
    running = Running(first(tmp_path), settings(tmp_path, "first"))
    running.until(lambda: running.progress.rows_read >= ROWS)
    saving = running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop")
    running.end()
    assert saving.location is not None, saving.failure
    return str(saving.location)


def test_operators_come_go_and_move_and_the_name_changes(tmp_path: Path, saved: str) -> None:
    where = settings(tmp_path, "second")
    with pytest.raises(DefinitionError, match="has state of sink 'hours-out', stateful 'hours', and the job has no"):
        run(second(tmp_path), settings=where, beginning=Beginning(saved, renamed=SWAPPED))
    beginning = Beginning(saved, allow_non_restored=True, renamed=SWAPPED)
    lines = Counter(read_one_more(tmp_path, 1, second(tmp_path), where, beginning=beginning))
    for line in ("State of ones is tens's", "State of tens is ones's", "Not restored: stateful hours"):
        assert lines[line] == 1, line
    before = identity(tmp_path / "second")

    # A plain start: no savepoint, and nothing said of what is new.
    plain = read_one_more(tmp_path, 2, third(tmp_path), where)
    assert newest(tmp_path, "tens") == sums(9), "it had what ones had"
    assert newest(tmp_path, "ones") == sums(90), "and the other way round"
    assert newest(tmp_path, "new") == sums(6_000), "it began without state, and went on in another stage"
    assert newest(tmp_path, "hours") == {}
    after = identity(tmp_path / "second")
    assert (before.name, after.name) == ("walk", "stroll")
    assert after.job_id == before.job_id
    assert f"Job {after.job_id} was called walk and is stroll now" in plain

    # From its checkpoint under a third name, and what is another job's is refused.
    job = third(tmp_path)
    job.name = "march"
    last = read_one_more(tmp_path, 3, job, settings(tmp_path, "third"), beginning=Beginning(str(tmp_path / "second")))
    assert "The job was called stroll in it and is march now" in last
    assert newest(tmp_path, "ones") == sums(120)
    stranger = Version(tmp_path, "stranger")
    stranger.job = Job("stranger", on_error="fail", max_parallelism=16)
    stranger.rows = stranger.job.from_source(FileSource(str(tmp_path / "in"), format="json", schema=SCHEMA), name="in")
    stranger.adding("mine", 1)
    with pytest.raises(DefinitionError, match="is of job 'march', and 'stranger' has no operator in common") as caught:
        run(stranger.job, settings=settings(tmp_path, "third"))
    assert "checkpoint_dir" in caught.value.next
    assert identity(tmp_path / "third").name == "march"


def test_state_that_is_not_given_its_new_name_is_anothers(tmp_path: Path, saved: str) -> None:
    """The control: without the mapping each goes on from what the other had."""
    version = Version(tmp_path, "walk")
    version.adding("tens", 1)
    version.adding("ones", 10)
    beginning = Beginning(saved, allow_non_restored=True)
    read_one_more(tmp_path, 1, version.job, settings(tmp_path, "second"), beginning=beginning)
    assert (newest(tmp_path, "tens"), newest(tmp_path, "ones")) == (sums(33), sums(33))


def test_files_are_read_from_a_place_and_windows_hold_what_a_person_wrote(
    tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place, window = 'rows={"file": "0.jsonl", "offset": 0}', 'hours/contents:{"key": "a", "window": 0}=[100]'
    pq.write_table(pa.table({"k": ["b", "z"], "start": [0, 0], "n": [[200], [300]]}), tmp_path / "windows.parquet")
    file = ("--state-file", f"hours/contents={tmp_path}/windows.parquet", "--key-columns", "k", "--value-column", "n")
    words = ("--position", place, "--set-state", window, *file, "--window-column", "start", "--json")
    assert main(["savepoint", "edit", saved, *words]) == 0
    made = json.loads(capsys.readouterr().out)["savepoint"]
    put(tmp_path, 1)
    running = Running(first(tmp_path), settings(tmp_path, "second"), beginning=Beginning(made))
    running.until(lambda: running.progress.rows_read >= 2 * ROWS)
    running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    running.end()
    assert newest(tmp_path, "ones") == sums(9), "the rows of the first file came twice"
    files = [p for p in (tmp_path / "out/hours").rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert {row["k"]: row["n"] for row in rows} == {"a": 106, "b": 206, "c": 9, "d": 9, "z": 300}
    assert len(rows) == 5


def joined(folder: Path, schema: str, right: str, *, lateness: str, parallelism: int) -> Job:
    """A version of a job that joins two streams within a minute, and in windows of an hour."""
    job = Job("joined", checkpoint_interval="0 s", on_error="fail", parallelism=parallelism, max_parallelism=16)
    times = WatermarkStrategy.bounded_out_of_orderness("0 s", timestamp="at")
    a, b = (
        job.from_source(FileSource(str(folder / n), format="json", schema=schema, watch=True), times, name=n)
        for n in "ab"
    )
    chosen = ["left.n", "right.n as m", right]
    near = a.key_by("k").interval_join(b.key_by("k")).between("-1 min", "1 min").select(*chosen, name="near")
    windows = a.join(b).where("k").equal_to("k").window(TumblingEventTimeWindows("1 h")).allowed_lateness(lateness)
    for stream, name in ((near, "near"), (windows.select(*chosen, name="hours"), "hours")):
        stream.sink_to(FileSink(str(folder / "out" / name), format="json"), name=f"{name}-out")
    return job


def test_joins_go_on_with_other_columns_and_by_columns(tmp_path: Path) -> None:
    def put(number: int, **more: str) -> None:
        for side, name in enumerate("ab"):
            (tmp_path / name).mkdir(exist_ok=True)
            row = {"k": "x", "at": 10 * number, "n": 10 * number + side, **more}
            (tmp_path / f"{name}/.{number}").write_text(json.dumps(row) + "\n")
            (tmp_path / f"{name}/.{number}").rename(tmp_path / f"{name}/{number}.jsonl")

    def end(job: Job, where: str, rows: int, **more: Any) -> str:
        drain = {"drain": True} if more else {}
        running = Running(job, settings(tmp_path, where), **more)
        running.until(lambda: running.progress.rows_read >= rows)
        saving = running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", **drain)
        running.end()
        assert saving.location is not None, saving.failure
        return str(saving.location)

    put(0, old="o")
    before = joined(tmp_path, "k string, at bigint, n int, old string", "right.old", lateness="1 s", parallelism=1)
    assert (
        "near: by k, interval join from -1 min to 1 min: left.n, right.n as m, right.old, by columns"
        in before.explain()
    )
    assert "right.old, record by record, since windows that fired fire again" in before.explain()
    saved = end(before, "first", 2)
    put(1, new="w")
    after = joined(tmp_path, "k string, at bigint, n bigint, new string", "right.new", lateness="0 s", parallelism=3)
    assert "record by record" not in after.explain()
    end(after, "second", 2, beginning=Beginning(saved))
    outputs = {}
    for name in ("near", "hours"):
        files = (p for p in (tmp_path / "out" / name).rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        outputs[name] = sorted((row["n"], row["m"], row.get("old"), row.get("new")) for row in rows)
    pairs = [(0, 1, None, None), (0, 11, None, "w"), (10, 1, None, None), (10, 11, None, "w")]
    assert outputs == {"near": [(0, 1, "o", None), *pairs[1:]], "hours": pairs}
