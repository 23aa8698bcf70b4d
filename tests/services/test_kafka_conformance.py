"""KafkaSink keeps the contract of a sink, on a real broker: each way of committing, with tasks and drivers that are killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import KafkaSink
from poundlock.testing import sink_conformance
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.services

ROWS = [{"value": b"line %d" % n, "p": 0} for n in range(16)]
KILLS = ("task-killed", "zombie", "crash.sink.writing", "crash.sink.prepared", "crash.decision.recorded")
MODES: dict[str, tuple[dict[str, Any], Sequence[str] | None]] = {
    "exactly-once": ({}, ("hidden", "rejects", "commit-twice", "sweep-orphans", "other-job", *KILLS)),
    "exactly-once, every check": ({}, None),
    "per task": ({"commit_mode": "per_task"}, ("commits", "empty", "replay-decided", "other-job", *KILLS)),
    "at-least-once": ({"guarantee": "at-least-once"}, ("commits", "rejects", *KILLS[2:])),
}


# The way of most jobs; the others, and every check of it, take minutes.
@pytest.mark.parametrize("mode", [pytest.param(m, marks=[pytest.mark.torture] * (m != "exactly-once")) for m in MODES])
def test_kafka_sink(mode: str, kafka_broker: EmbeddedKafka) -> None:
    settings, only = MODES[mode]

    def make(folder: Path) -> KafkaSink:
        return KafkaSink(
            kafka_broker.bootstrap_servers,
            folder.name,
            create_topic=1,
            partition="p",
            **(settings if "guarantee" in settings else {"transaction_timeout": "10 min"} | settings),
        )

    def read(sink: KafkaSink) -> list[dict[str, Any]]:
        return [{"value": record.value, "p": record.partition} for record in kafka_broker.read(str(sink.topic))]

    report = sink_conformance(make, read=read, rows=ROWS, bad_rows=[{"value": b"bad", "p": 7}], only=only)
    assert report.passed
    assert only is not None or not report.skipped
