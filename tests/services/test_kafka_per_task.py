"""Tasks that commit by themselves, against a real broker: a repetition writes nothing, and one that differs stops the job."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from poundlock import KafkaSink
from poundlock.checkpoint.participant import Committed, Prepared, Reject, Writer, WriterContext
from poundlock.errors import TerminalError, TransientError
from poundlock.formats.chunk import Batch
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.services

JOB_ID = "ab" * 16


class Tasks:
    """The tasks of one sink, run one by one."""

    def __init__(self, broker: EmbeddedKafka, topic: str, **settings: Any) -> None:
        broker.create_topic(topic, 1)
        self.broker, self.topic = broker, topic
        servers = broker.bootstrap_servers
        sink = KafkaSink(servers, topic, transactional_id_prefix=topic, commit_mode="per_task", **settings)
        sink.preflight()
        self.sink = sink.bind(job_id=JOB_ID, sink="out")
        self.rejected: list[Reject] = []

    def begin(self, n: int, subtask: int, values: Sequence[str]) -> Writer:
        context = WriterContext(
            job_id=JOB_ID, sink="out", epoch=1, checkpoint=n, subtask=subtask, attempt="a", directive={},
            reject=self.rejected.append, started_ms=0,
        )  # fmt: skip
        writer = self.sink.open_writer(context)
        writer.write(Batch(pa.record_batch({"value": pa.array([v.encode() for v in values], pa.binary())})))
        return writer

    def run(self, n: int, subtask: int, *values: str) -> Prepared:
        (payload,) = self.begin(n, subtask, values).prepare()
        return Prepared("out", subtask, payload)

    def seen(self) -> list[str]:
        return sorted((r.value or b"").decode() for r in self.broker.read(self.topic, timeout=30))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


def test_rows_are_visible_when_a_task_ends_and_a_repetition_writes_nothing(broker: EmbeddedKafka) -> None:
    tasks = Tasks(broker, "once")
    first = [tasks.run(0, 0, "a", "b"), tasks.run(0, 1, "c")]
    assert tasks.seen() == ["a", "b", "c"]
    again = [tasks.run(0, 0, "b", "a"), tasks.run(0, 1, "c")]
    assert [item.payload for item in again] == [item.payload for item in first]
    tasks.sink.verify(again)
    for item in tasks.sink.stage({}, again, occasion=None, now_ms=0).committables:  # type: ignore[arg-type]
        assert isinstance(tasks.sink.commit(item), Committed)
        assert tasks.sink.inspect(item) == []
    for item in again:
        tasks.sink.abort(item)  # it cannot be taken back
    tasks.run(1, 0, "d")
    assert tasks.seen() == ["a", "b", "c", "d"]


def test_a_repetition_refuses_what_was_refused(broker: EmbeddedKafka) -> None:
    tasks = Tasks(broker, "refuses", client_options={"message.max.bytes": "2000"})
    large = "x" * 3000
    tasks.run(0, 0, "a", large)
    tasks.run(0, 0, "a", large)
    assert [r.reason for r in tasks.rejected] == ["larger than a message may be: 3000 bytes"] * 2
    assert tasks.seen() == ["a"]


@pytest.mark.parametrize("other", [("a",), ("a", "c"), ("a", "b", "c")])
def test_a_repetition_with_other_rows_stops_the_job(broker: EmbeddedKafka, other: Sequence[str]) -> None:
    tasks = Tasks(broker, f"other{len(other)}{other[-1]}")
    tasks.run(0, 0, "a", "b")
    with pytest.raises(TerminalError, match="has committed 2 messages of checkpoint 0") as caught:
        tasks.run(0, 0, *other)
    assert "deterministic" in str(caught.value.next)
    assert tasks.seen() == ["a", "b"]


def test_rows_of_a_task_that_is_not_there_any_more_stop_the_job(broker: EmbeddedKafka) -> None:
    tasks = Tasks(broker, "cut")
    tasks.run(0, 0, "a")
    tasks.run(0, 1, "b")
    with pytest.raises(TerminalError, match=r"per_task\.1 has committed 1 messages of checkpoint 0"):
        tasks.sink.verify([tasks.run(0, 0, "a")])
    with pytest.raises(TerminalError, match=r"per_task\.\d has committed 1 messages of checkpoint 0"):
        tasks.sink.verify_nothing(0)  # type: ignore[attr-defined]
    tasks.sink.verify_nothing(1)  # type: ignore[attr-defined]
    tasks.sink.verify([tasks.run(1, 0, "c")])


def test_an_attempt_nobody_waits_for_writes_nothing(broker: EmbeddedKafka) -> None:
    tasks = Tasks(broker, "zombie")
    zombie = tasks.begin(0, 0, ["zombie"])
    tasks.run(0, 0, "a")
    with pytest.raises(TransientError):
        zombie.prepare()
    tasks.run(1, 0, "b")
    with pytest.raises(TransientError, match="has committed checkpoint 1 and is now to write 0"):
        tasks.begin(0, 0, ["late"])
    assert tasks.seen() == ["a", "b"]


def test_what_a_dead_attempt_left_open_is_swept(broker: EmbeddedKafka) -> None:
    tasks = Tasks(broker, "swept")
    left = tasks.begin(0, 0, ["left"])  # kept, so that the client does not end it
    end = time.monotonic() + 300
    while not tasks.sink.sweep({}, remove=False):  # the client sends when it likes
        assert time.monotonic() < end
        time.sleep(0.05)
    assert [o.path.split("/")[0] for o in tasks.sink.sweep({}, remove=True)] == ["transaction"]
    assert tasks.sink.sweep({}, remove=True) == []
    del left
    other = replace(tasks.sink, commit_mode="two_phase")
    assert other.sweep({}, remove=False) == []


@pytest.mark.parametrize("mode", ["per_task", "two_phase"])
def test_a_task_that_takes_longer_than_its_transaction_is_told_which_setting(broker: EmbeddedKafka, mode: str) -> None:
    tasks = Tasks(broker, f"slow-{mode}", transaction_timeout="1 s")
    tasks.sink = replace(tasks.sink, commit_mode=mode)
    writer = tasks.begin(0, 0, ["a"] * 10)
    asked = tasks.sink._asked()
    end = time.monotonic() + 300
    seen = False
    while not seen or any(tid.startswith(tasks.topic) for tid in asked.ongoing()):
        seen = seen or any(tid.startswith(tasks.topic) for tid in asked.ongoing())
        assert time.monotonic() < end
        time.sleep(0.05)
    late = Batch(pa.record_batch({"value": pa.array([b"late"] * 100, pa.binary())}))

    def go_on() -> None:
        for _ in range(100):
            writer.write(late)
            time.sleep(0.01)
        writer.prepare()

    with pytest.raises(TransientError) as caught:
        go_on()
    assert "transaction_timeout" in str(caught.value.next), caught.value
    assert tasks.seen() == []
