"""Decoders: every row goes out or is rejected with its bytes and place; the short way gives what the long one does."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, FileOrigin
from poundlock.formats.convert import to_batch, to_records
from poundlock.formats.decode import Decoder, RowDecoder, decoder
from poundlock.formats.reject import Reject

EVENT = "timestamp double, event string, uuid string"
Make = Callable[..., Any]
WANTS = ("records", "batch")


def run(made: Decoder, chunk: Any, want: Any) -> tuple[list[dict[str, Any]], list[int], list[Reject]]:
    """Return the rows in one form, their places, and what was rejected."""
    rejected: list[Reject] = []
    out = made.decode(chunk, rejected.append, want)
    where = getattr(out, "where", None) or out.origin.at
    places = [where(i)["offset"] for i in range(len(out))]
    rows = list(to_records(out if want == "batch" else to_batch(out, made.schema())).rows)
    assert sorted(places + [r.where["offset"] for r in rejected]) == [10 * i for i in range(len(chunk))]
    return rows, places, rejected


JSON_LINES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"timestamp": st.floats(allow_nan=False, allow_infinity=False)},
            optional={"event": st.one_of(st.none(), st.text(max_size=5)), "more": st.lists(st.integers(), max_size=2)},
        ).map(lambda v: json.dumps(v).encode()),
        st.sampled_from(
            [
                *(
                    b"",
                    b" ",
                    b"{}",
                    b"{}{}",
                    b"[1]",
                    b"{",
                    b'{"timestamp":"1"}',
                    b'{"event":1}',
                    b'{"x":"\xff"}',
                    b"nul",
                ),
                *(b'{"timestamp":true}', b'{"timestamp":1e400}', b' {"event":"a"} ', b'{"a":1}\r', b"{" * 5000 + b"}"),
                *(b'{"a":{}}', b'}{"a":1', b'{"timestamp":1,"timestamp":2}', b'{"a":"\\ud800"}', b"\xef\xbb\xbf{}"),
            ]
        ),
    ),
    max_size=12,
)


@given(rows=JSON_LINES)
def test_json_short_way_and_long_way_agree(rows: list[bytes], lines: Make, values: Make) -> None:
    made = decoder("json", EVENT)
    assert isinstance(made, RowDecoder)
    seen = []
    for want in WANTS:
        seen.append(run(made, lines(*rows), want))
        seen.append(run(made, values(*rows), want))
        with patch.object(type(made.codec), "parse_lines", return_value=None):
            seen.append(run(made, lines(*rows), want))
    assert all(s == seen[0] for s in seen)


def test_json_lines_take_the_short_way_and_never_shift(lines: Make) -> None:
    made = decoder("json", EVENT)
    assert isinstance(made, RowDecoder)
    good = b'{"timestamp":1.5,"event":"a"}'
    assert made.codec.parse_lines(lines(good, good), "records") is not None
    assert made.codec.parse_lines(lines(good, b"", good + good), "records") is None
    rows, places, rejected = run(made, lines(good, b"", good + good, good), "records")
    assert (len(rows), places) == (2, [0, 30])
    assert [(r.where["offset"], r.value) for r in rejected] == [(10, b""), (20, good + good)]


TYPED = (
    "`a b` int NOT NULL, t timestamp, n timestamp_ntz, d decimal(4,2), s struct<x:int,y:timestamp>, "
    "l array<struct<z:date>>, m map<int,double>, b binary, f float"
)


@pytest.mark.parametrize("want", WANTS)
def test_json_types(want: str, lines: Make) -> None:
    moment = datetime(2018, 12, 19, 1, 50, 26, 432000, tzinfo=UTC)
    cases: list[tuple[bytes, dict[str, Any]]] = [
        (b'{"a b":1}', {}),
        (b'{"a b":1,"other":[1,{"x":2}]}', {}),
        (b'{"a b":1,"t":1545184226.432}', {"t": moment}),
        (b'{"a b":1,"t":"2018-12-19T09:50:26.432+08:00"}', {"t": moment}),
        (b'{"a b":1,"t":"2018-12-19 01:50:26.432"}', {"t": moment}),
        (b'{"a b":1,"t":"1545184226.432"}', {"t": moment}),
        (b'{"a b":1,"t":"2018-12-19"}', {"t": datetime(2018, 12, 19, tzinfo=UTC)}),
        (b'{"a b":1,"n":"2018-12-19T01:50:26.432"}', {"n": moment.replace(tzinfo=None)}),
        (b'{"a b":1,"d":1.235,"f":1}', {"d": Decimal("1.24"), "f": 1.0}),
        (b'{"a b":1,"d":"-99.99"}', {"d": Decimal("-99.99")}),
        (b'{"a b":1,"s":{"y":0}}', {"s": {"x": None, "y": datetime(1970, 1, 1, tzinfo=UTC)}}),
        (b'{"a b":1,"l":[{},null,{"z":"2020-01-02"}]}', {"l": [{"z": None}, None, {"z": date(2020, 1, 2)}]}),
        (b'{"a b":1,"m":{"1":2,"3":null},"b":"aGk="}', {"m": {1: 2.0, 3: None}, "b": b"hi"}),
    ]
    made = decoder("json", TYPED)
    rows, _, rejected = run(made, lines(*(text for text, _ in cases)), want)
    assert not rejected
    empty = dict.fromkeys(made.schema().names)
    assert rows == [empty | {"a b": 1} | expected for _, expected in cases]


@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{}", "field a b: missing"),
        (b'{"a b":null}', "field a b"),
        (b'{"a b":"1"}', "field a b"),
        (b'{"a b":3000000000}', "field a b"),
        (b'{"a b":1,"t":"yesterday"}', "field t: 'yesterday' is not a time"),
        (b'{"a b":1,"t":1545184226432}', "field t: 1545184226432 is out of range"),
        (b'{"a b":1,"t":true}', "field t"),
        (b'{"a b":1,"n":"2018-12-19T01:50:26Z"}', "field n"),
        (b'{"a b":1,"d":99.995}', "field d"),
        (b'{"a b":1,"d":"NaN"}', "field d"),
        (b'{"a b":1,"s":{"x":"y"}}', "field s.x"),
        (b'{"a b":1,"s":{"y":"y"}}', "field s: field y"),
        (b'{"a b":1,"f":1e39}', "field f"),
        (b'{"a b":1,"b":"%"}', "field b"),
        (b'{"a b":1} x', "not JSON"),
        (b"[]", "not a JSON object"),
        (b"", "empty"),
        (b'{"a b":1,"c":"\xff"}', "not UTF-8 at byte 14"),
    ],
)
def test_json_rejects_name_the_field(want: str, text: bytes, reason: str, lines: Make) -> None:
    rows, places, rejected = run(decoder("json", TYPED), lines(b'{"a b":1}', text, b'{"a b":2}'), want)
    assert ([r["a b"] for r in rows], places) == ([1, 2], [0, 20])
    assert rejected[0].reason.startswith(reason)
    assert rejected[0].value == text


@pytest.mark.parametrize(("unit", "number"), [("s", "1545184226"), ("ms", "1545184226000"), ("us", "1545184226000000")])
def test_times_as_numbers_have_a_unit(unit: str, number: str, lines: Make) -> None:
    rows, _, _ = run(decoder("json", "t timestamp", timestamp_unit=unit), lines(f'{{"t":{number}}}'.encode()), "batch")
    assert rows == [{"t": datetime(2018, 12, 19, 1, 50, 26, tzinfo=UTC)}]


@pytest.mark.parametrize("want", WANTS)
def test_records_without_a_value(want: Any, values: Make, offsets: Make) -> None:
    chunk = values(b'{"a":1}', None, b"x", b'{"a":2}', key=["k0", "k1", "k2", "k3"], a=[9, 9, 9, 9])
    for nulls, expected in (
        ("reject", [{"a": 1, "key": "k0"}, {"a": 2, "key": "k3"}]),
        ("keep", [{"a": 1, "key": "k0"}, {"a": None, "key": "k1"}, {"a": 2, "key": "k3"}]),
    ):
        rejected: list[Reject] = []
        out = decoder("json", "a bigint", nulls=nulls).decode(chunk, rejected.append, want)
        assert to_records(out).rows == expected
        assert [r.where["offset"] for r in rejected] == ([10, 20] if nulls == "reject" else [20])
    assert decoder("raw", nulls="keep").decode(chunk, rejected.append) is chunk
    out = decoder("raw").decode(chunk, rejected.append)
    assert offsets(out) == [0, 20, 30]
    assert (rejected[-1].reason, rejected[-1].where["offset"]) == ("no value", 10)


FIELD = st.one_of(
    st.text(alphabet="ab1.-,\";'\r\t é", max_size=5),
    st.sampled_from(["", "1", "-7", "1.5", "NULL", "2020-01-01", "true"]),
)


@given(table=st.lists(st.lists(FIELD, min_size=1, max_size=4), max_size=10), quoted=st.booleans())
def test_csv_short_way_and_long_way_agree(table: list[list[str]], quoted: bool, lines: Make) -> None:
    def write(field: str) -> str:
        return '"' + field.replace('"', '""') + '"' if quoted else field

    rows = [",".join(map(write, row)).encode() for row in table]
    for schema in (
        "a string, b int, c double",
        "a string",
        "a boolean, b timestamp",
        "a decimal(5,2) NOT NULL, b date",
    ):
        made = decoder("csv", schema, null="NULL")
        assert isinstance(made, RowDecoder)
        seen = []
        for want in WANTS:
            seen.append(run(made, lines(*rows), want))
            with patch.object(type(made.codec), "parse_lines", return_value=None):
                seen.append(run(made, lines(*rows), want))
        assert repr(seen[1:]) == repr([seen[0]] * 3)
        width = len(made.schema())
        if quoted:  # what was written in quotes comes back as it was
            wrong = [10 * i for i, row in enumerate(table) if len(row) != width]
            assert set(wrong) <= {r.where["offset"] for r in seen[0][2]}
        if quoted and schema == "a string":
            assert [row["a"] for row in seen[0][0]] == [row[0] for row in table if len(row) == 1]


def test_csv_values_and_rejects(lines: Make, values: Make) -> None:
    made = decoder("csv", "a int, b string, t timestamp", delimiter=";", null="-")
    assert isinstance(made, RowDecoder)
    rows = [
        b"1;x;2018-12-19T00:00:00Z",
        b"-;;0",
        b'2;"a;""b""";-',
        b'3;"-";-',
        b"x;y;-",
        b"1;2",
        b'1;"x;-',
        b'1;"x"y;-',
    ]
    assert made.codec.parse_lines(lines(*rows[:2]), "batch") is not None
    out, _, rejected = run(made, lines(*rows), "batch")
    assert [tuple(r.values())[:2] for r in out] == [(1, "x"), (None, ""), (2, 'a;"b"'), (3, "-")]
    assert [r["t"] for r in out[:2]] == [datetime(2018, 12, 19, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
    assert [r.value for r in rejected] == rows[4:]
    assert [r.reason.split(":")[0] for r in rejected] == [
        "field a",
        "2 fields, the schema has 3",
        "the quote at character 2 is not closed",
        "text after the closing quote at character 5",
    ]


AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "n", "type": ["null", "int"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sub", "type": {"type": "record", "name": "Sub", "fields": [{"name": "k", "type": "Kind"}]}},
        {"name": "by", "type": {"type": "map", "values": "double"}},
    ],
}
AVRO_ROW = {
    "at": datetime(2018, 12, 19, 1, 50, 26, 432000, tzinfo=UTC),
    "id": "ac0e50bf-944c-4e2f-bbf5-a34b22718e0c",
    "kind": "A",
    "n": None,
    "price": Decimal("12.50"),
    "tags": ["x"],
    "sub": {"k": "B"},
    "by": {"u": 1.5},
}


def avro_bytes(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("confluent", [False, True])
def test_avro(want: str, confluent: bool, values: Make) -> None:
    head = b"\0\0\0\0\7" if confluent else b""
    body = avro_bytes(AVRO_ROW)
    framed = {"confluent": True, "schema_id": 7} if confluent else {}
    made = pickle.loads(pickle.dumps(decoder("avro", avro_schema=json.dumps(AVRO), **framed)))
    wrong = [head + body[:-3], head + body + b"x", head + body.replace(b"\x00\x00", b"\x05", 1), b""]
    wrong += [b"\1" + head[1:] + body] if confluent else []
    rows, places, rejected = run(made, values(head + body, *wrong, head + body), want)
    assert rows == [AVRO_ROW, AVRO_ROW]
    assert places == [0, 10 * (len(wrong) + 1)]
    assert [r.value for r in rejected] == wrong
    assert ddl.render(made.schema()).startswith(
        "at timestamp NOT NULL, id string NOT NULL, kind string NOT NULL, n int, "
    )


def test_avro_of_another_schema_is_rejected_and_not_read_into_other_columns(values: Make) -> None:
    schema, swapped = (
        {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"} for name in names]}
        for names in (("first", "second"), ("second", "first"))
    )

    def framed(number: int, of: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(of), {"first": "1st", "second": "2nd"})
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()

    made = decoder("avro", avro_schema=schema, confluent=True, schema_id=7)
    for want in WANTS:
        rows, _, rejected = run(made, values(framed(7, schema), framed(300, swapped)), want)
        assert rows == [{"first": "1st", "second": "2nd"}]
        assert [r.value for r in rejected] == [framed(300, swapped)]
        assert "schema 300 wrote it, and schema_id=7 is expected" in rejected[0].reason


def test_avro_without_fastavro_says_what_to_install() -> None:
    with patch.dict("sys.modules", {"fastavro": None}), pytest.raises(DefinitionError) as caught:
        decoder("avro", avro_schema=AVRO)
    assert caught.value.next.endswith("-m pip install 'poundlock[avro]'")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("xml",), {}, "xml"),
        (("json",), {}, "schema"),
        (("json", "a int"), {"nulls": "x"}, "nulls"),
        (("json", "a int"), {"delimiter": "x"}, "delimiter"),
        (("json", "a map<timestamp,int>"), {}, "map"),
        (("json", "a int"), {"timestamp_unit": "h"}, "timestamp_unit"),
        (("csv", "a array<int>"), {}, "'a'"),
        (("csv", "a int"), {"delimiter": "ab"}, "delimiter"),
        (("csv", "a int"), {"quote": ","}, "the same"),
        (("avro",), {}, "schema"),
        (("avro",), {"avro_schema": AVRO, "confluent": True}, "which schema is expected"),
        (("avro",), {"avro_schema": AVRO, "schema_id": 7}, "five bytes"),
        (("avro",), {"avro_schema": AVRO, "confluent": True, "schema_id": -1}, "no number of a schema"),
        (("avro",), {"avro_schema": "{"}, "Avro schema"),
        (("avro",), {"avro_schema": '{"type":"array","items":"int"}'}, "array"),
    ],
)
def test_what_cannot_work_is_refused(arguments: tuple[str, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        decoder(*arguments, **options)


def test_a_decoder_survives_pickling() -> None:
    for made in (decoder("json", EVENT), decoder("csv", EVENT), decoder("raw")):
        assert pickle.loads(pickle.dumps(made)).schema() == made.schema()


@pytest.mark.parametrize("want", WANTS)
def test_a_carried_time_that_python_has_not_is_a_bad_record_where_records_are_wanted(want: Any) -> None:
    """It ended the job: such is the timestamp of a Kafka record, which anybody may set."""
    times = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    chunk = Batch(pa.record_batch({"value": [b'{"a":1}', b'{"a":2}'], "at": times}), FileOrigin("f", range(2)))
    rejected: list[Reject] = []
    rows = decoder("json", "a int").decode(chunk, rejected.append, want)
    assert len(rows) == (1 if want == "records" else 2)
    assert [(record.where["offset"], record.reason[:12]) for record in rejected] == [(1, "column 'at':")][
        : 2 - len(rows)
    ]
