"""Columns as msgpack: what is written is what the codec of single values reads, and a cursor reads what any writer of msgpack wrote."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.arrays import binary_array
from poundlock.operators.columns.msgpack.cursor import Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.values import packed, packed_records, packed_timed, read_value, unpacked
from poundlock.operators.columns.msgpack.writing import Fixed, list_head, lists_of, texts, written
from poundlock.operators.columns.rows.records import records_of
from poundlock.operators.keyed.codec import decode, encode_each

WORDS = st.none() | st.text(max_size=40) | st.sampled_from(["", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "é" * 40_000])
OVERHEAD = 18  # bytes of a dict of a date and a text beside the text
NUMBERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, 127, 128, 1 << 16, 1 << 32])


@given(st.lists(WORDS, max_size=8), st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_have_the_bytes_that_the_codec_gives_them(words: list[str | None], kind: pa.DataType) -> None:
    column = pa.array(["before", *words], kind)[1:]
    bytes_of = packed(column)
    assert bytes_of.to_pylist() == encode_each(list(words))
    assert Cursor(bytes_of).texts(kind)().equals(column)


@given(st.lists(st.none() | st.binary(max_size=300) | st.just(b"x" * 70_000), max_size=8))
def test_byte_strings_have_the_bytes_that_the_codec_gives_them(values: list[bytes | None]) -> None:
    column = pa.array([b"before", *values], pa.binary())[1:]
    bytes_of = written(texts(column), len(column))
    assert bytes_of.to_pylist() == encode_each(list(values))
    assert Cursor(bytes_of).texts(pa.binary())().equals(column)


@given(st.lists(NUMBERS, max_size=8), st.booleans())
def test_whole_numbers_are_read_in_every_length(numbers: list[int | None], behind: bool) -> None:
    column = pa.array(numbers, pa.int64())
    for values in (packed(column), binary_array(encode_each(list(numbers)))):
        assert Cursor(values).integers().equals(column)
    rows = [["a" * (len(numbers) if behind else at), number] for at, number in enumerate(numbers)]
    cursor = Cursor(binary_array(encode_each(list(rows))))
    cursor.skip(list_head(2))
    assert cursor.texts(pa.string())().to_pylist() == [text for text, _ in rows]
    assert cursor.integers().equals(column)
    assert cursor.rest().to_pylist() == [b""] * len(rows)


def test_what_has_more_than_63_bits_is_no_whole_number() -> None:
    with pytest.raises(UnexpectedValue):
        Cursor(binary_array(encode_each([1, (1 << 64) - 1]))).integers()


@pytest.mark.parametrize("size", [0, 1, 200, 252, 253, 254, 255])
def test_a_value_with_a_code_of_its_own_may_have_255_bytes(size: int) -> None:
    bytes_of = [msgspec.msgpack.encode(msgspec.msgpack.Ext(4, b"x" * size)), b"\xc0", msgspec.msgpack.encode(7)]
    cursor = Cursor(binary_array([bytes_of[0] + bytes_of[2], bytes_of[1] + bytes_of[2]]))
    assert cursor.extensions().to_pylist() == bytes_of[:2]
    assert cursor.integers().to_pylist() == [7, 7]


@pytest.mark.parametrize("length", range(225, 245))
def test_dicts_of_any_length_with_keys_that_are_no_texts(length: int) -> None:
    schema = pa.schema([("days", pa.map_(pa.date32(), pa.string())), ("n", pa.int64())])
    rows = pa.RecordBatch.from_pylist([{"days": [(date(2026, 1, 5), "x" * length)], "n": 3}], schema)
    values = packed_records(rows.columns, schema.names)
    assert (b"\xc7\xfd" in values[0].as_py()) == (length == 253 - OVERHEAD)
    assert pa.RecordBatch.from_arrays(records_of(values, schema), schema=schema).equals(rows)


@pytest.mark.parametrize("constant", [b"a", b"abc", b"abcdefgh", b"abcdefghi", b"abcdefgh" * 5 + b"xyz"])
@pytest.mark.parametrize("ends", [[b"", b""], [b"", b"more"]])
def test_bytes_that_all_have_are_skipped(constant: bytes, ends: list[bytes]) -> None:
    cursor = Cursor(binary_array([constant + end for end in ends]))
    cursor.skip(constant)
    assert cursor.rest().to_pylist() == ends
    for at in range(len(constant)):
        other = constant[:at] + b"?" + constant[at + 1 :]
        with pytest.raises(UnexpectedValue):
            Cursor(binary_array([constant + ends[0], other + ends[1]])).skip(constant)
    with pytest.raises(UnexpectedValue):
        Cursor(binary_array([constant + ends[0], constant[:-1]])).skip(constant)


@pytest.mark.parametrize("other", [b"\xa1a", b"\xcb" + bytes(8), b"\x05", b"\xc3", b"\x90"])
def test_a_number_among_other_values_is_not_read(other: bytes) -> None:
    values = binary_array([b"\xd3" + bytes(8), other])
    with pytest.raises(UnexpectedValue):
        Cursor(values).fixed(b"\xd3", ">i8", pa.int64())
    assert Cursor(binary_array([b"\xd3" + bytes(8), b"\xc0"])).fixed(b"\xd3", ">i8", pa.int64())().to_pylist() == [
        0,
        None,
    ]


def test_a_cursor_at_some_places_moves_alone() -> None:
    cursor = Cursor(binary_array(encode_each([[1, 2], [3], [4, 5]])))
    assert cursor.list_lengths().tolist() == [2, 1, 2]
    assert cursor.integers().to_pylist() == [1, 3, 4]
    own = np.array([0, 2])
    some = cursor.at(own)
    assert some.integers().to_pylist() == [2, 5]
    cursor.move(own, some)
    assert cursor.rest().to_pylist() == [b""] * 3


def test_parts_stand_one_behind_the_other() -> None:
    numbers = Fixed(b"\xcd", np.array([1, 258]), ">u2")
    words = pa.array([b"x", b"yz"], pa.large_binary())
    assert written([b"<", numbers, b">"], 2).to_pylist() == [b"<\xcd\0\1>", b"<\xcd\1\2>"]
    assert written([b"<", words, numbers, words, b">"], 2).to_pylist() == [b"<x\xcd\0\1x>", b"<yz\xcd\1\2yz>"]
    assert written([words], 2) is words
    assert written([b"<"], 0).to_pylist() == []
    assert written([numbers.or_nil(np.array([False, True]))], 2).to_pylist() == [b"\xc0", b"\xcd\1\2"]


def test_a_value_that_goes_away_does_so_with_its_time() -> None:
    values = pa.array([b"\x01", None], pa.large_binary())
    row, gone = packed_timed(pa.array([5, 6]), values).to_pylist()
    assert (decode(row), gone) == ([5, 1], None)


@given(st.lists(st.integers(0, 20), max_size=6))
def test_lists(counts: list[int]) -> None:
    rows = packed(pa.array(range(sum(counts) + 2), pa.int64()))[1:-1]
    numbers = iter(unpacked(rows))
    assert unpacked(lists_of(rows, np.array(counts, np.int64))) == [[next(numbers) for _ in range(n)] for n in counts]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.string(), [b"\xdb\0\0\0\1a", b"\xa1b", b"\xd9\1c", b"\xda\0\1d"], ["a", "b", "c", "d"]),
        (pa.binary(), [b"\xc6\0\0\0\1a", b"\xc5\0\1b", b"\xc4\1c", b"\xc0"], [b"a", b"b", b"c", None]),
        (pa.int32(), [b"\xd3" + bytes(7) + b"\1", b"\xd0\xff", b"\xcc\xff", b"\xe0"], [1, -1, 255, -32]),
    ],
)
def test_what_earlier_versions_wrote_is_read(kind: pa.DataType, values: list[bytes], expected: list[Any]) -> None:
    assert read_value(Cursor(binary_array(values)), kind).to_pylist() == expected
