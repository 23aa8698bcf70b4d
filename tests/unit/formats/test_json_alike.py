"""Lines of JSON decoded by columns against the same lines decoded one by one."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from poundlock.formats import ddl
from poundlock.formats.chunk import Lines, Values, line_starts
from poundlock.formats.decode_json import JsonCodec
from poundlock.formats.json import alike as json_alike
from poundlock.formats.json.alike import AlikeObjects, pattern_of

COLUMNS = ddl.parse("at double, user string, n bigint, small tinyint, ok boolean, gone string")


def lines_of(values: list[bytes]) -> Lines:
    data = b"".join(value + b"\n" for value in values)
    return Lines(memoryview(data), np.cumsum([len(value) + 1 for value in values]) - 1)


def values_of(lines: Lines) -> Values:
    return Values(np.frombuffer(lines.data, np.uint8), line_starts(lines), lines.ends)


def scattered(values: list[bytes]) -> Values:
    """Return the values with something between them that looks like a part of them, as records of Kafka have their numbers there."""
    between = [b'"}\n\x00{"at":', b"", b"1,", b'\xff","user":"'][: 1 + len(values) % 4]
    pieces = [piece for i, value in enumerate(values) for piece in (between[i % len(between)], value)]
    ends = np.cumsum([len(piece) for piece in pieces])
    data = np.frombuffer(b"".join(pieces) + bytes(8), np.uint8)
    return Values(data, ends[0::2], ends[1::2])


def plain(i: int) -> bytes:
    row = {
        "at": 1545184224 + i / 8,
        "user": f"user-{i % 11}",
        "n": i * 7,
        "more": "x" * (i % 5),
        "small": i % 100,
        "ok": i % 3 == 0,
    }
    return json.dumps(row, separators=(",", ":")).encode()


@pytest.fixture(autouse=True)
def any_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "LEAST", 1)
    monkeypatch.setattr(json_alike, "_DIFFERENT", 1)


def check(values: list[bytes], columns: pa.Schema = COLUMNS) -> int:
    """Compare both ways; return how many lines were decoded by columns."""
    codec = JsonCodec(columns)
    decoded = AlikeObjects(columns).decode(values_of(lines_of(values)))
    other = AlikeObjects(columns).decode(scattered(values))
    if decoded is None or other is None:
        assert decoded is other
        return 0
    rows, numbers = decoded
    assert numbers.tolist() == other[1].tolist()
    same(rows, other[0])
    alone = codec.parse([values[number] for number in numbers.tolist()], "batch")
    assert not alone.bad
    assert isinstance(alone.rows, pa.RecordBatch)
    assert rows.schema == alone.rows.schema
    same(rows, alone.rows)
    rows.validate(full=True)
    return len(numbers)


def same(rows: pa.RecordBatch, others: pa.RecordBatch) -> None:
    for row, other in zip(rows.to_pylist(), others.to_pylist(), strict=True):
        for name, value in row.items():
            assert value == other[name], (row, other)
            if isinstance(value, float):
                assert math.copysign(1, value) == math.copysign(1, other[name])


number = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, allow_nan=False, places=2).map(str),
    st.sampled_from(["0", "-0", "0.0", "-0.0", "00", "01", "-01", "1.", ".5", "-", "-.5", "1e5", "1E-5", "+1", "127", "128", "-128", "-129",
                     "null", "true", "false", "nul", "True", "9223372036854775807", "9223372036854775808", "1.2.3", "1-2", "NaN", "{}", "[1]", '"7"', ""]),
)  # fmt: skip
text = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=9).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.text(st.characters(codec="utf-8"), max_size=4).map(json.dumps),
    st.sampled_from(["null", "1", "true", '"a","n":5', '"","user":"b"', '"', '"\t"', '"\x7f"', '"\u2028"', "[]"]),
)


@st.composite
def lines_like_it(draw: st.DrawFn) -> bytes:
    separator = draw(st.sampled_from([","] * 9 + [", ", ",,"]))
    ok = draw(st.sampled_from(["true", "false", "null", "1", "tru"]))
    fields = f'"at":{draw(number)}{separator}"user":{draw(text)},"n":{draw(number)},"more":"x","small":{draw(number)},"ok":{ok}'
    return f"{{{fields}}}".replace("\n", " ").encode()


line = lines_like_it()
strange = st.one_of(
    st.sampled_from([b"", b"{}", b"[]", b"null", b'{"at":1}', b" " + plain(1), plain(1) + b" ", plain(1) + b"\r", plain(2) * 2, b"\xff" + plain(1)]),
    st.binary(max_size=40).map(lambda value: value.replace(b"\n", b"")),
)  # fmt: skip


@given(st.lists(st.one_of(line, line, line, st.integers(0, 999).map(plain)), min_size=1, max_size=30))
def test_any_values(values: list[bytes]) -> None:
    check(values)


@given(st.integers(1, 40), st.data())
def test_one_changed_byte(count: int, data: st.DataObject) -> None:
    """Whatever happens to a byte of a line, it is decoded as it is alone or left alone, and so are the others."""
    values = [plain(i) for i in range(count)]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, count - 1))
        at = data.draw(st.integers(0, len(values[row]) - 1))
        new = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b",", b"}", b"{", b"0", b"-", b".", b"e", b"\x00", b" ", b"n", b":", b"\x7f"]
            )
        )
        values[row] = values[row][:at] + new + values[row][at + data.draw(st.integers(0, 2)) :]
    assume(b"\xff" not in b"".join(values))
    check(values)


@given(
    st.lists(
        st.one_of(st.integers(0, 999).map(plain), st.integers(0, 999).map(plain), line, strange),
        min_size=1,
        max_size=30,
    )
)
@example([plain(0), b"", plain(1)])
def test_codec_gives_all_lines_in_their_order(values: list[bytes]) -> None:
    codec, lines = JsonCodec(COLUMNS), lines_of(values)
    parsed, alone = codec.parse_values(values_of(lines)), codec.parse(values, "batch")
    if parsed is not None:
        assert dict(parsed.bad) == dict(alone.bad)
        assert isinstance(parsed.rows, pa.RecordBatch)
        assert isinstance(alone.rows, pa.RecordBatch)
        same(parsed.rows, alone.rows)


def test_all_plain_lines_are_decoded_by_columns() -> None:
    values = [plain(i) for i in range(1000)]
    assert check(values) == 1000
    assert check([json.dumps(json.loads(value)).encode() for value in values]) == 1000  # with spaces


def test_what_differs_is_left_out() -> None:
    values = [plain(i) for i in range(100)]
    values[3] = values[3].replace(b"user-3", b"user\\u0020")
    values[50] = b"{}"
    values[99] = values[99].replace(b'"user-0"', b"null")
    assert check(values) == 97


def test_texts_of_many_lengths_are_found() -> None:
    values = [b'{"user":"%s","n":%d}' % (b"y" * (i * 37 % 200), i) for i in range(300)]
    assert check(values) == 300


def test_a_name_that_is_no_unicode_is_one_bad_line_and_not_the_end() -> None:
    lines = [b'{"n\xff":1}', *map(plain, range(9))]
    for parsed in (
        JsonCodec(COLUMNS).parse_values(values_of(lines_of(lines))),
        JsonCodec(COLUMNS).parse(lines, "batch"),
    ):
        assert parsed is None or parsed.bad == {0: "not UTF-8 at byte 3"}


def test_a_text_in_place_of_a_quote_is_not_two_fields() -> None:
    values = [b'{"user":"%s","n":1}' % (b"z" * 9), b'{"user":"a","n":5,"user":"b","n":1}'] * 3
    values[1] = values[3] = values[5] = b'{"user":"a","user":"b","n":1}'
    assert check(values) == 3


def test_a_required_field_that_is_not_there_is_not_made_up() -> None:
    columns = pa.schema([pa.field("user", pa.string()), pa.field("there", pa.int64(), nullable=False)])
    assert check([plain(i) for i in range(100)], columns) == 0
    with_null = [b'{"there":%s}' % (b"null" if i == 5 else b"%d" % i) for i in range(100)]
    assert check(with_null, columns) == 99


def test_columns_that_are_converted_in_python_are_not_tried() -> None:
    assert AlikeObjects(ddl.parse("at timestamp")).decode(values_of(lines_of([plain(1)] * 100))) is None


def test_what_was_in_vain_is_tried_less_and_less() -> None:
    alike = AlikeObjects(COLUMNS)
    odd, good = (values_of(lines_of(some)) for some in ([b"{}"] * 100, [plain(i) for i in range(100)]))
    assert alike.decode(odd) is None
    assert alike.decode(good) is None  # skipped
    assert alike.decode(good) is not None
    assert alike.decode(good) is not None


@pytest.mark.parametrize(
    "value", [b"[]", b"{}", b'{"a":{}}', b'{"a":"\\n"}', b'{"a":1,"a":2}', b'{"a":1}x', b'{"a":1', b' {"a":1}', b'{"":1}', b"", b'{"\xff":1}']
)  # fmt: skip
def test_lines_that_are_no_pattern(value: bytes) -> None:
    assert pattern_of(value) is None


def test_numbers_and_words_as_they_are_written() -> None:
    words = [b"1.50", b"-7", b"true", b"null", b"1e3", b'"x"', b"01"]
    values = [b'{"a": %s, "b": %d}' % (words[n % 7] if n < 7 else b"2.0", n) for n in range(200)]
    decoded = AlikeObjects(ddl.parse("a string, b int"), frozenset({"a"})).decode(values_of(lines_of(values)))
    assert decoded is not None
    rows, numbers = decoded
    assert numbers.tolist() == [n for n in range(200) if n not in (4, 5, 6)]  # an exponent, a text, no number
    assert rows["a"].to_pylist()[:5] == ["1.50", "-7", "true", None, "2.0"]


NESTED = ddl.parse("kind int, `bid\x1fprice` bigint, `bid\x1furl` string, `bid\x1fby\x1fname` string")
OBJECTS = frozenset({"bid", "bid\x1fby", "person"})


def nested(i: int) -> bytes:
    bid = {"price": i, "url": f"u{i % 9}", "by": {"name": f"n{i}", "age": 3}, "more": True}
    return json.dumps({"kind": i % 5, "bid": bid, "person": None}, separators=(",", ": ")).encode()


def test_fields_of_objects_in_objects() -> None:
    alike = AlikeObjects(NESTED, objects=OBJECTS)
    decoded = alike.decode(values_of(lines_of([nested(i) for i in range(90)])))
    assert decoded is not None
    rows = decoded[0].to_pylist()
    assert [list(row.values()) for row in rows] == [[i % 5, i, f"u{i % 9}", f"n{i}"] for i in range(90)]
    assert alike.objects == {"bid", "bid\x1fby"}


def test_what_is_no_object_where_one_is_wanted_is_left() -> None:
    values = [nested(i) for i in range(90)]
    values[7] = values[7].replace(b"null", b"5")
    values[8] = values[8].replace(b"null", b'"x"')
    decoded = AlikeObjects(NESTED, objects=OBJECTS).decode(values_of(lines_of(values)))
    assert decoded is not None
    assert sorted(set(range(90)) - set(decoded[1].tolist())) == [7, 8]


def test_an_object_where_a_value_is_wanted_is_no_null() -> None:
    values = [nested(i) for i in range(90)]
    assert AlikeObjects(ddl.parse("kind int, bid string")).decode(values_of(lines_of(values))) is None
    assert (
        AlikeObjects(ddl.parse("kind int, price bigint, more boolean, name string")).decode(
            values_of(lines_of([b'{"kind":1,"price":2,"more":true,"name":{"price":5}}'] * 90))
        )
        is None
    )


@pytest.mark.parametrize(
    "value",
    [b'{"a":{"b":1}', b'{"a":{"b":1}}}', b'{"a":{"b":1},}', b'{"a":{"b":1},"a":2}', b'{"a":2,"a":{"b":1}}',
     b'{"a":{"b":1},"a":{"c":1}}', b'{"a":{"b":1}x}', b'{"a":{}}', b'{"a":[1]}', b'{"a":{"b":1,"b":2}}'],
)  # fmt: skip
def test_objects_in_objects_that_are_no_pattern(value: bytes) -> None:
    assert pattern_of(value) is None
