"""KafkaSink: what may be said, what becomes of rows, and what is the same again; no broker."""

from __future__ import annotations

import importlib.metadata
import pickle
import random
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import DefinitionError, FileSink, Job, KafkaSecurity, KafkaSink, TerminalError, TopicExpression
from poundlock.checkpoint.participant import Kind, Occasion, Prepared, WriterContext
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.sink.digest import NO_TIME, Digest
from poundlock.connectors.kafka.sink.dry_run import MeasuringKafkaSink, MeasuringSender
from poundlock.connectors.kafka.sink.message_encoder import MessageMaker, Messages
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC, TransactionNames, slots, tags
from poundlock.connectors.kafka.source.reader import _headers_of
from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, of_list
from poundlock.connectors.kafka.wire.record_encoder import encode_headers
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.formats.chunk import Batch, Chunk, Lines
from poundlock.formats.reject import Reject

SERVERS = "localhost:9092"
JOB_ID = "0123456789abcdef" * 2


def sink(topic: Any = "out", **settings: Any) -> KafkaSink:
    return KafkaSink(SERVERS, topic, **settings)


def made(chunk: Chunk, topic: Any = "out", **settings: Any) -> tuple[Messages, list[Reject]]:
    rejects: list[Reject] = []
    return MessageMaker(sink(topic, **settings), rejects.append).messages(chunk), rejects


def listed(strings: ByteStrings | None) -> list[bytes | None]:
    assert strings is not None
    return [strings.at(row) for row in range(len(strings))]


def headers(messages: Messages) -> list[list[tuple[bytes, bytes | None]]]:
    return [_headers_of(row or b"") for row in listed(messages.headers)]


def table(**columns: Any) -> Batch:
    return Batch(pa.record_batch(columns))


# --- what may be said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what", "following"),
    [
        ({"bootstrap_servers": "nowhere"}, "bootstrap_servers='nowhere'", 'bootstrap_servers="localhost:9092"'),
        ({"topic": "no spaces"}, "'no spaces' is not a topic name", "letters"),
        ({"topic": 5}, "topic=5 is no topic", "TopicExpression"),
        ({"guarantee": "twice"}, "guarantee='twice'", "exactly-once, at-least-once, none"),
        ({"acks": "1"}, 'acks="1" may lose', 'guarantee="none"'),
        ({"value": ["a", "b"]}, "is not one column", 'format="json"'),
        ({"transactional_id_prefix": "a b"}, "transactional_id_prefix='a b'", "letters"),
        ({"transaction_timeout": "10 ms"}, "transaction_timeout=", 'transaction_timeout="15 min"'),
        ({"client_options": {"transactional.id": "x"}}, "'transactional.id' is set by KafkaSink", "field of KafkaSink"),
        ({"marker_topic": "out"}, "marker_topic='out' cannot hold", "poundlock-markers"),
        ({"create_topic": 0}, "create_topic=0", "create_topic=3"),
        ({"format": "json", "format_options": {"x": 1}}, "no option 'x'", "leave format_options out"),
    ],
)
def test_contradictions_are_refused_with_the_value_to_give(settings: dict[str, Any], what: str, following: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        KafkaSink(**{"bootstrap_servers": SERVERS, "topic": "out", **settings})
    assert what in refused.value.what
    assert following in refused.value.next


def test_kinds_follow_the_guarantee() -> None:
    assert sink().kind is Kind.TRANSACTIONAL
    assert sink(guarantee="at-least-once").kind is Kind.APPEND
    assert sink(guarantee="none").kind is Kind.FORGETFUL


def test_it_travels_and_says_what_it_is() -> None:
    said = sink(key="k", format="json")
    assert pickle.loads(pickle.dumps(said)) == said
    assert said.describe() == "Kafka topic out (json; key k; transactions up to 15 min; exactly-once)"
    assert "by expression kind" in sink(TopicExpression("kind")).describe()


def test_a_missing_column_is_told_before_anything_runs() -> None:
    with pytest.raises(DefinitionError, match="needs a column 'user'") as refused:
        sink(key="user").check_columns("s", ["value", "users"])
    assert refused.value.next == "did you mean 'users'?"


def test_a_sink_is_made_again_from_its_description_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    security = KafkaSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="u", password="hunter2")
    said = sink(security=security, transactional_id_prefix="p").describe_json()
    assert "hunter2" not in str(said)
    monkeypatch.setenv("POUNDLOCK_KAFKA_PASSWORD", "hunter2")
    again = rebuild_sink(said)
    assert isinstance(again, KafkaSink)
    assert again.security.confluent()["sasl.password"] == "hunter2"
    assert (again.transactional_id_prefix, again.timeout_ms) == ("p", 900_000)


def test_the_pinned_client_is_the_one_that_is_installed_and_used_in_private_in_one_module_only() -> None:
    installed = importlib.metadata.version("kafka-python")
    root = Path(__file__).parents[5]
    assert f'"kafka-python=={installed}"' in (root / "pyproject.toml").read_text()
    assert f"kafka-python=={installed}\n" in (root / "requirements.lock").read_text()
    users = {
        p.name for p in (root / "src").rglob("*.py") if re.search(r"_find_coordinator_ids|_manager\b", p.read_text())
    }
    assert users == {"transactions.py"}


def test_the_parts_of_the_client_that_are_private_are_there() -> None:
    from kafka import KafkaAdminClient
    from kafka.protocol.consumer import OffsetFetchRequest
    from kafka.protocol.producer.transaction import EndTxnRequest

    assert callable(KafkaAdminClient._find_coordinator_ids)
    request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True, max_version=4)
    assert request._max_version == 4
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    assert group.OffsetFetchRequestTopics(name="m", partition_indexes=[0]).name == "m"


# --- transactional ids ------------------------------------------------------------------------------------------------


def test_names_are_told_apart_whatever_the_prefixes() -> None:
    job, one = tags(JOB_ID, "one")
    names = TransactionNames("a", job, one)
    assert names.ours(names.at("host", 3))
    for other in (
        TransactionNames("a", job, tags(JOB_ID, "two")[1]),
        TransactionNames("a.b", job, one),
        TransactionNames("a", "ffffffff", one),
    ):
        assert not names.ours(other.at("host", 3))
    assert names.foreign(TransactionNames("a", "ffffffff", one).at("h", 0))
    assert not names.foreign(TransactionNames("a", job, "00000000").at("h", 0))
    assert not names.foreign("a.preflight")


def test_a_slot_belongs_to_one_holder_at_a_time() -> None:
    names = TransactionNames(f"test-{random.randrange(1 << 40):x}", "00000000", "00000000")
    first = next(slots(names, 4))
    second = next(slots(names, 4))
    assert (first.tid[-3:], second.tid[-3:]) == ("0-0", "1-0")
    first.release()
    first.release()
    assert next(slots(names, 4)).tid == first.tid


# --- rows -------------------------------------------------------------------------------------------------------------


def test_lines_become_values_as_they_are() -> None:
    chunk = Lines(memoryview(b"ab\n\ncd\n"), np.array([2, 3, 6], np.int64))
    messages, rejects = made(chunk)
    assert (listed(messages.values), messages.topics, rejects) == ([b"ab", b"", b"cd"], "out", [])


def test_every_part_of_a_message_comes_from_its_column() -> None:
    when = datetime(2024, 5, 1, tzinfo=UTC)
    chunk = table(
        value=pa.array([b"x", None]),
        user=pa.array(["ü", None]),
        p=pa.array([1, None], pa.int32()),
        at=pa.array([when, None], pa.timestamp("us", "UTC")),
        trace=pa.array(["t", None]),
    )
    messages, _ = made(chunk, key="user", partition="p", timestamp="at", headers={"trace": "trace"})
    assert listed(messages.values) == [b"x", None]
    assert listed(messages.keys) == ["ü".encode(), None]
    assert messages.partitions is not None
    assert messages.partitions.tolist() == [1, -1]
    assert messages.times_ms is not None
    assert messages.times_ms.tolist() == [int(when.timestamp() * 1000), NO_TIME]
    assert headers(messages) == [[(b"trace", b"t")], [(b"trace", None)]]


def test_headers_may_be_arrays_or_maps() -> None:
    pairs = pa.array(
        [[{"key": "a", "value": b"1"}], None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    mapped = pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string()))
    for column in (pairs, mapped):
        messages, _ = made(table(value=pa.array([b"x", b"y"]), h=column), headers="h")
        assert headers(messages) == [[(b"a", b"1")], []]
    with pytest.raises(DefinitionError, match="a headers column of type"):
        made(table(value=pa.array([b"x"]), h=pa.array([1])), headers="h")


def test_a_header_without_a_name_is_a_bad_record() -> None:
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    column = pa.array([[{"key": "a", "value": b"1"}], [{"key": None, "value": b"2"}], [None]], pairs)
    messages, rejects = made(table(value=pa.array([b"x", b"y", b"z"]), h=column), headers="h")
    assert headers(messages) == [[(b"a", b"1")], []]
    assert [(r.reason, r.value) for r in rejects] == [("a header has no name", b"y")]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), [b"1", None]),
        (pa.array([True, False]), [b"true", b"false"]),
        (pa.array(["é"]), ["é".encode()]),
    ],
)
def test_keys_of_plain_types_are_their_text(column: pa.Array, expected: list[bytes | None]) -> None:
    messages, _ = made(table(value=pa.array([b"x"] * len(column)), k=column), key="k")
    assert listed(messages.keys) == expected


def test_keys_without_a_plain_text_are_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be a Kafka key or raw value"):
        made(table(value=pa.array([b"x"]), k=pa.array([[1]])), key="k")


def test_json_csv_and_avro_values() -> None:
    chunk = table(a=pa.array([1, 2]), b=pa.array(["x", "with\nbreak"]))
    assert listed(made(chunk, format="json")[0].values) == [b'{"a":1,"b":"x"}', b'{"a":2,"b":"with\\nbreak"}']
    assert listed(made(chunk, format="json", value="a")[0].values) == [b'{"a":1}', b'{"a":2}']
    assert listed(made(chunk, format="csv")[0].values) == [b'1,"x"', b'2,"with\nbreak"']
    import io

    import fastavro

    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    values = listed(made(chunk, format="avro", format_options={"avro_schema": schema, "schema_id": 7})[0].values)
    assert [v[:5] for v in values if v is not None] == [b"\0\0\0\0\x07"] * 2
    read = [fastavro.schemaless_reader(io.BytesIO((v or b"")[5:]), fastavro.parse_schema(schema)) for v in values]
    assert read == [{"a": 1, "b": "x"}, {"a": 2, "b": "with\nbreak"}]


def test_what_cannot_be_a_message_is_rejected_with_a_reason_and_the_rest_goes_on() -> None:
    chunk = table(value=pa.array([b"1", b"2", b"3"]), **{TO_TOPIC: pa.array(["ok", "not a topic", None])})
    messages, rejects = made(chunk, TopicExpression("x"))
    assert (listed(messages.values), messages.topics, list(messages.rows)) == ([b"1"], ["ok"], [0])
    assert [(r.reason, r.value) for r in rejects] == [
        ("'not a topic' is not a topic name", b"2"),
        ("None is not a topic name", b"3"),
    ]

    def by_kind(record: dict[str, Any]) -> str:
        return {"1": "ones"}[record["value"].decode()]

    messages, rejects = made(table(value=pa.array([b"1", b"2"])), by_kind)
    assert messages.topics == ["ones"]
    assert "the topic function raised KeyError" in rejects[0].reason
    messages, rejects = made(table(value=pa.array([b"1"]), p=pa.array([-1])), partition="p")
    assert (len(messages), rejects[0].reason) == (0, "partition -1 is negative")


def test_a_topic_expression_becomes_a_computed_column() -> None:
    from poundlock import KafkaSource
    from poundlock.plan.explain import explain

    job = Job("j", on_error="fail")
    job.from_source(KafkaSource(bootstrap_servers=SERVERS, topics="in"), name="in").sink_to(
        sink(TopicExpression("concat('t-', value)")), name="k"
    )
    assert f"with_column {TO_TOPIC}, concat('t-', value)" in explain(job)
    assert FileSink("/x").computed_columns == {}


# --- the same again ---------------------------------------------------------------------------------------------------


def digest(*values: bytes | None, **more: Any) -> str:
    made = Digest()
    made.add(of_list(values), **more)
    return made.text


def test_the_digest_knows_content_and_not_order() -> None:
    assert digest(b"a", b"b", b"c") == digest(b"c", b"a", b"b")
    assert digest(b"a", b"b") != digest(b"a", b"c")
    assert digest(b"a", b"a") != digest(b"a")
    assert len({digest(None), digest(b""), digest(b"\0"), digest(b"\0\0")}) == 4
    assert digest(b"known to every process and version") == "a194afd576006d59"
    long = b"x" * 300
    assert digest(long) != digest(long[:-1] + b"y")


def test_each_part_of_a_message_counts_and_one_that_is_missing_does_not() -> None:
    one, none = of_list([b"k"]), of_list([None])
    parts: list[dict[str, Any]] = [
        {"keys": one}, {"headers": of_list([encode_headers([("k", None)])])}, {"topics": "k"}, {"keys": of_list([b""])},
        {"partitions": np.array([3])}, {"times_ms": np.array([3])}, {"keys": one, "topics": "k"}, {},
    ]  # fmt: skip
    assert len({digest(b"v", **part) for part in parts}) == len(parts)
    missing = {"keys": none, "headers": of_list([encode_headers([])])}
    assert digest(b"v", **missing, partitions=np.array([-1]), times_ms=np.array([NO_TIME])) == digest(b"v")
    assert digest(b"v", topics=["k"]) == digest(b"v", topics="k")


def test_values_together_are_digested_as_one_by_one() -> None:
    values = [b"v%d" % i for i in range(1000)]  # more than once around 2**64
    together, one_by_one = Digest(), Digest()
    for value in values:
        one_by_one.add(of_list([value]))
    for part in (values[:400], [], values[400:]):
        together.add(of_list(part))
    assert (together.text, together.rows, together.bytes) == (one_by_one.text, one_by_one.rows, one_by_one.bytes)


def prepared(*contents: tuple[int, str]) -> list[Prepared]:
    return [Prepared("s", i, {"rows": rows, "digest": text}) for i, (rows, text) in enumerate(contents)]


def payloads(*contents: tuple[int, str]) -> list[dict[str, Any]]:
    return [item.payload for item in prepared(*contents)]


A, B, C = (3, "000000000000000a"), (3, "000000000000000b"), (5, "000000000000000c")


def test_only_what_was_lost_is_kept() -> None:
    now = prepared(C, B, A)
    keep, drop = sink().match(payloads(B), payloads(A, C), now)
    assert (keep, drop) == ([now[1]], [now[0], now[2]])


def test_equal_contents_are_counted() -> None:
    keep, drop = sink().match(payloads(A, A), payloads(A), prepared(A, A, A))
    assert (len(keep), len(drop)) == (2, 1)


def test_another_cut_is_the_same_where_nothing_is_visible() -> None:
    whole = [(8, "0000000000000016"), (3, "000000000000000b")]
    keep, drop = sink().match(payloads(A, B, C), [], prepared(*whole))
    assert (len(keep), list(drop)) == (2, [])
    with pytest.raises(TerminalError):
        sink().match(payloads(B, C), payloads(A), prepared(*whole))


@pytest.mark.parametrize("now", [[A], [A, B, C], [A, (3, "000000000000000d")], []])
def test_other_data_is_refused(now: list[tuple[int, str]]) -> None:
    with pytest.raises(TerminalError, match="did not produce the same again"):
        sink().match(payloads(A), payloads(B), prepared(*now))


def test_everything_prepared_is_decided_at_once() -> None:
    items = [Prepared("s", 0, {"v": 1, "rows": 1, "tid": "t"}), Prepared("s", 1, {"v": 1, "rows": 2})]
    staged = sink().stage({}, items, Occasion.CHECKPOINT, 0)
    assert staged.state == {"v": 1, "pending": []}
    assert staged.committables == [{"v": 1, "rows": 1, "tid": "t"}]
    assert sink().stage(staged.state, [], Occasion.END, 0).committables == []


def test_committing_by_task_is_said_and_needs_transactions() -> None:
    by_task = sink(commit_mode="per_task")
    assert by_task.kind is Kind.SKIPPING
    assert "each task commits" in by_task.describe()
    assert KafkaSink.from_json(by_task.describe_json()).commit_mode == "per_task"
    old = {name: said for name, said in by_task.describe_json().items() if name != "commit_mode"}
    assert KafkaSink.from_json(old).commit_mode == "two_phase"
    with pytest.raises(DefinitionError, match="has none"):
        sink(commit_mode="per_task", guarantee="at-least-once")
    with pytest.raises(DefinitionError, match="not known"):
        sink(commit_mode="per-task")


def test_ids_of_tasks_that_commit_are_their_sinks_own() -> None:
    names = TransactionNames("p", "12345678", "87654321")
    ids = [
        names.of_task({"topic": "a", "partition": 3, "offset": 7}, 0),
        names.of_task({"topic": "b", "partition": 3, "offset": 7}, 0),
        names.of_task({"source": "x"}, 3),
    ]
    assert len(set(ids)) == 3
    assert all(names.ours(tid) and names.commits_itself(tid) for tid in ids)
    assert not names.commits_itself(names.at("host", 3))
    assert not TransactionNames("p", "12345678", "00000000").commits_itself(ids[0])


# --- what would be sent -----------------------------------------------------------------------------------------------


def test_what_measures_a_sink_is_the_sink_but_for_its_sender() -> None:
    given = sink(format="json", key="k", client_options={"message.max.bytes": 2000}).bind(job_id=JOB_ID, sink="out")
    measuring = pickle.loads(pickle.dumps(given.measuring("/nowhere")))
    assert isinstance(measuring, MeasuringKafkaSink)
    assert {f.name: getattr(measuring, f.name) for f in fields(given)} == {
        f.name: getattr(given, f.name) for f in fields(given)
    }
    assert measuring.directive({}) == given.directive({})
    context = WriterContext(
        job_id=JOB_ID,
        sink="out",
        epoch=1,
        checkpoint=0,
        subtask=0,
        attempt="a",
        directive={},
        reject=print,
        started_ms=0,
    )
    sender = measuring._sender(TransactionNames("p", "j", "s"), context)
    assert isinstance(sender, MeasuringSender)
    assert sender.faults(keyed(b"k", b"v" * 500)) == {}
    assert sender.faults(keyed(b"k", b"v", b"v" * 2500, None)) == {1: "larger than a message may be: 2500 bytes"}


def keyed(key: bytes, *values: bytes | None, **settings: Any) -> Messages:
    chunk = table(value=pa.array(values, pa.binary()), k=pa.array([key] * len(values)))
    return made(chunk, key="k", **settings)[0]


def test_messages_that_librdkafka_would_refuse_are_refused() -> None:
    """It counts a message's own fields too; what was a dead letter stays one."""
    kafka = confluent()
    producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.max.bytes": 2000})
    sender = MeasuringSender(sink(client_options={"message.max.bytes": 2000}))
    for many in (1, 3):
        names = {f"h{n}" * 30: "h" for n in range(many)}
        refused = []
        for size in range(1400, 2020, 4):
            try:
                producer.produce("t", b"v" * size, b"key", headers=[(name, b"12345") for name in names])
            except kafka.KafkaException:
                refused.append(size)
            chunk = table(value=pa.array([b"v" * size]), k=pa.array([b"key"]), h=pa.array([b"12345"]))
            faults = sender.faults(made(chunk, key="k", headers=names)[0])
            assert bool(faults) == (size in refused), size
        assert 0 < len(refused) < 155
    producer.purge()
