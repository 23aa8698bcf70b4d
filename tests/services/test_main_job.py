"""The main job end to end on a real broker: Kafka to files by event time, each event in exactly one finished file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from poundlock.demo.program import DemoSettings, run_demo
from poundlock.testing.audit import audit_output, day_bucket, finished_files
from poundlock.testing.events import ReferenceEvents, event_time_ms
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives

pytestmark = [pytest.mark.services, pytest.mark.engine]

REFERENCE_JOB = Path(__file__).parents[2] / "examples/event_log.py"
SAMPLES = (
    b'{"timestamp":1545184226.432,"event":"page_view","uuid":"ac0e50bf-944c-4e2f-bbf5-a34b22718e0c"}',
    b'{"timestamp":1545184602.640,"event":"adv_click","uuid":"9b220808-2193-44d1-a0e9-09b9743dec55"}',
    b'{"timestamp":1545184608.969,"event":"thumbs_up","uuid":"b44c3137-4c91-4f36-96fb-80f56561c914"}',
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


def settings(root: Path, broker: EmbeddedKafka, topic: str) -> dict[str, str]:
    return {
        "EVENT_LOG_SERVERS": broker.bootstrap_servers,
        "EVENT_LOG_TOPIC": topic,
        "EVENT_LOG_GROUP": topic,
        "EVENT_LOG_OUT": str(root / "out"),
        "EVENT_LOG_CHECKPOINTS": str(root / "checkpoints"),
        "EVENT_LOG_DEAD_LETTERS": str(root / "dead_letters"),
        "EVENT_LOG_INTERVAL": "0 s",
        "EVENT_LOG_MAX_PER_CHECKPOINT": "8000",
    }


def test_events_land_in_the_day_of_a_zone_and_dead_letters_name_their_place(
    tmp_path: Path, broker: EmbeddedKafka
) -> None:
    topic = "main-job"
    broker.create_topic(topic, 3)
    values = [*SAMPLES, *ReferenceEvents(count=30_000, malformed=0.01)]
    broker.produce(topic, [Record(v, partition=i % 3) for i, v in enumerate(values)])
    environment = {**settings(tmp_path, broker, topic), "EVENT_LOG_ZONE": "Asia/Shanghai"}
    with Lives(REFERENCE_JOB, environment=environment, folder=tmp_path) as lives:
        job = lives.run_until(lambda value: value.get("lag") == 0 and value.get("last_ms") is not None)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    result = audit_output(tmp_path / "out", tmp_path / "dead_letters", values, bucket=day_bucket("Asia/Shanghai"))
    assert result.exact, result
    assert result.hidden == 0
    # two days of UTC are parts of three in Shanghai; never 1970
    assert {p.name for p in (tmp_path / "out").iterdir() if p.is_dir()} == {"dt=20181219", "dt=20181220", "dt=20181221"}
    places = set()
    for path in finished_files(tmp_path / "dead_letters")[0]:
        for line in path.read_text().splitlines():
            letter = json.loads(line)
            assert letter["topic"] == topic
            assert letter["reason"]
            places.add((letter["partition"], letter["offset"]))
    expected = {(i % 3, i // 3) for i, value in enumerate(values) if event_time_ms(value) is None}
    assert places == expected


def test_group_offsets_show_no_lag_after_the_job_caught_up(tmp_path: Path, broker: EmbeddedKafka) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = "group-offsets"
    broker.create_topic(topic, 3)
    values = list(ReferenceEvents(count=9000))
    broker.produce(topic, [Record(v, partition=i % 3) for i, v in enumerate(values)])
    with Lives(REFERENCE_JOB, environment=settings(tmp_path, broker, topic), folder=tmp_path) as lives:
        job = lives.run_until(lambda value: value.get("lag") == 0 and value.get("last_ms") is not None)
        assert lives.stop(job) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "log_level": 0})
    try:
        committed = consumer.committed([TopicPartition(topic, p) for p in range(3)], timeout=20)
    finally:
        consumer.close()
    assert {p.partition: p.offset for p in committed} == broker.end_offsets(topic)


def test_the_demo_survives_its_kills_and_says_so(tmp_path: Path) -> None:
    console = Console(width=120, record=True, file=(tmp_path / "terminal").open("w"))
    report = run_demo(DemoSettings(directory=tmp_path / "demo", events=60_000), console)
    assert report.exit_code == 0, report
    assert report.produced == report.in_files + report.dead_lettered == 60_000
    assert report.dead_lettered == sum(1 for v in ReferenceEvents(count=60_000) if event_time_ms(v) is None)
    assert report.kills == 2
    assert len(report.recoveries_s) == 2
    assert report.checkpoints >= 8
    assert report.hidden == 0
    saved = json.loads((tmp_path / "demo/report.json").read_text())
    assert (saved["lost"], saved["duplicated"]) == (0, 0)
    assert saved["rows_per_s"] > 0
    assert saved["recovery_s"] == max(report.recoveries_s) > 0
    text = console.export_text()
    assert "dt=20181219/" in text
    assert "poundlock new my-pipeline" in text
