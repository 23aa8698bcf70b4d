"""What the functions import while they are computed: pandas would cost every worker a second."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = """
    import sys
    from zoneinfo import ZoneInfo

    import numpy as np
    import pyarrow as pa

    from poundlock.formats.arrays import column_of, lists_of, texts_of, with_nulls
    from poundlock.sql.functions import collections, encodings, json, patterns, texts, time_fields, times
    from poundlock.sql.functions.function import Evaluation, Given
    from poundlock.sql.types import STRING, SqlType

    modules = (texts, encodings, patterns, json, times, time_fields, collections)
    functions = {each.name: each for module in modules for each in module.FUNCTIONS}
    zone = ZoneInfo("Asia/Shanghai")
    big = SqlType("BIGINT")


    def integers(values, kind=pa.int64()):
        return column_of(np.array(values, np.dtype(f"<i{kind.bit_width // 8}")), kind)


    def of(kind, *inner):
        return SqlType(kind, of=inner)


    text = with_nulls(texts_of(["a,b", "", 'é{"a":1}']), np.array([True, False, True]))
    same = lambda value: texts_of([value] * 3)
    one, stamp = integers([1, 2, 1]), integers([10**15, 5, 6], pa.timestamp("us"))
    instant = integers([10**15, 5, 6], pa.timestamp("us", "UTC"))
    array = lists_of(integers([1, 2, 3, 3]), np.array([2, 0, 2]))
    words = lists_of(texts_of(["a", "b", "c", "d"]), np.array([2, 0, 2]))
    mapping = pa.MapArray.from_arrays(integers([0, 1, 2, 2], pa.int32()), texts_of(["k", "z"]), integers([1, 2]))
    stamps = SqlType("TIMESTAMP", (3,))
    calls = [
        *((name, STRING, text) for name in ("UPPER", "TRIM", "INITCAP", "REVERSE", "MD5", "HEX", "URL_DECODE", "JSON_QUOTE")),
        ("SUBSTRING", STRING, text, one, one), ("LPAD", STRING, text, one, same("xy")), ("CONCAT_WS", STRING, same("-"), text, text),
        ("SPLIT_INDEX", STRING, text, same(","), one), ("SPLIT", of("ARRAY", STRING), text, same(",")),
        ("OVERLAY", STRING, text, text, one), ("TRANSLATE", STRING, text, same("a"), same("b")), ("ELT", STRING, one, text, text),
        ("STR_TO_MAP", of("MAP", STRING, STRING), text), ("UUID", STRING), ("UNHEX", SqlType("VARBINARY", (9,)), same("61")),
        ("REGEXP_EXTRACT", STRING, text, same("(a)"), one), ("REGEXP_REPLACE", STRING, text, same("a$"), same("b")),
        ("REGEXP_EXTRACT_ALL", of("ARRAY", STRING), text, same("(a)")), ("REGEXP", SqlType("BOOLEAN"), text, same("a")),
        ("JSON_VALUE", STRING, text, same("$.a")), ("JSON_EXISTS", SqlType("BOOLEAN"), text, same("$.a")),
        ("JSON_OBJECT", STRING, same("k"), text), ("JSON_ARRAY", STRING, text, one, stamp, array, mapping),
        ("DATE_FORMAT", STRING, instant, same("yyyyMMdd E")), ("TO_TIMESTAMP", stamps, text), ("FROM_UNIXTIME", STRING, one),
        ("TO_TIMESTAMP_LTZ", SqlType("TIMESTAMP_LTZ", (3,)), one), ("UNIX_TIMESTAMP", big, text), ("CURRENT_DATE", SqlType("DATE")),
        ("HOUR", big, instant), ("FLOOR_TO", SqlType("TIMESTAMP_LTZ", (3,)), instant), ("TIMESTAMPADD", stamps, one, stamp),
        *((name, of("ARRAY", big), array, array) for name in ("ARRAY_UNION", "ARRAY_EXCEPT", "ARRAY_CONCAT")),
        ("ARRAY_CONTAINS", SqlType("BOOLEAN"), array, one), ("ARRAY_SORT", of("ARRAY", big), array), ("ARRAY_MAX", big, array),
        ("ARRAY_APPEND", of("ARRAY", big), array, one), ("ARRAY_JOIN", STRING, words, same("-"), same("?")),
        ("MAP_FROM_ARRAYS", of("MAP", STRING, big), words, array), ("MAP_UNION", of("MAP", STRING, big), mapping, mapping),
        ("MAP_KEYS", of("ARRAY", STRING), mapping),
    ]
    units = ("FLOOR_TO", "TIMESTAMPADD")
    for name, returns, *columns in calls:
        made = functions[name].run(columns, Evaluation(3, zone, 10**15, returns, ("HOUR",) if name in units else ()))
        assert len(made) == 3, name
        assert made.type == returns.arrow, (name, made.type)
        assert "pandas" not in sys.modules, name
    print(len(calls))
"""


def test_no_function_imports_pandas() -> None:
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) > 40


def test_names_of_functions_are_given_once() -> None:
    from poundlock.sql.functions import collections, encodings, json, patterns, texts, time_fields, times

    modules = (texts, encodings, patterns, json, times, time_fields, collections)
    names = [each.name for module in modules for each in module.FUNCTIONS]
    assert len(names) == len(set(names))
    assert all(name == name.upper() for name in names)
