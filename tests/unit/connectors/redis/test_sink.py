"""RedisSink without a server: what is refused, names of keys, values as bytes, what an error of the client means."""

from __future__ import annotations

import datetime
import decimal
import pickle
from typing import Any

import pyarrow as pa
import pytest
import redis

from poundlock import CommitUnknown, DefinitionError, RedisSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Kind
from poundlock.connectors.redis.login import RedisLogin
from poundlock.connectors.redis.rows import KeyTemplate, as_bytes, items_of

URL = "redis://h:6379/1"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "http://h"}, "no URL of Redis"),
        ({"url": "redis://:geheim@h"}, "password stands in the URL"),
        ({"url": "redis://h?password=geheim"}, "password stands in the URL"),
        ({"key": "a{"}, "names no key"),
        ({"key": ""}, "names no key"),
        ({"type": "list"}, "type='list' is not known"),
        ({"type": "string"}, "needs the column that is written"),
        ({"type": "set", "columns": ["a", "b"]}, "one column is needed"),
        ({"columns": []}, "a column is needed"),
        ({"max_length": 3}, "max_length=3 has no effect"),
        ({"type": "stream", "delete_when": "gone"}, "delete_when='gone' has no effect"),
        ({"delete_when": "id"}, "is a column that is written"),
        ({"batch": 0}, "batch"),
        ({"expire": "0 s"}, "expire"),
    ],
)
def test_what_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        RedisSink(**{"url": URL, "key": "k:{id}", **given})


def test_it_says_what_it_is_and_keeps_its_secret() -> None:
    sink = RedisSink(URL, key="user:{id}", password="geh31m", delete_when="gone")
    assert (sink.kind, sink.place) == (Kind.TRANSACTIONAL, "h:6379/1")
    assert sink.describe() == "Redis user:{id} at h:6379/1 (hash; exactly-once)"
    assert "geh31m" not in repr(sink) + repr(sink.login)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert sink.needed(["id", "a", "gone"]) == ("id", "id", "a", "gone")
    with pytest.raises(DefinitionError, match="needs a column 'gone'"):
        sink.check_columns("out", ["id", "a"])


def test_keys_are_made_of_columns() -> None:
    rows = pa.record_batch({"a": [1, None, 3], "b": ["x", "y", "ü"]})
    assert KeyTemplate("k:{a}:{b}:").of(rows).to_pylist() == [b"k:1:x:", None, "k:3:ü:".encode()]
    assert KeyTemplate("fixed").of(rows).to_pylist() == [b"fixed"] * 3
    assert KeyTemplate("{b}").of(rows.slice(1)).to_pylist() == [b"y", "ü".encode()]


def test_values_are_their_text_and_bytes_as_they_are() -> None:
    values = {
        "1": pa.array([1]), "1.5": pa.array([1.5]), "true": pa.array([True]), "2.50": pa.array([decimal.Decimal("2.50")]),
        "2024-02-29": pa.array([datetime.date(2024, 2, 29)]), "a": pa.array(["a"]).dictionary_encode(),
        "2024-02-29 12:00:00.5": pa.array([datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000)], pa.timestamp("us")),
    }  # fmt: skip
    for text, column in values.items():
        (made,) = as_bytes(column).to_pylist()
        assert made.decode().rstrip("0") == text.rstrip("0")
    assert as_bytes(pa.array([b"\0\xff", None])).to_pylist() == [b"\0\xff", None]


def test_rows_are_items_with_a_mark_before_each_value() -> None:
    keys, gone = pa.array([b"k", b"l"]), pa.array([None, True])
    values = pa.array([b"", None], pa.large_binary())
    assert items_of(keys, gone, [values, values]) == [b"k", b"0", b"+", b"+", b"l", b"1", b"-", b"-"]
    assert items_of(keys, None, []) == [b"k", b"0", b"l", b"0"]


@pytest.mark.parametrize(
    ("error", "prepared", "decided"),
    [
        (redis.ConnectionError("gone"), TransientError, CommitUnknown),
        (redis.TimeoutError("late"), TransientError, CommitUnknown),
        (redis.BusyLoadingError("LOADING"), TransientError, CommitUnknown),
        (redis.ResponseError("OOM command not allowed"), TransientError, CommitUnknown),
        (redis.ReadOnlyError("READONLY You can't write"), TransientError, CommitUnknown),
        (redis.exceptions.NoPermissionError("NOPERM no"), DefinitionError, CommitUnknown),
        (redis.AuthenticationError("WRONGPASS x geh31m"), DefinitionError, CommitUnknown),
        (redis.ResponseError("ERR unknown"), TerminalError, TerminalError),
    ],
)
def test_what_an_error_means(error: Exception, prepared: type[Exception], decided: type[Exception]) -> None:
    login = RedisLogin(URL, password="geh31m")
    for use, kind in (("prepare", prepared), ("commit", decided)):
        with pytest.raises(kind, match="Redis at h:6379/1, testing") as raised, login.errors("testing", use):  # type: ignore[arg-type]
            raise error
        assert "geh31m" not in str(raised.value)
