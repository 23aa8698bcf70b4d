"""Functions of JSON: paths, what is empty and what is an error, and texts that are made."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.json import FUNCTIONS, check_returning
from poundlock.sql.functions.kernels.json_texts import java_double
from poundlock.sql.types import STRING, SqlType
from support.examples import examples
from support.sql_functions import Functions

JSON = Functions(FUNCTIONS)

FEW = examples(20)
DOCUMENT = '{"a":[{"b":1},{"b":2.50},{"c":null}],"d":{"e":"x","f":[]},"g":true,"h i":1e3}'
INT, DOUBLE, BOOLEAN = SqlType("INT"), SqlType("DOUBLE"), SqlType("BOOLEAN")
TEXTS = SqlType("ARRAY", of=(STRING,))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'é", max_size=3), inner, max_size=3),
    max_leaves=6,
)


def documents(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", json.loads(DOCUMENT, parse_float=Decimal)),
        ("$.d", {"e": "x", "f": []}),
        ("d", {"e": "x", "f": []}),
        ("$['d']", {"e": "x", "f": []}),
        ('$["d"]["f"]', []),
        ("$.d['e','f']", {"e": "x", "f": []}),
        ("$.a[*].b", [1, Decimal("2.50")]),
        ("$.a[0,2]", [{"b": 1}, {"c": None}]),
        ("$.a[1:]", [{"b": Decimal("2.50")}, {"c": None}]),
        ("$.a[-1]", {"c": None}),
        ("$..b", [1, Decimal("2.50")]),
        ("$.d.*", ["x", []]),
        ("strict $.d", {"e": "x", "f": []}),
        ("LAX $.d", {"e": "x", "f": []}),
        ("lax $.x", None),
        ("lax $.a[9]", None),
        ("lax $.x[*]", []),
        ("$.a.b", None),
        ("$.a[9]", None),
        ("$.d.e.f", None),
    ],
)
def test_paths(path: str, found: Any) -> None:
    expected = None if found is None else as_json(found)
    assert JSON.call("JSON_QUERY", documents(DOCUMENT, None), path) == [expected, None]


def test_a_path_to_many_values_is_an_empty_list_where_there_are_none() -> None:
    column = documents('{"d":{}}', "{}")
    assert JSON.call("JSON_QUERY", column, "$.d.*") == ["[]", None]
    assert JSON.call("JSON_QUERY", column, "lax $.d.*") == ["[]", "[]"]
    assert JSON.call("JSON_QUERY", column, "$..x") == ["[]", "[]"]


def as_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{as_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


@given(st.lists(VALUES, min_size=1, max_size=4))
@FEW
def test_documents_are_written_as_they_were_read(values: list[Any]) -> None:
    texts = [json.dumps(value, ensure_ascii=bool(place % 2)) for place, value in enumerate(values)]
    assert [json.loads(text) for text in JSON.call("JSON", documents(*texts))] == values
    whole = [text if isinstance(value, dict | list) else None for text, value in zip(texts, values, strict=True)]
    made = JSON.call("JSON_QUERY", documents(*texts), "$")
    assert [text and json.loads(text) for text in made] == [text and json.loads(text) for text in whole]
    for asked, kinds in (("OBJECT", dict), ("ARRAY", list)):
        assert JSON.call("IS_JSON", documents(*texts), options=(asked,)) == [
            isinstance(value, kinds) for value in values
        ]


@given(st.lists(st.none() | st.text(max_size=6), min_size=1, max_size=4))
@FEW
def test_texts_are_quoted(values: list[str | None]) -> None:
    quoted = JSON.call("JSON_QUOTE", documents(*values))
    assert [text and json.loads(text) for text in quoted] == [None if text is None else text for text in values]
    assert all(text is None or text.isascii() for text in quoted)
    assert JSON.call("JSON_UNQUOTE", documents(*quoted)) == values
    strings = JSON.call("JSON_STRING", documents(*values))
    assert [text and json.loads(text) for text in strings] == values


@pytest.mark.parametrize(
    ("path", "returns", "value"),
    [
        ("$.a[1].b", STRING, "2.50"),
        ("$.a[1].b", DOUBLE, 2.5),
        ("$.a[0].b", DOUBLE, 1.0),
        ("$.a[0].b", INT, 1),
        ("$.a[1].b", INT, "error"),
        ("$.g", STRING, "true"),
        ("$.g", BOOLEAN, True),
        ("$.g", INT, "error"),
        ("$.d.e", INT, "error"),
        ("$['h i']", STRING, "1E+3"),
        ("$.a[2].c", STRING, "empty"),
        ("$.d", STRING, "error"),
        ("lax $.d", STRING, "empty"),
        ("$.x", STRING, "error"),
        ("lax $.x", STRING, "empty"),
    ],
)
def test_a_value_nothing_or_an_error(path: str, returns: SqlType, value: object) -> None:
    column = documents(DOCUMENT, None)
    default = {"VARCHAR": ("e", "r"), "INT": (-1, -2), "DOUBLE": (-1.0, -2.0), "BOOLEAN": (False, False)}[returns.root]
    expected = {"empty": default[0], "error": default[1]}.get(value, value) if isinstance(value, str) else value
    options = ("DEFAULT ON ERROR", "DEFAULT ON EMPTY")
    assert JSON.call("JSON_VALUE", column, path, *default, options=options, returns=returns) == [expected, None]
    plain = None if value in ("empty", "error") else value
    assert JSON.call("JSON_VALUE", column, path, returns=returns) == [plain, None]
    assert JSON.call("JSON_VALUE", column, path, options=("NULL ON EMPTY",), returns=returns) == [plain, None]
    for asked in ("empty", "error"):
        option = (f"ERROR ON {asked.upper()}",)
        if value == asked:
            with pytest.raises(TerminalError, match="JSON_VALUE of a document with"):
                JSON.call("JSON_VALUE", column, path, options=option, returns=returns)
        else:
            assert JSON.call("JSON_VALUE", column, path, options=option, returns=returns) == [plain, None]


def test_defaults_may_be_columns() -> None:
    column, default = documents('{"a":1}', "{}", None), pa.array([7, 8, 9], pa.int32())
    options = ("DEFAULT ON EMPTY",)
    assert JSON.call("JSON_VALUE", column, "lax $.a", default, options=options, returns=INT) == [1, 8, None]


@pytest.mark.parametrize(
    ("path", "options", "value"),
    [
        ("$.d.e", (), None),
        ("$.d.e", ("WITH CONDITIONAL WRAPPER",), '["x"]'),
        ("$.d", ("WITH CONDITIONAL WRAPPER",), '[{"e":"x","f":[]}]'),
        ("$.d.f", ("WITH CONDITIONAL WRAPPER",), "[]"),
        ("$.d.f", ("WITH UNCONDITIONAL WRAPPER",), "[[]]"),
        ("$.x", ("EMPTY ARRAY ON ERROR", "EMPTY OBJECT ON EMPTY"), "[]"),
        ("lax $.x", ("EMPTY ARRAY ON ERROR", "EMPTY OBJECT ON EMPTY"), "{}"),
        ("lax $.d.e", ("EMPTY OBJECT ON EMPTY",), "{}"),
    ],
)
def test_wrappers(path: str, options: tuple[str, ...], value: str | None) -> None:
    assert JSON.call("JSON_QUERY", documents(DOCUMENT, None), path, options=options) == [value, None]


def test_a_part_as_an_array_of_texts() -> None:
    column = documents('{"a":[1,"x",null,{"b":2.50}]}', None, '{"a":{}}')
    assert JSON.call("JSON_QUERY", column, "$.a", returns=TEXTS) == [["1", "x", None, '{"b":2.50}'], None, None]
    empty = JSON.call("JSON_QUERY", column, "$.a", options=("EMPTY ARRAY ON ERROR",), returns=TEXTS)
    assert empty[1:] == [None, []]
    with pytest.raises(TerminalError, match="JSON_QUERY of a document with an error"):
        JSON.call("JSON_QUERY", column, "$.a", options=("ERROR ON ERROR",), returns=TEXTS)


def test_whether_something_is_there() -> None:
    column = documents(DOCUMENT, "{}", "x", None, "null")
    assert JSON.call("JSON_EXISTS", column, "$.g") == [True, False, False, None, False]
    assert JSON.call("JSON_EXISTS", column, "$.g", options=("UNKNOWN ON ERROR",)) == [True, None, None, None, None]
    assert JSON.call("JSON_EXISTS", column, "$.g", options=("TRUE ON ERROR",)) == [True, True, True, None, True]
    assert JSON.call("JSON_EXISTS", column, "lax $.g", options=("TRUE ON ERROR",)) == [True, False, False, None, False]
    with pytest.raises(TerminalError, match="JSON_EXISTS"):
        JSON.call("JSON_EXISTS", column, "$.g", options=("ERROR ON ERROR",))


@pytest.mark.parametrize(
    ("text", "is_json"),
    [("1 x", True), ('{"a":1} x', True), ("1x", False), ("", False), ("null", True), ("NaN", False), ("01", False),
     ("[1,]", False), ("'a'", False), (" \n{}", True)],
)  # fmt: skip
def test_what_is_json(text: str, is_json: bool) -> None:
    assert JSON.call("IS_JSON", documents(text, None)) == [is_json, False]


def test_values_of_every_type() -> None:
    stamps = [datetime(2024, 5, 1, 12, 34, 50, 700_000), datetime(2024, 5, 1), None]
    kinds = {
        "instants": pa.array([each and each.replace(tzinfo=UTC) for each in stamps], pa.timestamp("us", "UTC")),
        "maps": pa.array([[("z", 1), ("a", None)], [], None], pa.map_(pa.string(), pa.int32())),
        "numbers": pa.array([1.5, 1e10, None]),
        "rows": pa.array([{"b": [1, None], "a": Decimal("1.50")}, {"b": None, "a": None}, None],
                         pa.struct([("b", pa.list_(pa.int32())), ("a", pa.decimal128(5, 2))])),
        "stamps": pa.array(stamps, pa.timestamp("us")),
        "bytes": pa.array([b"Test", b"", None]),
    }  # fmt: skip
    expected = {
        "instants": ['"2024-05-01T12:34:50.7Z"', '"2024-05-01T00:00:00Z"'], "maps": ['{"a":null,"z":1}', "{}"],
        "numbers": ["1.5", "1.0E+10"], "rows": ['{"a":1.50,"b":[1,null]}', '{"a":null,"b":null}'],
        "stamps": ['"2024-05-01T12:34:50.7"', '"2024-05-01T00:00:00"'], "bytes": ['"VGVzdA=="', '""'],
    }  # fmt: skip
    for name, column in kinds.items():
        assert JSON.call("JSON_STRING", column) == [*expected[name], None], name
    objects = JSON.call("JSON_OBJECT", *(each for item in kinds.items() for each in item))
    assert objects[2] == "{" + ",".join(f'"{name}":null' for name in sorted(kinds)) + "}"
    arrays = JSON.call("JSON_ARRAY", *kinds.values(), options=("ABSENT ON NULL",))
    assert arrays[2] == "[]"
    assert arrays[1] == "[" + ",".join(expected[name][1] for name in kinds) + "]"


def test_keys_are_written_in_order_and_once() -> None:
    assert (
        JSON.call("JSON_OBJECT", "b", 1, "a", "x", "b", '{"n":1}', options=("RAW 5",)) == ['{"a":"x","b":{"n":1}}'] * 3
    )
    assert JSON.call("JSON_OBJECT") == ["{}"] * 3
    assert JSON.call("JSON_ARRAY") == ["[]"] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (100.0, "100.0"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (1.5e10, "1.5E10"), (1e-3, "0.001"),
     (1.25e-4, "1.25E-4"), (-0.0, "-0.0"), (float("inf"), "Infinity"), (1e300, "1.0E300"), (123.456, "123.456")],
)  # fmt: skip
def test_java_writes_numbers_so(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize("path", ["$.a[", "$.a[*", "$.a[?(@.b)]", "$.a.length()", "$a", "$.a['b", "$[1.5]"])
def test_paths_that_cannot_be_read_are_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="is no JSON path"):
        JSON.type_of("JSON_VALUE", DOCUMENT, path)


def test_what_json_does_not_do_is_refused() -> None:
    with pytest.raises(DefinitionError, match="a JSON path that is no literal"):
        JSON.type_of("JSON_QUERY", DOCUMENT, documents("$"))
    with pytest.raises(DefinitionError, match="a key that is no literal"):
        JSON.type_of("JSON_OBJECT", documents("a"), 1)
    with pytest.raises(DefinitionError, match="DATE has no JSON text"):
        JSON.type_of("JSON_ARRAY", pa.array([[date(2024, 1, 1)]]))
    with pytest.raises(DefinitionError, match="JSON_VALUE does not return BIGINT"):
        check_returning("JSON_VALUE", SqlType("BIGINT"))
    with pytest.raises(DefinitionError, match="JSON_QUERY does not return ARRAY<INT>"):
        check_returning("JSON_QUERY", SqlType("ARRAY", of=(INT,)))
    check_returning("JSON_VALUE", DOUBLE)
    with pytest.raises(TerminalError, match="JSON of a text that is none"):
        JSON.call("JSON", documents("{"))
