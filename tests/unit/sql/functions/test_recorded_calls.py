"""Values that Flink 2.3.0 gave for the calls of the recorded scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.sql.functions import collections, patterns, texts, time_fields, times
from poundlock.sql.functions import json as json_functions
from poundlock.sql.types import SqlType
from support.sql_functions import Functions

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[3] / "conformance/data/sql.json").read_text(encoding="utf-8"))[
        "cases"
    ]
}
MODULES = (texts, patterns, json_functions, times, time_fields, collections)
FUNCTIONS = [function for module in MODULES for function in module.FUNCTIONS]
INT, DATE, TIMESTAMP, LTZ = SqlType("INT"), SqlType("DATE"), SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (3,))
TYPES: Mapping[str, pa.DataType] = {
    "id": pa.int32(), "s": pa.string(), "u": pa.string(), "url": pa.string(), "j": pa.string(), "txt": pa.string(),
    "t": pa.timestamp("us"), "ms": pa.int64(), "sec": pa.int64(), "d": pa.date32(), "a": pa.int32(), "ok": pa.bool_(),
    "x": pa.decimal128(8, 3), "xs": pa.list_(pa.int32()), "n": pa.int32(),
}  # fmt: skip


def column(case: str, name: str) -> pa.Array:
    """Return a column of the only table of a case."""
    rows = CASES[case]["tables"][0]["rows"]
    return pa.array([read(row[name], TYPES[name]) for row in rows], TYPES[name])


def read(value: Any, kind: pa.DataType) -> Any:
    if value is None or kind in (pa.string(), pa.int32(), pa.int64(), pa.bool_()) or pa.types.is_list(kind):
        return value
    if pa.types.is_decimal(kind):
        return Decimal(str(value)).quantize(Decimal("0.001"))
    return date.fromisoformat(value) if kind == pa.date32() else datetime.fromisoformat(value)


def shown(value: Any) -> Any:
    """Return a value as the cases write it."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


class Call:
    """A call: texts that begin with a colon are columns."""

    def __init__(
        self, name: str, *arguments: object, options: tuple[str, ...] = (), returns: SqlType | None = None
    ) -> None:
        self.name, self.arguments, self.options, self.returns = name, arguments, options, returns


def unit(name: str, word: str, *arguments: object, returns: SqlType | None = None) -> Call:
    return Call(name, *arguments, options=(word,), returns=returns)


STRINGS, NULLS, REGEX = "scalar.string_functions", "scalar.nulls", "scalar.regex"
DATES, TIMES, ZONE = "scalar.date_functions", "scalar.time_functions", "settings.time_zone"
JSON, BUILD, ARRAYS = "scalar.json", "scalar.json_build", "scalar.array_map_functions"
DEFAULTS = ("DEFAULT ON EMPTY", "DEFAULT ON ERROR")
MARCH, MARCH_30 = datetime(2024, 3, 1), datetime(2024, 3, 1, 0, 0, 30)
CALLS: Mapping[str, Mapping[str, Call]] = {
    STRINGS: {
        "up": Call("UPPER", ":s"), "lo": Call("LOWER", ":s"), "tr": Call("TRIM", ":s"), "n": Call("CHAR_LENGTH", ":s"),
        "sub4": Call("SUBSTRING", ":s", 2, 4), "tail3": Call("SUBSTRING", ":s", -3), "rep": Call("REPLACE", ":s", "l", "L"),
        "second_": Call("SPLIT_INDEX", ":s", ",", 1), "none_": Call("SPLIT_INDEX", ":s", ",", 9),
        "cw": Call("CONCAT_WS", "|", ":s", ":u", "end"), "cc": Call("CONCAT", ":s", ":u"), "lp": Call("LPAD", ":s", 5, "*"),
        "ic": Call("INITCAP", ":s"), "rv": Call("REVERSE", ":s"), "l3": Call("LEFT", ":s", 3), "r3": Call("RIGHT", ":s", 3),
        "po": Call("POSITION", "o", ":s"),
    },
    NULLS: {
        "cc": Call("CONCAT", ":s", None), "ws": Call("CONCAT_WS", None, ":s", "x"), "ws2": Call("CONCAT_WS", "-", None, ":s"),
        "n": Call("CHAR_LENGTH", ":s"),
    },
    REGEX: {
        "ch": Call("REGEXP_EXTRACT", ":u", "(&|^)channel_id=([^&]*)", 2), "num": Call("REGEXP_EXTRACT", ":u", "[0-9]+"),
        "opt": Call("REGEXP_EXTRACT", ":u", "x(q)?", 1), "slug": Call("REGEXP_REPLACE", ":u", "[^a-z]+", "-"),
        "isurl": Call("REGEXP", ":u", "^https?://"),
    },
    DATES: {
        "dt": Call("DATE_FORMAT", ":t", "yyyyMMdd"), "full_": Call("DATE_FORMAT", ":t", "yyyy-MM-dd HH:mm:ss.SSS"),
        "lt": Call("TO_TIMESTAMP_LTZ", ":ms", 3), "lt0": Call("TO_TIMESTAMP_LTZ", ":sec", 0),
        "tt": Call("TO_TIMESTAMP", ":txt"), "ttf": Call("TO_TIMESTAMP", ":txt", "dd/MM/yyyy HH:mm"),
        "fh": unit("FLOOR_TO", "HOUR", ":t"), "fd": unit("FLOOR_TO", "DAY", ":t"), "cm": unit("CEIL_TO", "MINUTE", ":t"),
        "yy": unit("EXTRACT", "YEAR", ":t"), "mo": unit("EXTRACT", "MONTH", ":t"), "dd": unit("EXTRACT", "DAY", ":t"),
        "hh": Call("HOUR", ":t"), "mi": Call("MINUTE", ":t"), "ss": Call("SECOND", ":t"), "dow": Call("DAYOFWEEK", ":t"),
        "dif": unit("TIMESTAMPDIFF", "DAY", ":t", MARCH),
    },
    TIMES: {
        "am": unit("TIMESTAMPADD", "MONTH", 1, ":t"), "sm": unit("TIMESTAMPADD", "SECOND", -1, ":t"),
        "wd": unit("TIMESTAMPADD", "WEEK", 1, ":d"), "q": unit("EXTRACT", "QUARTER", ":t"),
        "w": unit("EXTRACT", "WEEK", ":t"), "doy": unit("EXTRACT", "DOY", ":t"), "dow": unit("EXTRACT", "DOW", ":t"),
        "isodow": unit("EXTRACT", "ISODOW", ":t"), "iy": unit("EXTRACT", "ISOYEAR", ":t"),
        "ms_": unit("EXTRACT", "MILLISECOND", ":t"), "hh": unit("EXTRACT", "HOUR", ":t"), "yd": Call("YEAR", ":d"),
        "fm": unit("FLOOR_TO", "MINUTE", ":t"), "cd": unit("CEIL_TO", "DAY", ":t"), "fdm": unit("FLOOR_TO", "MONTH", ":d"),
        "mi": unit("TIMESTAMPDIFF", "MINUTE", ":t", MARCH_30),
    },
    ZONE: {
        "lt": Call("TO_TIMESTAMP_LTZ", ":ms", 3), "fu": Call("FROM_UNIXTIME", ":sec"),
        "ut": Call("UNIX_TIMESTAMP", ":txt"),
    },
    JSON: {
        "name": Call("JSON_VALUE", ":j", "$.user.name"), "age": Call("JSON_VALUE", ":j", "$.user.age", returns=INT),
        "age2": Call("JSON_VALUE", ":j", "$.user.age", -1, -2, options=DEFAULTS, returns=INT),
        "obj": Call("JSON_VALUE", ":j", "$.user"), "ok": Call("JSON_VALUE", ":j", "$.ok"),
        "price": Call("JSON_VALUE", ":j", "$.price"), "nil": Call("JSON_VALUE", ":j", "$.nil"),
        "tag1": Call("JSON_VALUE", ":j", "$.user.tags[1]"), "q": Call("JSON_QUERY", ":j", "$.user"),
        "tags": Call("JSON_QUERY", ":j", "$.user.tags"), "ex": Call("JSON_EXISTS", ":j", "$.user.age"),
        "isj": Call("IS_JSON", ":j"), "iso": unit("IS_JSON", "OBJECT", ":j"),
    },
    BUILD: {
        "o": Call("JSON_OBJECT", "a", ":a", "s", ":s"), "ar": Call("JSON_ARRAY", ":a", ":s", ":ok"),
        "oa": Call("JSON_OBJECT", "a", ":a", "x", ":x", options=("ABSENT ON NULL",)),
        "an": Call("JSON_ARRAY", ":a", ":s", options=("NULL ON NULL",)), "js": Call("JSON_STRING", ":s"),
        "nest": Call("JSON_OBJECT", "in", '[1,"two"]', options=("RAW 1",)), "jb": Call("JSON_STRING", ":ok"),
    },
    ARRAYS: {
        "c2": Call("ARRAY_CONTAINS", ":xs", 2), "ap": Call("ARRAY_APPEND", ":xs", 9), "pp": Call("ARRAY_PREPEND", ":xs", 0),
        "un": Call("ARRAY_UNION", ":xs", [1, 8]), "ex": Call("ARRAY_EXCEPT", ":xs", [1]),
        "ints": Call("ARRAY_INTERSECT", ":xs", [5, 3]), "mi": Call("ARRAY_MIN", ":xs"), "so": Call("ARRAY_SORT", ":xs", False),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case, calls in CALLS.items() for name in calls], ids=lambda part: str(part)
)
def test_a_call_gives_what_flink_gave(case: str, name: str) -> None:
    call, expected = CALLS[case][name], CASES[case]["expected"]
    zone = "Asia/Shanghai" if case == ZONE else "UTC"
    arguments = [
        column(case, each[1:]) if isinstance(each, str) and each.startswith(":") else each for each in call.arguments
    ]
    functions = Functions(FUNCTIONS, zone=zone)
    ids = [row["id"] for row in CASES[case]["tables"][0]["rows"]]
    values = functions.call(call.name, *arguments, options=call.options, returns=call.returns, rows=len(ids))
    named = [each["name"] for each in expected["columns"]].index(name)
    recorded = {row[0]: row[named] for row in expected["rows"]}
    assert {each: shown(value) for each, value in zip(ids, values, strict=True) if each in recorded} == recorded
    made = str(call.returns or functions.type_of(call.name, *arguments))
    assert made.replace("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE") == expected["columns"][named]["type"]


def test_what_the_session_zone_changes_of_instants() -> None:
    functions = Functions(FUNCTIONS, zone="Asia/Shanghai")
    instants = pa.array(functions.call("TO_TIMESTAMP_LTZ", column(ZONE, "ms"), 3), pa.timestamp("us", "UTC"))
    recorded = {row[0]: dict(zip([each["name"] for each in CASES[ZONE]["expected"]["columns"]], row, strict=True))
                for row in CASES[ZONE]["expected"]["rows"]}  # fmt: skip
    ids = column(ZONE, "id").to_pylist()
    made = {
        "dt": functions.call("DATE_FORMAT", instants, "yyyyMMdd"),
        "fd": functions.call("FLOOR_TO", instants, options=("DAY",)),
        "h": functions.call("HOUR", instants),
    }
    for name, values in made.items():
        of_rows = {row: shown(value) for row, value in zip(ids, values, strict=True) if row in recorded}
        assert of_rows == {row: values[name] for row, values in recorded.items()}


def test_maps_as_they_were_recorded() -> None:
    functions = Functions(FUNCTIONS)
    ids = column(ARRAYS, "id")
    keys = pa.array([["a", "b"]] * len(ids))
    values = pa.array([[each, 2] for each in ids.to_pylist()], pa.list_(pa.int32()))
    names = [each["name"] for each in CASES[ARRAYS]["expected"]["columns"]]
    maps = functions.call("MAP_FROM_ARRAYS", keys, values)
    single = pa.array([[("k", each)] for each in ids.to_pylist()], pa.map_(pa.string(), pa.int32()))
    made = {
        "mf": list(map(dict, maps)),
        "mk": functions.call("MAP_KEYS", single),
        "el": functions.call("ELEMENT", pa.array([[each] for each in ids.to_pylist()], pa.list_(pa.int32()))),
    }
    for row in CASES[ARRAYS]["expected"]["rows"]:
        place = ids.to_pylist().index(row[0])
        assert {name: each[place] for name, each in made.items()} == {name: row[names.index(name)] for name in made}
