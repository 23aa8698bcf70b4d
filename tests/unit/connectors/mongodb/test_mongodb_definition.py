"""What a MongoSink may say, which columns it takes, and what is asked of a collection; no server is asked."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, MongoSink
from poundlock.checkpoint.participant import Kind
from poundlock.connectors.mongodb import checks

GIVEN: dict[str, Any] = {"uri": "mongodb://localhost", "database": "shop", "collection": "orders", "key": "id"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"uri": "http://localhost"}, "is no address of MongoDB"),
        ({"uri": "mongodb://u:secret-1@localhost"}, "has a user in it"),
        ({"uri": "localhost:secret-1@x"}, "is no address of MongoDB"),
        ({"uri": "mongodb://localhost/shop"}, "names a database 'shop'"),
        ({"uri": "mongodb://localhost/?w=1"}, "says w, which has no effect"),
        ({"database": "a.b"}, "is no name of a database"),
        ({"collection": "system.users"}, "is no name of a collection"),
        ({"key": None}, "without key= adds every row"),
        ({"guarantee": "at-least-once"}, "guarantee='at-least-once' with key="),
        ({"key": []}, "guarantee='effectively-once' with key="),
        ({"key": ["id", "id"]}, "names a column twice"),
        ({"delete_when": "id"}, "delete_when='id' needs a key"),
        ({"deletes": "mark"}, "without delete_when= has no effect"),
        ({"deletes": "soft"}, "is not known"),
        ({"key": None, "guarantee": "at-least-once", "update": "set"}, "without key= has no effect"),
        ({"version_field": "_id"}, "cannot be the name of that field"),
        ({"version_field": "a.b"}, "cannot be the name of that field"),
        ({"password": "secret-1"}, "without user= has no effect"),
        ({"requests": 0}, "is not from 1 to 64"),
        ({"bulk_size": "41 MB"}, "is not from 1 byte to 40 MB"),
        ({"bulk_actions": 0}, "is not from 1 to 100,000"),
        ({"retry_for": "0 s"}, "must be longer than 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as caught:
        MongoSink(**{**GIVEN, **given})
    assert "secret-1" not in str(caught.value)


def test_what_it_promises() -> None:
    sink = MongoSink(**GIVEN, user="u", password="pw-1")
    assert sink.kind is Kind.IDEMPOTENT
    assert sink.describe() == "MongoDB collection shop.orders (by _id of id; effectively-once)"
    assert sink.login.name == "localhost"
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "pw-1" not in repr(sink) + repr(sink.login)
    added = MongoSink(**{**GIVEN, "key": None}, guarantee="at-least-once")
    assert added.kind is Kind.APPEND
    assert added.describe() == "MongoDB collection shop.orders (added; at-least-once)"


def test_which_columns_it_takes() -> None:
    sink = MongoSink(**GIVEN, delete_when="gone")
    sink.check_columns("out", ["id", "gone", "word"])
    assert sink.written(["id", "gone", "word"]) == ["id", "word"]
    assert MongoSink(**{**GIVEN, "key": "_id"}).written(["_id", "word"]) == ["word"]
    for columns, words in (
        (["id", "gone", "_id"], "have a column '_id', which the sink itself writes"),
        (["id", "gone", "_deleted"], "have a column '_deleted', which the sink itself writes"),
        (["id", "gone", "a.b"], "which cannot be the name of a field"),
        (["id"], "needs a column 'gone'"),
    ):
        with pytest.raises(DefinitionError, match=words):
            sink.check_columns("out", columns)
    for schema, words in (
        ({"id": pa.float64(), "gone": pa.bool_()}, "is double, which makes no _id"),
        ({"id": pa.list_(pa.int64()), "gone": pa.bool_()}, "which makes no _id"),
        ({"id": pa.int64(), "gone": pa.int64()}, "delete_when='gone' is int64"),
        ({"id": pa.int64(), "gone": pa.bool_(), "t": pa.time64("us")}, "BSON has no type for it"),
    ):
        with pytest.raises(DefinitionError, match=words):
            sink.check_schema("out", pa.schema(schema))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"type": "view"}, "is a view"),
        ({"type": "timeseries"}, "is a timeseries"),
        ({"options": {"capped": True}}, "is capped"),
        ({"options": {"collation": {"locale": "de"}}}, "has a collation of its own"),
    ],
)
def test_collections_that_cannot_be_written_to_are_refused(found: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        checks._check_collection(MongoSink(**GIVEN), found, "shop.orders at localhost")


def test_a_validator_that_takes_no_other_fields_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_known", {})
    sink = MongoSink(**GIVEN)
    schema = {"additionalProperties": False, "properties": {"_id": {}, "id": {}, "_version": {}}}
    checks._check_collection(sink, {"options": {"validator": {"$jsonSchema": schema}}}, "shop.orders at localhost")
    sink.check_columns("out", ["id"])
    with pytest.raises(DefinitionError, match=r"the validator of shop\.orders has no field 'word'"):
        sink.check_columns("out", ["id", "word"])
