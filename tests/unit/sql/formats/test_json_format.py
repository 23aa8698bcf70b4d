"""JSON: the ways of reading agree, options, shapes that are coerced, and texts as Jackson writes them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.errors import OptionError
from poundlock.sql.formats.json_values import JsonRules, column_of_values, object_of
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import BYTES, STRING, SqlType
from support.examples import examples
from support.table_formats import binary, columns_of, decoder, encoder

INT, BIGINT, DOUBLE, BOOLEAN = SqlType("INT"), SqlType("BIGINT"), SqlType("DOUBLE"), SqlType("BOOLEAN")
TIMESTAMP, DECIMAL = SqlType("TIMESTAMP", (3,)), SqlType("DECIMAL", (10, 2))
TYPES = {
    "i": INT, "n": BIGINT, "f": DOUBLE, "b": BOOLEAN, "s": STRING, "d": DECIMAL, "t": TIMESTAMP,
    "day": SqlType("DATE"), "clock": SqlType("TIME", (3,)), "y": BYTES, "xs": SqlType("ARRAY", of=(INT,)),
    "r": SqlType("ROW", of=(INT, STRING), names=("p", "q")), "m": SqlType("MAP", of=(STRING, DOUBLE)),
}  # fmt: skip
WORDS = [
    "1", "-7", "2.5", "1e3", "12.345", '"5"', '" 6 "', '"x"', '"é\\n"', "true", "false", "null", '"true"', '"2.50"',
    '"2026-01-05 10:00:00"', '"2026-01-05 10:00:00.1234"', '"2024-02-31 00:00:00"', '"2026-01-05T10:00:00"', '"2026-01-05"',
    '"2026-02-30"', '"10:00:00"', '"10:00:00.5"', '"YWI="', "[1, 2]", '[1, "y", null]', "[]", '{"p": 1, "q": "z"}',
    '{"p": "x"}', "{}", '{"a": 1.5, "b": 2}', "99999999999", "123456789012345678901234567890", "0.1", "-0", '"Infinity"',
]  # fmt: skip


def alone(records: list[bytes], types: dict[str, SqlType], rules: JsonRules) -> list[dict[str, Any]]:
    """Return the rows of records, read value by value."""
    objects = []
    for record in records:
        try:
            objects.append(object_of(record))
        except ValueError:
            assert rules.is_lenient
    columns = {
        name: column_of_values([each.get(name) for each in objects], kind, rules) for name, kind in types.items()
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns)).to_pylist()


@given(
    names=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4, unique=True),
    base=st.lists(st.sampled_from(WORDS), min_size=4, max_size=4),
    odd=st.lists(st.tuples(st.integers(0, 199), st.integers(0, 3), st.sampled_from(WORDS)), max_size=12),
    cut=st.integers(0, 3),
)
@examples(200)
def test_objects_by_columns_are_those_read_alone(
    names: list[str], base: list[str], odd: list[tuple[int, int, str]], cut: int
) -> None:
    words = [[base[i] for i in range(len(names))] for _ in range(100)]
    for place, column, word in odd:
        words[place % 100][column % len(names)] = word
    records = [
        ("{" + ", ".join(f'"{n}": {w}' for n, w in zip(names, row, strict=True)) + "}").encode() for row in words
    ]
    types = {name: TYPES[name] for name in names}
    made, places = decoder(columns_of(**types), "json", ignore_parse_errors="true").decode(binary(records)[cut:], names)
    assert places is None
    assert same(made.select(names).to_pylist(), alone(records[cut:], types, JsonRules(is_lenient=True)))


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


@given(st.sampled_from(list(TYPES)), st.sampled_from(WORDS))
@examples(300)
def test_a_value_that_does_not_fit_fails_both_ways(name: str, word: str) -> None:
    record = f'{{"{name}": {word}}}'.encode()
    kind = TYPES[name]
    try:
        expected = alone([record] * 70, {name: kind}, JsonRules())
    except ValueError:
        with pytest.raises(EvaluationError, match="a record cannot be read") as caught:
            decoder(columns_of(**{name: kind}), "json").decode(binary([record] * 70), [name])
        assert caught.value.kind == "bad_record"
        assert repr(record)[:20] in caught.value.what
        return
    made, _ = decoder(columns_of(**{name: kind}), "json").decode(binary([record] * 70), [name])
    assert same(made.to_pylist(), expected)


def rows_of(types: dict[str, SqlType], *records: str | bytes, **options: str) -> list[dict[str, Any]]:
    given = [each.encode() if isinstance(each, str) else each for each in records]
    return decoder(columns_of(**types), "json", **options).decode(binary(given), list(types))[0].to_pylist()


def test_what_jackson_reads_too() -> None:
    types = {"a": STRING}
    assert rows_of(types, b'\xef\xbb\xbf{"a":"x"}', '{"a":"x\ty\x01"}', ' {"a":"x"} and more', '{"a":"\\ud800"}') == [
        {"a": "x"}, {"a": "x\ty\x01"}, {"a": "x"}, {"a": "?"},
    ]  # fmt: skip


def test_texts_of_other_values() -> None:
    words = ["1.50", "1e3", "true", "12345678901234567890123", '{"b": 1.50, "c": [1, null, "x"]}', "[]"]
    made = [row["a"] for row in rows_of({"a": STRING}, *(f'{{"a": {word}}}' for word in words))]
    assert made == ["1.50", "1e3", "true", "12345678901234567890123", '{"b":1.5,"c":[1,null,"x"]}', "[]"]


def test_whole_numbers_of_other_shapes() -> None:
    assert rows_of({"n": INT, "m": BIGINT}, '{"n": 1.9, "m": "8"}', '{"n": " 7 ", "m": -2.9}') == [
        {"n": 1, "m": 8}, {"n": 7, "m": -2},
    ]  # fmt: skip
    for word in ("2147483648", '"1.0"', "true", '"1_0"', '""', "{}"):
        with pytest.raises(EvaluationError):
            rows_of({"n": INT}, f'{{"n": {word}}}')
    with pytest.raises(EvaluationError):
        rows_of({"n": SqlType("SMALLINT")}, '{"n": 1.5}')


def test_decimals_are_rounded_and_too_large_ones_are_null() -> None:
    words = ["1.005", '"2.5"', '" 3 "', "1e2", "123456789.5"]
    made = [row["d"] for row in rows_of({"d": DECIMAL}, *(f'{{"d": {word}}}' for word in words))]
    assert made == [Decimal("1.01"), Decimal("2.50"), Decimal("3.00"), Decimal("100.00"), None]
    with pytest.raises(EvaluationError):
        rows_of({"d": DECIMAL}, '{"d": "nan"}')


def test_the_last_of_two_fields_of_a_name_counts() -> None:
    for count in (1, 70):
        assert rows_of({"a": INT, "b": INT}, *['{"a": 1, "a": 2, "b": 3}'] * count) == [{"a": 2, "b": 3}] * count


def test_empty_records_and_tombstones_are_none() -> None:
    made, places = decoder(columns_of(a=INT), "json").decode(binary([b"", b'{"a": 1}', None, b'{"a": 2}']), ["a"])
    assert made.to_pylist() == [{"a": 1}, {"a": 2}]
    assert places is not None
    assert places.tolist() == [1, 3]


def test_no_column_is_wanted() -> None:
    made, places = decoder(columns_of(a=INT), "json").decode(binary([b'{"a": 1}'] * 3), [])
    assert made.num_rows == 3
    assert places is None
    with pytest.raises(EvaluationError):
        decoder(columns_of(a=INT), "json").decode(binary([b'{"a": 1']), [])


@pytest.mark.parametrize("count", [1, 70])
def test_missing_fields_fail_where_they_shall(count: int) -> None:
    types = {"a": INT, "r": TYPES["r"]}
    assert rows_of(types, *['{"a": 1}'] * count) == [{"a": 1, "r": None}] * count
    with pytest.raises(EvaluationError, match="no field r"):
        rows_of(types, *['{"a": 1}'] * count, fail_on_missing_field="true")
    with pytest.raises(EvaluationError, match="no field q"):
        rows_of(types, *['{"a": 1, "r": {"p": 1}}'] * count, fail_on_missing_field="true")
    assert rows_of({"a": INT}, *['{"a": null}'] * count, fail_on_missing_field="true") == [{"a": None}] * count


def test_options_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="contradict"):
        decoder(columns_of(a=INT), "json", fail_on_missing_field="true", ignore_parse_errors="true")
    with pytest.raises(OptionError) as caught:
        decoder(columns_of(a=INT), "json", ignore_errors="true")
    assert caught.value.kind == "unknown_option"
    assert "json.ignore-parse-errors" in caught.value.next
    with pytest.raises(OptionError) as caught:
        decoder(columns_of(a=INT), "json", timestamp_format__standard="RFC")
    assert caught.value.kind == "bad_option_value"
    with pytest.raises(OptionError, match="keys are no texts"):
        decoder(columns_of(m=SqlType("MAP", of=(INT, INT))), "json")


def lines(types: dict[str, SqlType], rows: list[dict[str, Any]], **options: str) -> list[str]:
    columns = [pa.array([row.get(name) for row in rows], kind.arrow) for name, kind in types.items()]
    batch = pa.RecordBatch.from_arrays(columns, list(types))
    return [each.decode() for each in encoder(columns_of(**types), "json", **options).encode(batch).to_pylist()]


def test_texts_are_escaped_as_jackson_does() -> None:
    given = ['"', "\\", "\x1f\x00", "\n\t", "é\u2028/", "\\u00ab", "\x7f"]
    assert lines({"s": STRING}, [{"s": each} for each in given]) == [
        r'{"s":"\""}', r'{"s":"\\"}', r'{"s":"\u001F\u0000"}', r'{"s":"\n\t"}', '{"s":"é\u2028/"}', r'{"s":"\\u00ab"}',
        '{"s":"\x7f"}',
    ]  # fmt: skip


def test_numbers_are_written_as_java_does() -> None:
    types = {"f": DOUBLE, "d": DECIMAL, "b": BOOLEAN}
    rows = [
        {"f": 1e10, "d": Decimal("10.00"), "b": True}, {"f": float("inf"), "d": Decimal("-0.50"), "b": False},
        {"f": float("nan"), "d": Decimal("0.00"), "b": None}, {"f": None, "d": Decimal("1200.00")},
    ]  # fmt: skip
    assert lines(types, rows) == [
        '{"f":1.0E10,"d":1E+1,"b":true}', '{"f":"Infinity","d":-0.5,"b":false}', '{"f":"NaN","d":0,"b":null}',
        '{"f":null,"d":1.2E+3,"b":null}',
    ]  # fmt: skip
    assert lines({"d": DECIMAL}, [{"d": Decimal(10)}], encode__decimal_as_plain_number="true") == ['{"d":10.00}']


def test_nested_values_of_slices() -> None:
    kind = SqlType("MAP", of=(STRING, SqlType("ARRAY", of=(INT,))))
    whole = pa.array([[("gone", [9])], [("a", [1, None]), ("b", None)], None, []], kind.arrow)
    batch = pa.RecordBatch.from_arrays([whole], ["m"]).slice(1)
    made = encoder(columns_of(m=kind), "json").encode(batch).to_pylist()
    assert made == [b'{"m":{"a":[1,null],"b":null}}', b'{"m":null}', b'{"m":{}}']


def test_a_null_list_that_has_elements_is_null() -> None:
    items = pa.array([1, 2, 3], pa.int32())
    column = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), items, mask=pa.array([True, False]))
    batch = pa.RecordBatch.from_arrays([column], ["xs"])
    made = encoder(columns_of(xs=SqlType("ARRAY", of=(INT,))), "json").encode(batch).to_pylist()
    assert made == [b'{"xs":null}', b'{"xs":[3]}']


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=150, max_size=200), st.booleans())
@examples(30)
def test_objects_with_nulls_are_read_with_those_that_look_alike(nulls: list[tuple[bool, bool]], strict: bool) -> None:
    records = []
    for place, (no_text, no_time) in enumerate(nulls):
        text = "null" if no_text else f'"x{place}"'
        time = "null" if no_time else '"2026-01-05 10:00:00"'
        records.append(f'{{"s": {text}, "t": {time}, "d": {place}.5}}'.encode())
    types = {name: TYPES[name] for name in ("s", "t", "d")}
    options = {"fail_on_missing_field": "true"} if strict else {}
    made, places = decoder(columns_of(**types), "json", **options).decode(binary(records), list(types))
    assert places is None
    assert made.to_pylist() == alone(records, types, JsonRules())


def test_rows_of_nulls_alone_are_empty_objects_where_nulls_are_left_out() -> None:
    columns = columns_of(n=SqlType("INT"), r=SqlType("ROW", of=(SqlType("INT"),), names=("p",)))
    made = encoder(columns, "json", encode__ignore_null_fields="true")
    rows = pa.RecordBatch.from_pylist([{"n": 1, "r": None}, {"n": None, "r": None}, {"n": None, "r": {"p": None}}], pa.schema([(c.name, c.type.arrow) for c in columns]))  # fmt: skip
    assert made.encode(rows).to_pylist() == [b'{"n":1}', b"{}", b'{"r":{}}']


BID = SqlType("ROW", of=(BIGINT, STRING, TIMESTAMP), names=("price", "url", "at"))
SELLER = SqlType("ROW", of=(STRING, SqlType("ROW", of=(INT,), names=("n",))), names=("name", "rank"))
EVENTS = {
    "bid": ['{"price":7,"url":"u","at":"2026-01-05 10:00:00.123"}', '{"price":8,"url":"a longer one","at":"2026-01-05 10:00:01"}',
            '{"price":null,"url":"u","at":null}', '{"price":"9","url":"u"}', '{"at":"2026-01-05 10:00:00"}', "{}", "null", '{"price":1,"url":"\\u0041"}'],
    "seller": ['{"name":"x","rank":{"n":1}}', '{"name":"y","rank":null}', '{"rank":{"n":2},"name":"z"}', "null", '{"name":"w"}'],
}  # fmt: skip


@given(
    shapes=st.lists(
        st.tuples(st.sampled_from(EVENTS["bid"]), st.sampled_from(EVENTS["seller"])), min_size=1, max_size=4
    ),
    odd=st.integers(1, 300),
)
@examples(100)
def test_rows_of_objects_that_look_alike_are_those_read_alone(shapes: list[tuple[str, str]], odd: int) -> None:
    records = []
    for place in range(300):
        bid, seller = shapes[(place % odd == 0) * (place % len(shapes))]
        records.append(f'{{"id":{place},"bid":{bid},"seller":{seller}}}'.encode())
    types = {"id": BIGINT, "bid": BID, "seller": SELLER}
    read = decoder(columns_of(**types), "json")
    rows, places = read.decode(binary(records), list(types))
    assert places is None or places.tolist() == list(range(300))
    assert rows.to_pylist() == alone(records, types, JsonRules())


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a'b", "`", "名前", "a b"])
def test_names_of_fields_may_have_any_characters(name: str, count: int) -> None:
    types = {name: INT, "n": SqlType("ROW", of=(INT,), names=(name,))}
    rows = [{name: place, "n": {name: place + 1}} for place in range(count)]
    records = [json.dumps(row).encode() for row in rows]
    made, _ = decoder(columns_of(**types), "json").decode(binary(records), list(types))
    assert made.select(list(types)).to_pylist() == rows
    written = encoder(columns_of(**types), "json").encode(made)
    assert [json.loads(each) for each in written.to_pylist()] == rows
