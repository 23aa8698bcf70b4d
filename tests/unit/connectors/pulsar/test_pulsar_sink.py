"""PulsarSink without a broker: numbers of messages, partitions, what tasks stage, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, PulsarSink, PulsarSource
from poundlock.checkpoint.participant import Occasion, Prepared, WriterContext
from poundlock.connectors.pulsar.committer import NumberedMessages, SentSoFar
from poundlock.connectors.pulsar.routing import java_hash, partitions_for
from poundlock.errors import TransientError
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage


def test_numbers_go_on_behind_those_of_the_decisions_before() -> None:
    sink = PulsarSink("pulsar://h:6650", "t", staging="s")
    items = [Prepared("out", n, {"v": 1, "file": f"f{n}", "rows": 3, "bytes": 9}) for n in range(2)]
    first = sink.stage({}, items, Occasion.CHECKPOINT, 77)
    assert NumberedMessages.of(first.committables[0]).first == 0
    second = sink.stage(first.state, items[:1], Occasion.CHECKPOINT, 99)
    made = NumberedMessages.of(second.committables[0])
    assert (made.since, made.first, made.rows) == (77, 6, 3)
    assert sink.stage(second.state, [], Occasion.ROLL, 100).committables == []


def test_keys_go_where_clients_of_java_send_them() -> None:
    assert [java_hash(text) for text in ("", "hello", "\U0001f600")] == [0, 99_162_322, 1_772_899]
    assert java_hash("polygenelubricants") == 1 << 31  # the least number of Java's
    keys = pa.array(["hello", None, "hello", "polygenelubricants"])
    assert partitions_for(keys, 7, 3).tolist() == [99_162_322 % 3, 8 % 3, 99_162_322 % 3, 0]
    assert partitions_for(pa.nulls(4, pa.string()), 6, 4).tolist() == [2, 3, 0, 1]


def test_what_is_noted_in_the_folder(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    noted = SentSoFar(storage, "out")
    assert (noted.sent, noted.partitions, noted.refused) == (0, None, None)
    noted.write(sent=5, partitions=2)
    noted.write(refused=7)
    again = SentSoFar(storage, "out")
    assert (again.sent, again.partitions, again.refused) == (5, 2, 7)


@pytest.fixture
def rejected() -> list[Reject]:
    return []


def written(sink: PulsarSink, rejected: list[Reject], rows: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    context = WriterContext("0" * 32, "out", 1, 1, 0, "a", {}, rejected.append, 0)
    writer = sink.open_writer(context)
    count = writer.write(Batch(pa.record_batch(rows)))
    return count, list(writer.prepare())


def test_tasks_leave_messages_with_their_keys(tmp_path: Path, rejected: list[Reject]) -> None:
    sink = PulsarSink("pulsar://h:6650", "t", staging=str(tmp_path), key="k", value="n", max_message_size="12 bytes")
    count, (payload,) = written(sink, rejected, {"n": [1, 10**9, 2], "k": ["a", "b", None]})
    assert (count, payload["rows"]) == (2, 2)
    assert [each.reason for each in rejected] == ["a message is larger than 12 bytes: 16"]
    with LocalStorage(str(tmp_path)).open(payload["file"]) as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all()
    assert table.to_pylist() == [{"value": b'{"n":1}', "key": "a"}, {"value": b'{"n":2}', "key": None}]
    item = Prepared("out", 0, payload)
    sink.verify([item])
    bound = sink.bind(job_id="0" * 32, sink="out")
    (orphan,) = bound.sweep({}, remove=True)
    assert payload["file"] in orphan.path
    with pytest.raises(TransientError, match="is not as the task left it"):
        sink.verify([item])
    sink.abort(item)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(DefinitionError, match="does not begin with pulsar://"):
        PulsarSource("http://h:6650", "t", "s")
    with pytest.raises(DefinitionError, match="ca has no effect"):
        PulsarSink("pulsar://h:6650", "t", staging="s", ca="ca.pem")
    with pytest.raises(DefinitionError, match="remember=5 is less than prefetch=6"):
        PulsarSource("pulsar://h:6650", "t", "s", remember=5, prefetch=6)
    with pytest.raises(DefinitionError, match="subscription of PulsarSource is empty"):
        PulsarSource("pulsar://h:6650", "t", "")
    with pytest.raises(DefinitionError, match="topic of PulsarSink is empty"):
        PulsarSink("pulsar://h:6650", "", staging="s")
