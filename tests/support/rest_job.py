"""A job to look at over REST that is no job: a ledger of two checkpoints, and everything it was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.decision import Decision, EventTime, SinkDecision, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import Counts
from poundlock.control.registry import registered
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.operators.time_values import DecidedTime, TimeDirective, TimeState
from poundlock.rest.figures import Figures
from poundlock.rest.observed import JobSetup, Observed, Vertex
from poundlock.storage import open_storage

ID = "c0ffee" + "0" * 26
TOKEN = "the-token"


def decision(number: int, checkpoint: int, occasion: str = "checkpoint") -> Decision:
    """Return a record in which 10 rows of 1000 bytes came in, 8 were written as 80 bytes, one was late, one dead."""
    counts = Counts(read=10, written=8, late=1, dead_lettered=1)
    sinks = {
        "files": SinkDecision([], {}, counts, Written(pieces=1, rows=8, bytes=80)),
        "dead-letter": SinkDecision([], {}, Counts(read=1, written=1), Written(pieces=1, rows=1, bytes=5)),
    }
    return Decision(
        number=number,
        occasion=occasion,
        checkpoint=checkpoint,
        job_id=ID,
        epoch=1,
        time_ms=2000 + checkpoint * 1000,
        sources={"events": SourceRange(checkpoint * 10, checkpoint * 10 + 10, {}, 10, 1000)}
        if occasion == "checkpoint"
        else {},
        sinks=sinks if occasion == "checkpoint" else {},
        durations_ms={"run": 100, "verify": 20},
        started_ms=1500 + checkpoint * 1000,
        event_time=EventTime(min_ms=1, max_ms=9, watermark_ms=checkpoint * 1000),
        watermarks=DecidedTime(
            v=2, watermark=checkpoint * 1000 + 500, state=TimeState(), directive=TimeDirective(TimeState(), 0, {})
        ),
    )


def observed(folder: Path) -> tuple[Observed, Ledger]:
    """Return a job that went on from checkpoint 0 and has taken checkpoints 1 and 2, with its ledger."""
    ledger = Ledger(open_storage(str(folder)))
    ledger.append(decision(0, 0))
    entry = registered(
        job_id=ID, name="orders", checkpoint_dir=str(folder), log=folder / "log", job_file="job.py", arguments=()
    )
    job = Observed(
        entry=replace(entry, started_ms=1_000),
        setup=JobSetup(
            parallelism=2,
            settings={"spark": {"spark.ssl.keyPassword": "*****"}},
            vertices=[
                Vertex(name="events", kind="source", description="KafkaSource"),
                Vertex(name="files", kind="sink", description="FileSink"),
            ],
        ),
        figures=Figures(Ledger(open_storage(str(folder)))),
        stop=StopRequest(),
        requests=Requests(),
    )
    job.update(Progress("RUNNING"))
    ledger.append(decision(1, 0, "start"))
    ledger.append(decision(2, 1))
    ledger.append(decision(3, 2))
    job.update(Progress("RUNNING", checkpoint=2, rows_read=20, rows_written=16, lag=5, last_ms=300))
    return job, ledger
