"""Messages of a sink whose values and keys name their schema: which columns are the key, and what null is. The registry is not asked: numbers are known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from poundlock import AvroConfluent, KafkaSink, SchemaRegistry
from poundlock.connectors.kafka.schemas import encoder
from poundlock.connectors.kafka.sink.message_encoder import MessageMaker
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject

REGISTRY = SchemaRegistry("http://127.0.0.1:9")  # which nobody may ask
ROWS = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": None}])


class Registered:
    """A registry that gives each subject the next number."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    def id_of(self, subject: str, *of: Any, register: bool) -> int:
        self.subjects.append(subject)
        return len(self.subjects)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Registered:
    made = Registered()
    monkeypatch.setattr(encoder, "client_of", lambda registry: made)
    return made


def messages(sink: KafkaSink, rejected: list[Reject]) -> tuple[list[bytes | None], list[bytes | None]]:
    made = MessageMaker(sink, rejected.append).messages(Batch(ROWS))
    assert made.keys is not None
    return [made.values.at(row) for row in range(len(made))], [made.keys.at(row) for row in range(len(made))]


def test_a_column_is_the_key_and_null_no_key(registered: Registered) -> None:
    rejected: list[Reject] = []
    avro = AvroConfluent(REGISTRY)
    values, keys = messages(KafkaSink("a:1", "t", format=avro, value=["id"], key="name", key_format=avro), rejected)
    assert (rejected, registered.subjects) == ([], ["t-value", "t-key"])
    assert values == [b"\0\0\0\0\1\2\2", b"\0\0\0\0\1\2\4"]
    assert keys == [b"\0\0\0\0\2\2a", None]


def test_several_columns_are_a_record_and_null_is_within_it(registered: Registered) -> None:
    rejected: list[Reject] = []
    avro = AvroConfluent(REGISTRY)
    _, keys = messages(KafkaSink("a:1", "t", format=avro, key=["name"], key_format=avro), rejected)
    assert (rejected, keys) == ([], [b"\0\0\0\0\2\2\2a", b"\0\0\0\0\2\0"])
