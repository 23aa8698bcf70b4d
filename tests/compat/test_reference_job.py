"""The reference job: JSON events from a real broker into files by event time, killed once, every event in one finished file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock.testing.audit import audit_output
from poundlock.testing.events import ReferenceEvents
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = [pytest.mark.engine, pytest.mark.services]

JOB = Path(__file__).parents[2] / "examples" / "event_log.py"
PARTITIONS, EVENTS = 3, 6000


def test_every_event_is_in_one_finished_file(
    terminal: Any, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], finished: Callable[[Path], list[str]]
) -> None:
    topic = new_topic(PARTITIONS)
    values = list(ReferenceEvents(count=EVENTS, malformed=0.01))
    records = [Record(value, partition=number % PARTITIONS) for number, value in enumerate(values)]
    kafka_broker.produce(topic, records[: EVENTS // 2])
    out, letters = terminal.folder / "out", terminal.folder / "dead_letters"
    environment = {
        "EVENT_LOG_SERVERS": kafka_broker.bootstrap_servers,
        "EVENT_LOG_TOPIC": topic,
        "EVENT_LOG_GROUP": topic,
        "EVENT_LOG_OUT": str(out),
        "EVENT_LOG_CHECKPOINTS": str(terminal.folder / "checkpoint"),
        "EVENT_LOG_DEAD_LETTERS": str(letters),
        "EVENT_LOG_INTERVAL": "0 s",
        "EVENT_LOG_ROLL_EVERY": "1 s",
        "EVENT_LOG_MAX_PER_CHECKPOINT": "500",
    }
    first = terminal.start("run", str(JOB), **environment)
    terminal.wait(lambda: bool(finished(out)), first)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kafka_broker.produce(topic, records[EVENTS // 2 :])
    second = terminal.start("run", str(JOB), **environment)
    terminal.wait(lambda: len(finished(out)) + len(finished(letters)) >= EVENTS, second)
    terminal.stop(second)
    result = audit_output(out, letters, values)
    assert result.exact, (result, terminal.log())
    assert result.in_files + result.dead_lettered == EVENTS
    assert result.dead_lettered > 0
    assert result.hidden == 0
