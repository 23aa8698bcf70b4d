"""The example: running counts from topic to topic, the same as Flink's, with a driver that dies after a decision."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives, failpoint_setting

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
CASE = next(
    case
    for case in json.loads((ROOT / "tests/conformance/data/seed_events.json").read_text())["cases"]
    if case["id"] == "seed.word_count"
)


def test_each_word_with_its_count_once(kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    kafka = kafka_broker
    for topic in ("words-in", "words-out"):
        kafka.create_topic(topic, 1)
    environment = {
        "WORD_COUNT_SERVERS": kafka.bootstrap_servers,
        "WORD_COUNT_FROM": "words-in",
        "WORD_COUNT_TO": "words-out",
        "WORD_COUNT_INTERVAL": "0 s",
        "WORD_COUNT_CHECKPOINTS": str(tmp_path / "checkpoint"),
    }
    death = failpoint_setting("kill", tmp_path / "hit", times=2, points=[Failpoint.DECISION_RECORDED])
    with Lives(ROOT / "examples/word_count.py", environment=environment, folder=tmp_path) as lives:
        job = lives.start(POUNDLOCK_FAILPOINTS=death)
        for lines, words in ((CASE["lines"][:1], 10), (CASE["lines"][1:], len(CASE["expected"]))):
            kafka.produce("words-in", [Record(line.encode()) for line in lines])
            job = lives.until(lambda words=words: len(kafka.read("words-out")) >= words, job)  # type: ignore[misc]
        assert lives.stop(job) == 0
    assert (tmp_path / "hit" / Failpoint.DECISION_RECORDED.value).exists()

    expected, found = defaultdict(list), defaultdict(list)
    for said in CASE["expected"]:
        word, n = said.split(":")
        expected[word].append(int(n))
    for record in kafka.read("words-out"):
        row = json.loads(record.value or b"")
        assert (record.key or b"").decode() == row["word"]
        found[row["word"]].append(row["n"])
    assert found == expected
