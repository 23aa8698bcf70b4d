"""What an OpenSearchSink may say, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, ElasticsearchSink, OpenSearchSink
from poundlock.checkpoint.participant import Kind
from support.scripted_http import ScriptedHttp

URL = "http://localhost:9200"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "adds every row, and adds it once more"),
        ({"key": []}, "with key=\\[\\]"),
        ({"key": "id", "guarantee": "at-least-once"}, "with key=\\['id'\\]"),
        ({"guarantee": "effectively-once"}, "with key=None"),
        ({"key": "id", "guarantee": "exactly-once"}, "is not known"),
        ({"key": "id", "hosts": "localhost:9200"}, "no URL of a node"),
        ({"key": "id", "hosts": "http://me:secret@localhost:9200"}, "no URL of a node without a user"),
        ({"key": "id", "hosts": []}, "has no hosts"),
        ({"key": "id", "password": "x"}, "without user= has no effect"),
        ({"key": "id", "ca": "x", "allow_insecure": True}, "ca= has no effect"),
        ({"key": "id", "requests": 0}, "is not from 1 to 64"),
        ({"key": "id", "bulk_size": 0}, "hold nothing"),
        ({"key": "id", "document": "d", "columns": ["id"]}, "columns= has no effect"),
        ({"key": ["a", "b"], "key_delimiter": ""}, "two keys could make one id"),
        ({"key": "id", "index": "t-{now()|yyyy}"}, "depends on when a row is written"),
        ({"guarantee": "at-least-once", "delete_when": "gone"}, "needs a key"),
        ({"key": "id", "delete_when": "id"}, "is no column that is written"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as caught:
        OpenSearchSink(**{"hosts": URL, "index": "orders", **given})
    assert "secret" not in str(caught.value)


def test_what_it_promises() -> None:
    by_id, added = OpenSearchSink(URL, "a", key="id"), ElasticsearchSink(URL, "b", guarantee="at-least-once")
    assert (by_id.kind, added.kind) == (Kind.IDEMPOTENT, Kind.APPEND)
    assert by_id.describe() == "OpenSearch index a (by id of id; effectively-once)"
    assert added.describe() == "Elasticsearch index b (added; at-least-once)"
    secret = OpenSearchSink(URL, "a", key="id", user="u", password="pw-1", headers={"Authorization": "ApiKey k-2"})
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert "pw-1" not in repr(secret)
    assert "k-2" not in repr(secret)


def test_columns_and_types_are_checked_before_anything_runs() -> None:
    sink = OpenSearchSink(URL, "t-{day|yyyy}-{who}", key="id", document="body")
    with pytest.raises(DefinitionError, match="needs a column 'body'"):
        sink.check_columns("out", ["id", "day", "who"])
    good = {"id": pa.int64(), "day": pa.date32(), "who": pa.string(), "body": pa.string()}
    sink.check_schema("out", pa.schema(good))
    for name, kind in (("id", pa.binary()), ("day", pa.string()), ("who", pa.float64()), ("body", pa.int64())):
        with pytest.raises(DefinitionError, match=f"'{name}'"):
            sink.check_schema("out", pa.schema({**good, name: kind}))


def test_what_is_no_cluster_is_refused_in_two_lines() -> None:
    page = b"<html>Welcome</html>"
    with (
        ScriptedHttp(lambda asked: (200, page)) as server,
        pytest.raises(DefinitionError, match="is no OpenSearch: <html>"),
    ):
        OpenSearchSink(server.url, "orders", key="id").preflight()
    old = b'{"version": {"number": "6.8.0"}}'
    with ScriptedHttp(lambda asked: (200, old)) as server, pytest.raises(DefinitionError, match=r"is 6\.8\.0"):
        ElasticsearchSink(server.url, "orders", key="id").preflight()
