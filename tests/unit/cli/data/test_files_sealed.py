"""`poundlock files --sealed` and `--wait`: what is listed of sealed buckets, and how they are waited for."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.capabilities import SinkTime, bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Prepared, WriterContext
from poundlock.cli.main import main
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner
from poundlock.connectors.files.partitions.sealed import SealedBuckets
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.sinks import lines

DAY = 86_400_000
FIRST = "dt=19700105"


class SealingProject:
    """A checkpoint folder of a job with one sink, whose watermark is set by hand."""

    def __init__(self, root: Path, **given: Any) -> None:
        self.checkpoint, self.lake = str(root / "checkpoint"), str(root / "lake")
        storage, clock = LocalStorage(self.checkpoint), SystemClock()
        identity = open_identity(storage, name="sealing", clock=clock)
        by_day = EventTimeBucketAssigner("ts", "'dt='yyyyMMdd", zone="UTC", unit="ms")
        sink = FileSink(self.lake, row="value", bucket=by_day, **given)
        self.job_id, self.number = identity.job_id, 0
        self.sink = bound(sink, job_id=self.job_id, sink="lake")
        self.coordinator = Coordinator(
            identity=identity,
            epoch=Epoch.claim(storage, clock=clock),
            ledger=Ledger(storage),
            participants={"lake": self.sink},
            clock=clock,
        )
        self.coordinator.recover()

    def take(self, watermark_days: float, *days: float) -> None:
        """Take a checkpoint with rows of these days, behind which the watermark is there."""
        values = [json.dumps({"ts": round(day * DAY)}).encode() for day in days]

        def run(directive: SinkDirectives) -> TaskResults:
            context = WriterContext(
                job_id=self.job_id, sink="lake", epoch=directive.epoch, checkpoint=directive.checkpoint, subtask=0,
                attempt=f"a{self.number}", directive=directive.sinks["lake"], reject=lambda reject: None,
                started_ms=directive.started_ms,
            )  # fmt: skip
            writer = self.sink.open_writer(context)
            writer.write(lines(*values))
            prepared = [Prepared("lake", 0, payload) for payload in writer.prepare()]
            counts = {"lake": Counts(read=len(values), written=len(values))}
            return TaskResults(prepared=prepared, counts=counts, sink_times={"lake": reached})

        reached = SinkTime(round(watermark_days * DAY))
        ranges = {"in": SourceRange({"o": self.number}, {"o": self.number + 1})}
        self.coordinator.checkpoint(self.number, ranges, run)
        self.number += 1


def test_sealed_buckets_are_listed_with_their_newest_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SealingProject(tmp_path, sealed=SealedBuckets())
    job.take(5.5, 4.1, 5.2, 6.3)
    job.take(5.6, 4.2)
    assert main(["files", job.checkpoint, "--sealed", "--json"]) == 0
    [its] = json.loads(capsys.readouterr().out)
    assert (its["bucket"], its["version"], its["rows"], its["sink"]) == (FIRST, 2, 2, "lake")
    assert (its["root"], its["manifest"]) == (job.lake, f"{FIRST}/_manifest-2.json")
    assert [each["path"] for each in its["files"]] == [f"{FIRST}/part-0-0", f"{FIRST}/part-0-3"]
    assert main(["files", job.checkpoint, "--sealed"]) == 0
    heading, line, total = capsys.readouterr().out.splitlines()
    assert heading.split() == ["version", "sealed", "files", "rows", "bytes", "bucket"]
    assert (line.split()[0], line.split()[2:4], line.split()[-1]) == ("2", ["2", "2"], f"{job.lake}/{FIRST}")
    assert total.startswith("1 bucket, 2 rows, ")
    assert main(["files", job.checkpoint, "--sealed", "--bucket", "dt=19700106", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["files", job.checkpoint, "--bucket", FIRST, "--json"]) == 0
    assert {each["bucket"] for each in json.loads(capsys.readouterr().out)} == {FIRST}


def test_a_bucket_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = SealingProject(tmp_path, sealed=SealedBuckets())
    job.take(4.5, 4.1)
    codes: list[int] = []
    waits = ["files", job.checkpoint, "--wait", "--bucket", FIRST, "--json", "--timeout", "5m"]
    waiting = threading.Thread(target=lambda: codes.append(main(waits)))
    waiting.start()
    time.sleep(0.2)
    assert codes == []
    job.take(5)
    waiting.join(120)
    assert codes == [0]
    assert [each["version"] for each in json.loads(capsys.readouterr().out)] == [1]
    again = ["files", job.checkpoint, "--wait", "--bucket", FIRST]
    assert main([*again, "--version", "2", "--timeout", "0.2 s"]) == 1
    assert capsys.readouterr().err == f"not sealed within 200 ms: {FIRST}\n"
    assert main(again) == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--wait"], "no bucket to wait for"),
        (["--sealed", "--timeout", "1m"], "--timeout has no effect without --wait"),
        (["--version", "2"], "--version has no effect without --sealed and --wait"),
        (["--sealed", "--sink", "sea"], "the job has no sink 'sea'"),
    ],
)
def test_options_that_do_nothing_are_refused(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SealingProject(tmp_path, sealed=SealedBuckets())
    job.take(5, 4.1)
    assert main(["files", job.checkpoint, *options]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--sealed"], ["--wait", "--bucket", FIRST]])
def test_a_job_that_seals_nothing_says_so(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SealingProject(tmp_path)
    job.take(5, 4.1)
    assert main(["files", job.checkpoint, *options]) == 2
    assert "no sink of the job seals buckets" in capsys.readouterr().err
