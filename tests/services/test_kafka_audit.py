"""`poundlock audit` against topics of a real broker: it agrees with what was written, and finds each kind of fault."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import KafkaSink
from poundlock.audit.audit import AuditReport, SinkAudit
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import Committed
from poundlock.cli.main import main
from poundlock.connectors.kafka.audit import topic_logs
from poundlock.connectors.kafka.audit.topic_logs import TopicLogs
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.wire.record_batches import Records
from poundlock.testing.kafka import EmbeddedKafka
from support.kafka_rig import Died, Dying, Rig, Rows, values

pytestmark = pytest.mark.services


def agrees(report: AuditReport, rows: int) -> SinkAudit:
    assert report.agrees, report.disagreements
    found = report.sinks["out"]
    assert (found.unchecked, found.visible, found.counts.written) == ("", rows, rows)
    return found


def said(report: AuditReport) -> list[tuple[int | None, str]]:
    return [(found.checkpoint, found.what) for _, found in report.disagreements]


@pytest.fixture
def rigs(tmp_path: Path, kafka_broker: EmbeddedKafka) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(topic: Any, **settings: Any) -> Rig:
        made.append(Rig(tmp_path / str(len(made)), kafka_broker, topic, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.stop()


@pytest.fixture
def rig(rigs: Callable[..., Rig], new_topic: Callable[..., str]) -> Rig:
    return rigs(new_topic(3))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_committed_agrees_with_aborted_and_strange_transactions_between(
    rigs: Callable[..., Rig], new_topic: Callable[..., str], kafka_broker: EmbeddedKafka, compression: str
) -> None:
    rig = rigs(topic := new_topic(3), compression=compression)
    driver = rig.driver()
    for n in range(3):
        rig.write(n, [values(9, 9)])  # by an attempt nobody waits for; aborted before the decision
        rig.checkpoint(driver, n, [values(n, 0, 300), values(n, 1), {"value": [b"", None, b"x" * 5000]}])
    kafka_broker.produce(topic, ["by another", "by another"], compression_type=compression)
    found = agrees(rig.audit(), 969)
    assert (found.read_back, found.others, found.removed, found.uncompared) == (9, 2, 0, [])


RICH = {
    "key": "key",
    "headers": {"trace": "trace", "none": "none"},
    "partition": "partition",
    "timestamp": "timestamp",
}


def rich(n: int, *, some: bool = False) -> Rows:
    """Return rows with every part; with `some`, the broker chooses a part of the partitions and times."""
    return {
        **values(n, 0, 12),
        "key": [None, b"", *[b"k%d" % i for i in range(10)]],
        "trace": [f"t{i}" for i in range(12)],
        "none": [None if i % 2 else b"\xff" for i in range(12)],
        "partition": [None if some and i % 3 == 0 else i % 3 for i in range(12)],
        "timestamp": [0 if some and i == 4 else 1_545_184_226_432 + i for i in range(12)],
        "topic": ["a" if i % 2 else "b" for i in range(12)],
    }


@pytest.mark.parametrize("broker_time", [False, True])
def test_every_part_of_a_message_is_compared(
    rigs: Callable[..., Rig], new_topic: Callable[..., str], broker_time: bool
) -> None:
    topic = new_topic(3, **{"message_timestamp_type": "LogAppendTime"} if broker_time else {})
    rig = rigs(topic, **RICH)
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rich(0)])
    rig.checkpoint(driver, 1, [rich(1, some=True)])
    agrees(rig.audit(), 24)
    first, second = (c for d in Ledger(rig.storage) for c in d.sinks["out"].committables)
    assert (first["hashed"], second["hashed"]) == (["key", "headers", "partition", "timestamp"], None)
    # other keys, the same values
    rig.checkpoint(driver, 2, [rich(2) | {"key": [b"other"] * 12}])
    (third,) = (c for d in Ledger(rig.storage) if d.checkpoint == 2 for c in d.sinks["out"].committables)
    rig.change(
        3, lambda record: record["sinks"]["out"]["committables"][0].update(digest=first["digest"], plain=first["plain"])
    )
    assert third["digest"] != first["digest"]
    ((checkpoint, what),) = said(rig.audit())
    assert checkpoint == 2
    assert "its 12 rows are not the ones that were written" in what


def test_topics_by_function_are_known_from_the_decisions(
    rigs: Callable[..., Rig], new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"a": new_topic(2), "b": new_topic(1)}
    rig = rigs(lambda record: names[record["topic"]], key="key")
    driver = rig.driver()
    for n in range(2):
        rig.checkpoint(driver, n, [rich(n), rich(n)])
    rig.stop()
    agrees(rig.audit(), 48)
    # without the user's code, from what the driver wrote down at its start
    assert main(["audit", str(rig.root / "checkpoint"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["disagreements"] == []
    assert (report["sinks"]["out"]["read_back"], report["sinks"]["out"]["visible"]) == (4, 48)
    rig.broker.delete_topic(names["b"])
    assert main(["audit", str(rig.root / "checkpoint"), "--json", "--from", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {found["checkpoint"] for found in report["disagreements"]} == {1}
    assert all(f"topic {names['b']} does not exist" in found["what"] for found in report["disagreements"])


def test_an_audit_from_a_checkpoint_reads_from_where_it_began(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write in between, and attempts that nobody decided; what is missing from the range is not excused by what stands before."""
    driver, topics, began = rig.driver(), TopicLogs(rig.broker.bootstrap_servers, KafkaSecurity()), []
    for n in range(24):
        if n % 5 == 0:
            rig.write(n, [values(9, 9)])
            rig.broker.produce(rig.sink.topic, ["by another"] * 30)
        began.append(topics.end([(rig.sink.topic, partition) for partition in range(3)]))
        rig.checkpoint(driver, n, [values(n, 0, 60), values(n, 1, 60)])
    rig.stop()
    reads: dict[Partition, int] = {}
    read = TopicLogs.read

    def noted(self: TopicLogs, place: Partition, first: int, after: int) -> Iterator[Records]:
        reads[place] = min(first, reads.get(place, first))
        return read(self, place, first, after)

    monkeypatch.setattr(TopicLogs, "read", noted)
    monkeypatch.setattr(topic_logs, "_FEW", 20)
    for first in (0, 1, 12, 20, 23):
        reads.clear()
        found = agrees(rig.audit(first=first), (24 - first) * 120)
        assert found.removed == 0
        for place, at in reads.items():
            assert at <= began[first][place], "nothing of the range is left out"
        before = sum(began[first].values())
        assert first < 12 or sum(reads.values()) > before / 2, "most of what stands before it is not read"
    rig.change(13, lambda record: record["sinks"]["out"]["committables"][0].update(rows=61))
    whats = said(rig.audit(first=12))
    assert (12, "1 of its 61 rows are missing: no read_committed reader sees them") in whats, whats


def test_a_committed_transaction_that_nobody_decided_is_found(rig: Rig) -> None:
    rig.run(2)
    (stray,) = rig.write(2, [values(7, 7)])
    bound = rig.sink.bind(job_id=rig.identity.job_id, sink="out")
    assert isinstance(bound.commit(stray.payload), Committed)
    ((_, found),) = rig.audit().disagreements
    assert found.what.startswith("20 rows of this sink's producers are visible")
    assert found.what.endswith("and no decision names them")
    assert stray.payload["transaction"] in found.path


def test_what_a_forgotten_decision_named_is_not_taken_for_nobodys(rig: Rig) -> None:
    rig.ledger = Ledger(rig.storage, per_file=2, retention_ms=0)
    rig.run(8)
    assert rig.ledger.first() > 2
    report = rig.audit()
    assert report.agrees, report.disagreements
    assert report.sinks["out"].visible < 320
    (stray,) = rig.write(8, [values(7, 7)])
    rig.sink.bind(job_id=rig.identity.job_id, sink="out").commit(stray.payload)
    assert [what.split(" of ")[0] for _, what in said(rig.audit())] == ["20 rows"]


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ({"rows": "many"}, "ValueError"),
        ({"rows": None}, "TypeError"),
        ({"pid": None}, "TypeError"),
        ({"places": {"t": "q-"}}, "ValueError"),
        ({"places": {"t": "0-999999999"}}, "no partitions of a topic"),
        ({"places": [1]}, "AttributeError"),
    ],
)
def test_a_decision_that_names_rubbish_is_told_with_its_checkpoint(rig: Rig, edited: dict[str, Any], told: str) -> None:
    rig.run(1)
    rig.change(1, lambda record: record["sinks"]["out"]["committables"][0].update(edited))
    (checkpoint, what), *_ = said(rig.audit())
    assert checkpoint == 0
    assert what.startswith("decision 1 names what is none of this sink's")
    assert told in what


def test_another_digest_and_other_numbers_are_told_with_their_checkpoint(rig: Rig) -> None:
    rig.run(5)

    def change(**said: Any) -> Callable[[dict[str, Any]], None]:
        return lambda record: record["sinks"]["out"]["committables"][0].update(said)

    rig.change(2, change(digest="0" * 16))
    rig.change(3, change(rows=25))
    rig.change(4, change(rows=15))
    rig.change(5, change(epoch=999))
    found = dict(said(rig.audit()))
    whole = [what for checkpoint, what in said(rig.audit()) if checkpoint is None]
    assert len(whole) == 1, "the sums still agree"
    assert whole[0].startswith("20 rows of this sink's producers are visible")
    assert "its 20 rows are not the ones that were written" in found[1]
    assert "5 of its 25 rows are missing: no read_committed reader sees them" in found[2]
    assert "it has 20 rows instead of the 15 decided" in found[3]
    assert "its 20 rows are missing" in found[4]
    assert said(rig.audit(first=0, last=0))[:-1] == []  # the one that nobody decided has no checkpoint
    assert len(said(rig.audit(first=1, last=1))) == 2


def test_what_retention_removed_is_no_fault_and_hides_none(
    rigs: Callable[..., Rig],
    new_topic: Callable[..., str],
    kafka_broker: EmbeddedKafka,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rig = rigs(topic := new_topic(2), partition="partition")
    driver = rig.driver()

    def part(n: int, partition: int) -> Rows:
        return values(n, partition) | {"partition": [partition] * 20}

    for n in range(4):
        rig.checkpoint(driver, n, [part(n, 0), part(n, 1)])
    rig.stop()
    # 20 rows and the mark of their commit a checkpoint: the first one, and a half of the second one
    kafka_broker.delete_records(topic, {0: 30})
    found = agrees(rig.audit(), 160)
    assert (found.removed, found.read_back) == (29, 8)
    assert agrees(rig.audit(first=2), 80).removed == 0
    assert main(["audit", str(rig.root / "checkpoint")]) == 0
    assert "  29 of these removed by retention, not compared" in capsys.readouterr().out.splitlines()

    def more(record: dict[str, Any]) -> None:
        record["sinks"]["out"]["committables"][0]["rows"] += 500

    untouched = next(d.number for d in Ledger(rig.storage) if d.checkpoint == 2)
    rig.change(untouched, more)
    ((checkpoint, what),) = [found for found in said(rig.audit(first=2)) if found[0] is not None]
    assert (checkpoint, what.split(":")[0]) == (2, "500 of its 520 rows are missing")
    # nor can more be gone than was removed
    rig.change(untouched, lambda record: record["sinks"]["out"]["committables"][0].update(rows=20))
    rig.change(1, more)
    assert any("529 rows are gone, and the brokers removed 30 at most" in what for _, what in said(rig.audit()))
    kafka_broker.delete_records(topic, {0: -1, 1: -1})
    rig.change(1, lambda record: record["sinks"]["out"]["committables"][0].update(rows=20))
    assert agrees(rig.audit(), 160).removed == 160


def test_a_compacted_topic_cannot_be_compared_and_is_named(
    rigs: Callable[..., Rig], new_topic: Callable[..., str]
) -> None:
    rig = rigs(topic := new_topic(1, cleanup_policy="compact"), key="key")
    rig.checkpoint(rig.driver(), 0, [values(0, 0) | {"key": [b"one"] * 20}])
    found = agrees(rig.audit(), 20)
    assert found.read_back == 0
    assert [text.split(":")[0] for text in found.uncompared] == [f"topic {topic} is compacted"]


def test_readers_that_are_held_up_see_nothing_and_are_told_by_whom(
    rig: Rig, kafka_broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.run(1)
    producer = kafka_broker.producer(transactional_id=(tid := f"x{uuid.uuid4().hex}"))
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(str(rig.sink.topic), b"open", partition=partition)
    producer.flush(30)
    # what was committed before it can be read
    agrees(rig.audit(), 40)
    driver = rig.driver()
    rig.checkpoint(driver, 1, [values(1, 0)])
    rig.stop()
    ((checkpoint, what),) = said(rig.audit())
    assert checkpoint == 1
    assert f"its 20 rows are missing: transactional id {tid}, open since" in what
    assert "holds readers of" in what
    agrees(rig.audit(last=0), 40)
    producer.commit_transaction(30)
    assert agrees(rig.audit(), 60).others == 3


def test_what_is_decided_and_not_committed_is_told(rig: Rig) -> None:
    with pytest.raises(Died):
        rig.checkpoint(rig.driver(Dying), 0, [values(0, 0)])
    rig.stop()
    ((checkpoint, what),) = said(rig.audit())
    assert checkpoint == 0
    assert (
        what
        == "its 20 rows are missing: it is decided and not committed yet; start the job, or type poundlock fsck --fix"
    )
    rig.driver()
    rig.stop()
    agrees(rig.audit(), 20)


def test_what_was_produced_again_counts_once(rig: Rig) -> None:
    rig.checkpoint(rig.driver(), 0, [values(0, 0)])
    tasks = [values(1, 0), values(1, 1)]
    with pytest.raises(Died):
        rig.checkpoint(rig.driver(Dying), 1, tasks, transaction_timeout="1 s")
    rig.stop()
    newest = Ledger(rig.storage).newest()
    assert newest is not None
    committables = newest.sinks["out"].committables
    asked = rig.sink._asked()
    while any((told := asked.describe(c["tid"])) and told.state != "CompleteAbort" for c in committables):
        time.sleep(0.05)
    assert {what for _, what in said(rig.audit())} == {
        "its 20 rows are missing: it was aborted before it was committed; the next start of the job produces it again"
    }
    driver = rig.driver()
    report = rig.audit()
    assert report.agrees, report.disagreements
    assert (report.sinks["out"].visible, report.sinks["out"].again) == (20, 40)
    rig.checkpoint(driver, 1, tasks)
    rig.checkpoint(driver, 2, [values(2, 0)])
    assert agrees(rig.audit(), 80).read_back == 4
    assert agrees(rig.audit(first=1, last=1), 40).read_back == 2


def test_what_can_be_there_twice_is_not_compared(rig: Rig) -> None:
    rig.checkpoint(rig.driver(), 0, [values(0, 0)])
    rig.settings = {"guarantee": "at-least-once"}
    rig.checkpoint(rig.driver(), 1, [values(1, 0)])
    rig.stop()
    found = agrees_so_far(rig.audit())
    assert found.uncompared == ["20 rows were written without transactions: no decision names them"]
    assert (found.visible, found.others) == (20, 20)
    rig.sink = KafkaSink(rig.sink.bootstrap_servers, rig.sink.topic, **rig.settings)
    assert agrees_so_far(rig.audit()).unchecked.startswith('it has guarantee="at-least-once"')


def agrees_so_far(report: AuditReport) -> SinkAudit:
    assert report.agrees, report.disagreements
    return report.sinks["out"]


def test_an_old_decision_is_compared_by_its_number(rig: Rig) -> None:
    """One that says neither where its rows went nor of what its digest is."""
    rig.run(2)

    def old(record: dict[str, Any]) -> None:
        for committable in record["sinks"]["out"]["committables"]:
            del committable["places"], committable["hashed"]

    for number in (1, 2):
        rig.change(number, old)
    assert agrees(rig.audit(), 80).read_back == 4
    rig.change(2, lambda record: record["sinks"]["out"]["committables"][1].update(rows=21))
    assert (1, "1 of its 21 rows are missing: no read_committed reader sees them") in said(rig.audit())
