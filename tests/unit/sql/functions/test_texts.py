"""Functions of texts: what Python's texts say, and what Flink says where they differ."""

from __future__ import annotations

import string
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.sql.functions.function import Given
from poundlock.sql.functions.texts import FUNCTIONS
from poundlock.sql.types import STRING, SqlType
from support.examples import examples
from support.sql_functions import Functions

TEXTS = Functions(FUNCTIONS)

FEW = examples(15)
TEXT = st.text(st.sampled_from("abAB1 ,éß日😀-"), max_size=8)
COLUMNS = st.lists(st.none() | TEXT, min_size=1, max_size=6)
NUMBERS = st.integers(-9, 9)


def each(function: Any, *columns: list[Any]) -> list[Any]:
    """Return what a function makes of the values of each row, None where one is."""
    return [None if None in row else function(*row) for row in zip(*columns, strict=True)]


def texts(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


@given(COLUMNS)
@FEW
def test_texts_are_changed_as_python_does(values: list[str | None]) -> None:
    column = texts(values)
    assert TEXTS.call("UPPER", column) == each(str.upper, values)
    assert TEXTS.call("LOWER", column) == each(str.lower, values)
    assert TEXTS.call("CHAR_LENGTH", column) == each(len, values)
    assert TEXTS.call("REVERSE", column) == each(lambda text: text[::-1], values)
    assert TEXTS.call("TRIM", column) == each(lambda text: text.strip(" "), values)
    assert TEXTS.call("LTRIM", column, "ab") == each(lambda text: text.lstrip("ab"), values)
    assert TEXTS.call("TRIM", column, "é", options=("TRAILING",)) == each(lambda text: text.rstrip("é"), values)
    assert TEXTS.call("REPLACE", column, "a", "é") == each(lambda text: text.replace("a", "é"), values)
    assert TEXTS.call("REPEAT", column, 2) == each(lambda text: text * 2, values)


def part(text: str, place: int, count: int | None = None) -> str | None:
    """Return SUBSTRING's meaning."""
    if count is not None and count < 0:
        return None
    first = place - 1 if place > 0 else len(text) + place if place else 0
    if first < 0:
        return ""
    return text[first:] if count is None else text[first : first + count]


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | NUMBERS, st.none() | NUMBERS), min_size=1, max_size=6))
@FEW
def test_parts_are_those_of_characters(rows: list[tuple[str | None, int | None, int | None]]) -> None:
    values, places, counts = (list(column) for column in zip(*rows, strict=True))
    column, place, count = texts(values), pa.array(places, pa.int32()), pa.array(counts, pa.int64())
    assert TEXTS.call("SUBSTRING", column, place) == each(part, values, places)
    assert TEXTS.call("SUBSTR", column, place, count) == each(part, values, places, counts)
    assert TEXTS.call("LEFT", column, place) == each(lambda text, size: text[: max(size, 0)], values, places)
    assert TEXTS.call("RIGHT", column, place) == each(
        lambda text, size: text[-size:] if size > 0 else "", values, places
    )


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | TEXT), min_size=1, max_size=6))
@FEW
def test_texts_are_looked_for_in_others(rows: list[tuple[str | None, str | None]]) -> None:
    values, sought = (list(column) for column in zip(*rows, strict=True))
    column, other = texts(values), texts(sought)
    assert TEXTS.call("POSITION", other, column) == each(lambda text, word: text.find(word) + 1, values, sought)
    assert TEXTS.call("INSTR", column, other) == each(lambda text, word: text.find(word) + 1, values, sought)
    assert TEXTS.call("STARTSWITH", column, other) == each(str.startswith, values, sought)
    assert TEXTS.call("ENDSWITH", column, other) == each(str.endswith, values, sought)
    assert TEXTS.call("CONCAT", column, other) == each(lambda text, word: text + word, values, sought)
    assert TEXTS.call("CONCAT_WS", "-é", column, other) == [
        "-é".join(text for text in row if text is not None) for row in rows
    ]


@given(st.lists(st.tuples(st.none() | TEXT, st.integers(-1, 4)), min_size=1, max_size=6))
@FEW
def test_a_piece_is_the_same_with_a_separator_for_all_and_one_a_row(rows: list[tuple[str | None, int]]) -> None:
    values, places = (list(column) for column in zip(*rows, strict=True))
    column, place = texts(values), pa.array(places, pa.int32())
    pieces = each(
        lambda text, index: text.split(",")[index] if text and 0 <= index < len(text.split(",")) else None,
        values,
        places,
    )
    assert TEXTS.call("SPLIT_INDEX", column, ",", place) == pieces
    assert TEXTS.call("SPLIT_INDEX", column, ord(","), place) == pieces
    whole = each(lambda text: text.split(",") if text else [], values)
    assert TEXTS.call("SPLIT", column, ",") == whole


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | st.integers(-1, 6), st.none() | TEXT), min_size=1, max_size=6))
@FEW
def test_padding_of_one_letter_and_of_more(rows: list[tuple[str | None, int | None, str | None]]) -> None:
    def left(text: str, size: int, padding: str) -> str | None:
        missing = max(size - len(text), 0)
        return None if size < 0 or not padding else (padding * missing)[:missing] + text[:size]

    def right(text: str, size: int, padding: str) -> str | None:
        return None if size < 0 or not padding else (text + padding * size)[: max(size, 0)]

    values, sizes, paddings = (list(column) for column in zip(*rows, strict=True))
    column, size, padding = texts(values), pa.array(sizes, pa.int32()), texts(paddings)
    assert TEXTS.call("LPAD", column, size, padding) == each(left, values, sizes, paddings)
    assert TEXTS.call("RPAD", column, size, padding) == each(right, values, sizes, paddings)


def capitals(text: str) -> str:
    """Return INITCAP's meaning: letters and digits of ASCII make words."""
    words = string.ascii_letters + string.digits
    return "".join(
        (letter.lower() if place and text[place - 1] in words else letter.upper()) if letter in words else letter
        for place, letter in enumerate(text)
    )


@given(COLUMNS)
@FEW
def test_words_begin_with_capitals(values: list[str | None]) -> None:
    assert TEXTS.call("INITCAP", texts(values)) == each(capitals, values)


@given(COLUMNS, st.text("abé😀", max_size=3), st.text("xy", max_size=3))
@FEW
def test_letters_are_translated_one_by_one(values: list[str | None], old: str, new: str) -> None:
    table = {letter: new[place : place + 1] for place, letter in reversed(list(enumerate(old)))}
    expected = each(lambda text: "".join(table.get(letter, letter) for letter in text), values)
    assert TEXTS.call("TRANSLATE", texts(values), old, new) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("SPLIT_INDEX", ("", ",", 0), None),
        ("SPLIT_INDEX", ("a b", "", 1), "b"),
        ("SPLIT_INDEX", ("a--b", "-", 1), ""),
        ("SPLIT_INDEX", ("a,b", 300, 0), None),
        ("SPLIT", ("aé", ""), ["a", "é"]),
        ("BTRIM", ("  a ", " "), "a"),
        ("BTRIM", ("xax", ""), "xax"),
        ("REPLACE", ("ab", "", "-"), "-a-b-"),
        ("INSTR", ("banana", "a", 3), 4),
        ("INSTR", ("banana", "a", -1, 2), 4),
        ("INSTR", ("banana", "an", -3, 1), 2),
        ("INSTR", ("banana", "a", 0), 0),
        ("LOCATE", ("a", "banana", 3), 4),
        ("LOCATE", ("", "banana", 9), 1),
        ("OVERLAY", ("abcdef", "XY", 3), "abXYef"),
        ("OVERLAY", ("abcdef", "XY", 3, 1), "abXYdef"),
        ("OVERLAY", ("abc", "XY", 4), "abc"),
        ("OVERLAY", ("abc", "XY", 3, 5), "abXY"),
        ("REPEAT", ("ab", -1), ""),
        ("ASCII", ("é",), -61),
        ("ASCII", ("",), 0),
        ("CHR", (321,), "A"),
        ("CHR", (-1,), ""),
        ("CHR", (256,), "\0"),
        ("ELT", (2, "a", "b"), "b"),
        ("ELT", (3, "a", "b"), None),
        ("STARTSWITH", (b"abc", b"ab"), True),
        ("ENDSWITH", ("abc", ""), True),
        ("TRANSLATE", ("abc", None, "x"), "abc"),
        ("TRANSLATE", ("abc", "b", None), "ac"),
        ("CONCAT_WS", ("-", None, None), ""),
        ("CONCAT_WS", (None, "a"), None),
        ("CONCAT_WS", ("-",), ""),
    ],
)
def test_single_calls(name: str, arguments: tuple[object, ...], value: object) -> None:
    assert TEXTS.call(name, *arguments) == [value] * 3


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("UPPER", ("CHAR(3)",), "CHAR(3)"),
        ("TRIM", ("CHAR(3)",), "VARCHAR(3)"),
        ("SUBSTRING", ("VARCHAR(9)", "INT"), "VARCHAR(9)"),
        ("OVERLAY", ("VARCHAR(9)", "CHAR(2)", "INT"), "VARCHAR(11)"),
        ("OVERLAY", ("STRING", "CHAR(2)", "INT"), "STRING"),
        ("ELT", ("INT", "CHAR(2)", "VARCHAR(5)"), "VARCHAR(5)"),
        ("REVERSE", ("CHAR(3)",), "STRING"),
    ],
)
def test_types_of_results(name: str, types: tuple[str, ...], result: str) -> None:
    assert str(TEXTS.named[name].returns([Given(declared(each)) for each in types])) == result


def declared(text: str) -> SqlType:
    root, _, sizes = text.removesuffix(")").partition("(")
    return STRING if text == "STRING" else SqlType(root, (int(sizes),) if sizes else ())  # type: ignore[arg-type]


def test_a_result_is_never_null_where_no_argument_is_unless_the_function_gives_null() -> None:
    whole = Given(STRING.not_null())
    assert not TEXTS.named["UPPER"].returns([whole]).is_nullable
    assert TEXTS.named["UPPER"].returns([Given(STRING)]).is_nullable
    assert TEXTS.type_of("SPLIT_INDEX", "a", ",", 1).is_nullable
    assert not TEXTS.named["CONCAT_WS"].returns([whole, Given(STRING)]).is_nullable
    assert TEXTS.named["CONCAT"].returns([whole, Given(STRING, is_literal=True)]).is_nullable


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("UPPER", ("a", "x"), "write UPPER(text)"),
        ("UPPER", (1,), "UPPER does not take (INT)"),
        ("SUBSTRING", ("a", "b"), "write SUBSTRING(text, integer) or SUBSTRING(text, integer, integer)"),
        ("CONCAT", (), "write CONCAT(text…)"),
        ("CONCAT", ("a", 1), "CONCAT does not take (STRING, INT)"),
    ],
)
def test_other_arguments_are_refused(name: str, arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        TEXTS.type_of(name, *arguments)
    assert words in str(raised.value)


def test_a_bare_null_is_cast_to_what_its_place_takes() -> None:
    accepts = TEXTS.named["SUBSTRING"].accepts
    assert accepts is not None
    null = Given(STRING, is_literal=True)
    assert accepts([null, null]) == [STRING, SqlType("INT")]
    assert accepts([Given(STRING), Given(SqlType("BIGINT"))]) == [None, None]
