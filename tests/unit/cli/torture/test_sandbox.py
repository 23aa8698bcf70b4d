"""A job in a sandbox: it reads a sample and writes into the sandbox alone, and what cannot be redirected is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    DatagenSource,
    FileSink,
    FileSource,
    JdbcSink,
    Job,
    KafkaSink,
    KafkaSource,
    PartitionCommit,
    PrintSink,
)
from poundlock.cli.main import main
from poundlock.cli.torture import sample
from poundlock.cli.torture.sample import SampleSize, samples_of
from poundlock.cli.torture.sandbox import (
    TORTURED,
    InputSample,
    Sandbox,
    redirect,
    refuse_what_stays_outside,
    sandboxed_job,
)
from poundlock.connectors.kafka.offsets import Offsets
from poundlock.errors import DefinitionError, TransientError
from poundlock.stream.nodes import walk

LIMITS = SampleSize(records=500, files=2, checkpoints=4)


def sandbox_of(job: Job, root: Path, **given: Any) -> Sandbox:
    return Sandbox(target="job.py", root=str(root), samples=samples_of(job, root, LIMITS), streaming=False, **given)


def lines(folder: Path, *names: str) -> None:
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / name).write_text(f"{name}\n" * 100)
        os.utime(folder / name, (1_000 + number,) * 2)


def test_files_are_copied_the_newest_of_them_and_keep_their_order(tmp_path: Path) -> None:
    lines(tmp_path / "in", "c", "b", "a", ".hidden")
    job = Job("copied", checkpoint_dir=str(tmp_path / "own"))
    source = FileSource(str(tmp_path / "in"), watch=True)
    job.from_source(source, name="in").sink_to(FileSink(str(tmp_path / "out"), row="value"), name="out")
    sandbox = sandbox_of(job, tmp_path / "sandbox")
    assert sandbox.samples["in"].says.startswith("2 files of 3, ")
    redirect(job, sandbox, TORTURED)
    sampled = job.sources[0].source
    storage, entries = sampled.files()
    assert storage.root == str(tmp_path / "sandbox/input/in")
    assert [each.path for each in sorted(entries, key=lambda each: each.modified_ms)] == ["b", "a"]
    assert sampled.bounded
    assert sampled.limits == (100, 100, 1), "about four checkpoints"
    assert source.watch, "the job's own source is as it was"


def test_every_branch_reads_one_source_and_writes_below_the_run(tmp_path: Path) -> None:
    job = Job("branches", checkpoint_dir=str(tmp_path / "own"), dead_letters=str(tmp_path / "letters"))
    rows = job.from_source(DatagenSource("n int", rate=10), name="rows")
    rows.filter(lambda row: row["n"] > 0, name="some").sink_to(FileSink(str(tmp_path / "a"), format="json"), name="a")
    rows.sink_to(PrintSink(), name="b")
    rows.sink_to(KafkaSink("localhost:9", "events", value="n", format="json"), name="c")
    sandbox = sandbox_of(job, tmp_path / "sandbox", topics={"c": ("poundlock-torture-x", 1)})
    redirect(job, sandbox, TORTURED)
    assert len(job.sources) == 1
    assert {id(node) for node in walk(job.graph()) if node.id == "rows"} == {id(job.sources[0])}
    assert (job.sources[0].source.count, job.sources[0].source.rate) == (500, None)
    run = tmp_path / "sandbox" / TORTURED
    files, printed, topic = (node.sink for node in job.sinks)
    assert files.path == str(run / "output/a")
    assert printed.target == "stderr"
    assert (topic.topic, topic.marker_topic) == (
        f"poundlock-torture-x-{TORTURED}",
        f"poundlock-torture-x-{TORTURED}-markers",
    )
    assert (job.checkpoint_dir, job.dead_letters) == (str(run / "checkpoint"), str(run / "dead-letters"))


def test_kafka_is_read_between_the_offsets_of_the_sample_and_commits_none(tmp_path: Path) -> None:
    job = Job("topics", checkpoint_dir=str(tmp_path / "own"))
    source = KafkaSource(bootstrap_servers="localhost:9", pattern="ev.*", group_id="mine", start="latest")
    job.from_source(source, name="in").sink_to(FileSink(str(tmp_path / "out"), row="value"), name="out")
    offsets = {"start": {"events": {"0": 5, "1": 0}}, "end": {"events": {"0": 25, "1": 20}}}
    sample = InputSample(kind="kafka", rows=40, checkpoints=4, **offsets)
    sandbox = Sandbox(target="job.py", root=str(tmp_path), samples={"in": sample}, streaming=True)
    redirect(job, sandbox, TORTURED)
    sampled = job.sources[0].source
    assert (sampled.pattern, sampled.partitions, sampled.group_id) == (None, {"events": [0, 1]}, "")
    assert dict(sampled.start.offsets_by_partition) == {("events", 0): 5, ("events", 1): 0}
    assert dict(sampled.end.offsets_by_partition) == {("events", 0): 25, ("events", 1): 20}
    assert sampled.max_records_per_checkpoint == 10
    assert job.runtime_mode == "streaming", "its own input has no end"


def test_the_file_of_a_run_loads_the_job_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "job.py"
    path.write_text(
        "from poundlock import DatagenSource, Job, PrintSink\njob = Job('of-the-user')\n"
        "job.from_source(DatagenSource('n int', count=5), name='rows').sink_to(PrintSink(), name='shown')\n"
    )
    sample = InputSample(kind="generated", rows=3)
    plan = Sandbox(target=str(path), root=str(tmp_path), samples={"rows": sample}, streaming=False).save()
    job = sandboxed_job(str(plan), TORTURED)
    assert (job.name, job.sources[0].source.count) == ("of-the-user", 3)


class Unknown(FileSink):
    """A sink that may write anywhere."""


def per_record(row: dict[str, Any]) -> str:
    return "topic"


@pytest.mark.parametrize(
    ("sink", "what", "next"),
    [
        (JdbcSink("jdbc:sqlite:x", "t", staging="s"), "it is a JdbcSink", "FileSink, KafkaSink and PrintSink can be"),
        (Unknown("out", format="json"), "it is a Unknown", "FileSink, KafkaSink and PrintSink can be"),
        (KafkaSink("localhost:9", per_record, value="n", format="json"), "each record says its topic", "one topic"),
        (
            FileSink("out", format="json", partition_commit=PartitionCommit(policies=(print,))),
            "its partition commit calls a function", "success-file",
        ),
    ],
)  # fmt: skip
def test_a_sink_that_would_write_outside_is_refused_by_name(sink: Any, what: str, next: str) -> None:
    job = Job("outside")
    job.from_source(DatagenSource("n int", count=1), name="rows").sink_to(sink, name="far")
    with pytest.raises(DefinitionError, match=f"sink 'far' cannot be redirected: {what}") as refused:
        refuse_what_stays_outside(job)
    assert next in str(refused.value.next)


def test_a_source_that_cannot_be_sampled_is_refused_by_name() -> None:
    from poundlock import SocketSource

    job = Job("outside")
    job.from_source(SocketSource("localhost", 9), name="far").sink_to(PrintSink(), name="shown")
    with pytest.raises(DefinitionError, match="the input of source 'far' cannot be sampled: it is a SocketSource"):
        refuse_what_stays_outside(job)


def test_a_source_without_input_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    job = Job("empty")
    job.from_source(FileSource(str(tmp_path / "in")), name="in").sink_to(PrintSink(), name="shown")
    with pytest.raises(DefinitionError, match="source 'in' has nothing to read"):
        samples_of(job, tmp_path / "sandbox", LIMITS)


def test_a_broker_that_does_not_answer_at_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([TransientError("away", next="wait"), TransientError("away", next="wait"), None])

    def offsets(source: KafkaSource) -> tuple[Offsets, ...]:
        if (error := next(answers)) is not None:
            raise error
        return {("t", 0): 2}, {("t", 0): 1}, {("t", 0): 9}, {("t", 0): 9}

    monkeypatch.setattr(sample, "_offsets", offsets)
    monkeypatch.setattr(sample, "_AGAIN_S", 0.0)
    job = Job("patient")
    job.from_source(KafkaSource(bootstrap_servers="localhost:1", topics="t"), name="in").sink_to(
        PrintSink(), name="out"
    )
    assert [each.rows for each in samples_of(job, tmp_path, LIMITS).values()] == [7]
    monkeypatch.setattr(sample, "_BROKER_S", 0.0)
    answers = iter([TransientError("away", next="wait")] * 9)
    with pytest.raises(TransientError, match="away") as refused:
        samples_of(job, tmp_path, LIMITS)
    assert "torture the job again" in refused.value.next


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--kills", "0"], "nothing would be killed"),
        (["--at", "decision.recordet"], "there is no failpoint 'decision.recordet'"),
        (["--at", "decision.recorded@0"], "is not FAILPOINT@N"),
        (["--at", "state.writing"], "it keeps no keyed state"),
        (["--stop-service", "true"], "a service that is stopped has to be started again"),
        (["--control", "burnt"], "--control burnt is not known"),
        (["-D", "master=yarn"], "processes of yarn cannot be killed from here"),
        (["--sandbox", "."], "is not empty"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(tmp_path / "state"))
    Path("job.py").write_text(
        "from poundlock import DatagenSource, Job, PrintSink\njob = Job('refused')\n"
        "job.from_source(DatagenSource('n int', count=5), name='rows').sink_to(PrintSink(), name='shown')\n"
    )
    assert main(["torture", "job.py", *words]) == 2
    error, next = capsys.readouterr().err.splitlines()
    assert what in error
    assert next.startswith("Next: ")
    assert not Path("state/torture").exists()
    assert json.dumps(sorted(os.listdir())) == '["job.py"]'
