"""Whether a topic has records that are newer than a savepoint, on a real broker: only committed ones count, and all of them do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    Job,
    KafkaSink,
    TopicExpression,
    TransientError,
    TwoPhaseCommitSink,
)
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.identity import new_job_id
from poundlock.checkpoint.portable import Newer
from poundlock.connectors.kafka.sink import output_since as looking
from poundlock.driver.savepoints.checkpoint_as_savepoint import savepoint_of
from poundlock.driver.savepoints.restore import Beginning
from poundlock.plan.plan import make_plan
from poundlock.savepoint.edit import edit
from poundlock.savepoint.metadata import Metadata, Operator, new_name, read_metadata
from poundlock.savepoint.restore import Restoring, check
from poundlock.savepoint.take import finish, take
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.values import SystemClock
from support.kafka_rig import Rig, values

pytestmark = pytest.mark.services

OPERATORS = {"in": Operator("source"), "out": Operator("sink")}


@pytest.fixture
def rig(tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> Rig:
    return Rig(tmp_path, kafka_broker, new_topic(2))


def found(rig: Rig, note: dict[str, Any], **changed: Any) -> Newer:
    return KafkaSink(rig.sink.bootstrap_servers, rig.sink.topic, **rig.settings | changed).newer({}, note)


def save(rig: Rig, driver: Coordinator, sink: Any = None) -> LocalStorage:
    name = new_name(rig.identity.job_id)
    metadata = Metadata(
        name=name, job="rig", job_id=rig.identity.job_id, created_ms=1, versions={}, decision=driver.newest,
        operators=OPERATORS, sinks={}, files={},
    )  # fmt: skip
    savepoint = LocalStorage(str(rig.root / name))
    finish(take(rig.storage, savepoint, metadata=metadata, sinks={"out": sink or rig.sink}))
    return savepoint


def checked(rig: Rig, savepoint: LocalStorage, sink: Any = None, **more: Any) -> Restoring:
    sinks = {"out": bound(sink or rig.sink, job_id=new_job_id(), sink="out")}
    storage = LocalStorage(str(rig.root / "second"))
    return check(savepoint, storage, job="rig", operators=OPERATORS, sinks=sinks, **more)


def test_nothing_is_newer_right_behind_a_checkpoint(rig: Rig) -> None:
    """The broker answers a commit before it has marked the partitions, and the marks then take offsets."""
    driver = rig.driver()
    for n in range(8):
        rig.checkpoint(driver, n, [values(n, 0), values(n, 1)])
        note = rig.sink.note()
        assert found(rig, note) == Newer()
        assert sum(note["ends"].values()) >= 40 * (n + 1)
    rig.write(8, [values(8, 0)])  # a process that is killed leaves it open
    assert found(rig, note) == Newer()
    rig.driver()  # the next one aborts it
    assert found(rig, note) == Newer()
    rig.stop()


def test_what_was_committed_behind_an_open_transaction_before_the_cut_is_not_newer(rig: Rig) -> None:
    """To a read_committed reader a partition ends where somebody's open transaction begins, and goes on when it ends."""
    other = Rig(rig.root / "other", rig.broker, rig.sink.topic)
    opened = other.write(0, [values(7, 0), values(7, 1)])
    driver = rig.driver()
    rig.checkpoint(driver, 0, [values(0, 0), values(0, 1)])
    note = rig.sink.note()
    for prepared in opened:
        other.sink.abort(prepared)
    assert found(rig, note) == Newer()
    rig.stop()


def test_committed_records_are_counted_also_behind_an_open_transaction(rig: Rig) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [values(0, 0)])
    note = rig.sink.note()
    rig.write(7, [values(7, 0), values(7, 1)])
    rig.broker.produce(rig.sink.topic, [Record(b"x", partition=1)])
    told = found(rig, note)
    assert told.what.startswith(f"has 1 record in topic {rig.sink.topic!r} behind offset 1:{note['ends']['1']},")
    assert not told.retractable
    other = Rig(rig.root / "other", rig.broker, rig.sink.topic)
    other.run(2)
    assert "has 81 records" in found(rig, note).what
    assert found(rig, note | {"topic": "elsewhere"}) == Newer(), "the job writes to another topic now"
    rig.stop()


def test_a_topic_that_was_made_anew_or_has_got_partitions(
    rig: Rig, kafka_broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(1)
    note = rig.sink.note()
    ends = {number: end + 1000 for number, end in note["ends"].items()}
    assert "has 40 records" in found(rig, note | {"ends": ends}).what, "it ended later before"
    less = {number: end for number, end in note["ends"].items() if number != "1"}
    assert found(rig, note | {"ends": less}).what.count("1:0") == (note["ends"]["1"] > 1)
    monkeypatch.setattr(looking, "_MOST", 10)
    assert "more than 10 records" in found(rig, note | {"ends": {"0": 0, "1": 0}}).what


def test_a_restore_is_refused_unless_records_may_come_twice(rig: Rig) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [values(0, 0), values(0, 1)])
    savepoint = save(rig, driver)
    assert checked(rig, savepoint).unseen == []
    assert checked(rig, savepoint, newer="retract").unseen == [], "there is nothing to retract"
    rig.checkpoint(driver, 1, [values(1, 0), values(1, 1)])
    rig.stop()
    for way in ("refuse", "retract"):
        with pytest.raises(DefinitionError, match="sink 'out' has 40 records in topic") as caught:
            checked(rig, savepoint, newer=way)
        assert "--on-newer-output=keep" in caught.value.next
        assert "cannot be retracted" in caught.value.next
    assert checked(rig, savepoint, newer="keep").unseen == []
    assert not (rig.root / "second").exists()
    # What is edited says the same, unless the sink is left out.
    again, _ = edit(savepoint, str(rig.root), drop=["in"], now_ms=2)
    assert read_metadata(LocalStorage(again)).noted == read_metadata(savepoint).noted
    _, metadata = edit(savepoint, str(rig.root), drop=["out"], now_ms=3)
    assert metadata.noted == {}


def test_what_cannot_be_looked_at_is_said(rig: Rig) -> None:
    class Own(TwoPhaseCommitSink):
        def begin_transaction(self, id: str) -> str:
            return id

        def invoke(self, transaction: Any, record: Any) -> None: ...

        def pre_commit(self, transaction: Any) -> None: ...

        def commit(self, transaction: Any) -> None: ...

        def abort(self, transaction: Any) -> None: ...

    driver = rig.driver()
    rig.checkpoint(driver, 0, [values(0, 0)])
    by_row = KafkaSink(rig.sink.bootstrap_servers, TopicExpression("value"), **rig.settings)
    old, chosen, own = (save(rig, driver, sink) for sink in (rig.sink, by_row, Own().as_participant()))
    for savepoint, sink, said in (
        (chosen, by_row, "Kafka topic by expression value: only a topic of a fixed name"),
        (old, by_row, "only a topic of a fixed name"),
        (chosen, rig.sink, "the savepoint does not say where its topic ended"),
        (own, Own().as_participant(), "Own"),
    ):
        (line,) = checked(rig, savepoint, sink).unseen
        assert line.startswith("sink 'out': whether it has output newer than the savepoint is not known (")
        assert said in line
    rig.stop()


def test_what_a_killed_job_left_open_is_aborted_when_its_checkpoint_is_restored(rig: Rig) -> None:
    job = Job("rig", on_error="fail")
    job.from_source(DatagenSource(), name="in").sink_to(rig.sink, name="out")
    plan, said = make_plan(job), list[str]()

    def restoring(how: Callable[[], None]) -> None:
        beginning = Beginning(rig.storage.root)
        target = LocalStorage(str(rig.root / "second"))
        with savepoint_of(beginning, target, plan, clock=SystemClock(), say=said.append) as (given, _):
            assert read_metadata(LocalStorage(given.path)).noted == {}, "where the topic ended then nobody knows"
            how()

    def refusing() -> None:
        raise DefinitionError("it does not fit")

    driver = rig.driver()
    rig.checkpoint(driver, 0, [values(0, 0)])
    rig.write(1, [values(1, 0), values(1, 1)])
    with pytest.raises(DefinitionError, match="is still running"):
        restoring(lambda: None)
    rig.stop()
    prefix = rig.settings["transactional_id_prefix"]

    def left() -> list[str]:
        return [tid for tid in rig.sink._asked().ongoing() if tid.startswith(prefix)]

    with pytest.raises(DefinitionError, match="it does not fit"):
        restoring(refusing)
    assert len(left()) == 2, "nothing is touched before all fits"
    restoring(lambda: None)
    assert left() == []
    assert said == [f"Sink out: aborted 2 transactions that job {rig.identity.job_id} had left open"]
    assert len(rig.broker.read(rig.sink.topic)) == 20


def test_a_broker_that_is_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "NOTE_S", 0.2)
    note = rig.sink.note()
    away = KafkaSink("127.0.0.1:9", rig.sink.topic, **rig.settings)
    assert "127.0.0.1:9" in away.note()["unknown"], "a savepoint is taken all the same"
    with pytest.raises(TransientError, match=r"no Kafka server answers at 127\.0\.0\.1:9") as caught:
        looking.newer(away._topics(0.2), str(rig.sink.topic), note)
    assert str(caught.value.next).startswith("check bootstrap_servers, and that the brokers run")
