"""The example: Kafka -> windows -> Kafka, exactly once, with a driver that dies after a decision."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.failpoints import Failpoint
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives, failpoint_setting

pytestmark = pytest.mark.services

EXAMPLE = Path(__file__).parents[2] / "examples/window_counts.py"
START_MS = 1_545_184_200_000  # a whole minute


def test_every_window_once(kafka_broker: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = kafka_broker
    kafka.create_topic("wc-events", 2)
    kafka.create_topic("wc-counts", 1)
    expected: Counter[tuple[str, int]] = Counter()
    records = []
    for i in range(6_000):
        at = START_MS + i * 100
        event = ("page_view", "adv_click", "thumbs_up")[i % 3]
        expected[event, at // 60_000 * 60_000] += 1
        records.append(Record(json.dumps({"timestamp": at / 1000, "event": event}).encode(), partition=i % 2))
    last = json.dumps({"timestamp": (START_MS + 3_600_000) / 1000, "event": "last"}).encode()
    records += [Record(b"not json", partition=0), Record(last, partition=0), Record(last, partition=1)]
    kafka.produce("wc-events", records)
    environment = {
        "WINDOW_COUNTS_SERVERS": kafka.bootstrap_servers,
        "WINDOW_COUNTS_FROM": "wc-events",
        "WINDOW_COUNTS_TO": "wc-counts",
        "WINDOW_COUNTS_INTERVAL": "0 s",
        "WINDOW_COUNTS_CHECKPOINTS": str(tmp_path / "checkpoint"),
        "WINDOW_COUNTS_DEAD_LETTERS": str(tmp_path / "dead"),
        "WINDOW_COUNTS_MAX_PER_CHECKPOINT": "2000",
    }

    def read() -> list[tuple[str, int, int]]:
        rows = [json.loads(record.value or b"") for record in kafka.read("wc-counts")]
        return [(row["event"], row["window_start_ms"], row["n"]) for row in rows]

    deaths = failpoint_setting("kill", tmp_path / "hit", times=2, points=[Failpoint.DECISION_RECORDED])
    with Lives(EXAMPLE, environment=environment, folder=tmp_path, arguments=["-p", "2"]) as lives:
        job = lives.run_until(lambda value: value.get("lag") == 0 and value.get("last_ms"), POUNDLOCK_FAILPOINTS=deaths)
        deadline = time.monotonic() + lives.patience_s
        while len(read()) < len(expected):
            assert job.exit_code is None, job.log_tail()
            assert time.monotonic() < deadline, job.log_tail()
            time.sleep(0.3)
        assert lives.stop(job) == 0
    assert (tmp_path / "hit" / Failpoint.DECISION_RECORDED.value).exists()
    # the audit needs the checkpoint folder and the broker, not the example
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "checkpoint"), "--json"]) == 0
    audited = json.loads(capsys.readouterr().out)["sinks"]
    assert audited["counts"]["visible"] == len(expected)
    assert audited["counts"]["read_back"] > 0
    assert {name: sink["unchecked"] for name, sink in audited.items()} == dict.fromkeys(audited, "")
    found = read()
    assert len(found) == len(set(found)) == len(expected)
    assert {(event, start): n for event, start, n in found} == expected
    dead = [line for path in (tmp_path / "dead").rglob("dead-*") for line in path.read_bytes().splitlines()]
    assert [json.loads(line)["value"] for line in dead] == ["not json"]
