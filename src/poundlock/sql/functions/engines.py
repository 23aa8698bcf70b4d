"""Who computes each function: Arrow's own kernels, columns of ours, or Python, once for each different value.

A page of the documentation has this table, and tests compare it with the functions there are and with what they call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Engine = Literal["Arrow", "columns", "values", "Arrow or values", "columns or values"]
"""Arrow's kernels; numpy over whole columns; Python for each different value. Of two the first one where it can: texts of ASCII, a
pattern that is the same in all rows, a format of times that is known."""

_BY_ENGINE: Mapping[Engine, str] = {
    "Arrow": """
        ABS AND CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH COALESCE CONCAT ELT FLOOR GREATEST IF IFNULL LEAST LIKE NOT OR
        IS_ALPHA IS_DECIMAL IS_DIGIT REPEAT REVERSE ROW SIGN
    """,
    "columns": """
        ACOS ARRAY ARRAY_APPEND ARRAY_CONCAT ARRAY_CONTAINS ARRAY_DISTINCT ARRAY_EXCEPT ARRAY_INTERSECT ARRAY_JOIN ARRAY_MAX ARRAY_MIN
        ARRAY_POSITION ARRAY_PREPEND ARRAY_REMOVE ARRAY_REVERSE ARRAY_SLICE ARRAY_SORT ARRAY_UNION ASCII ASIN ATAN ATAN2 BIN CARDINALITY CEIL_TO
        CHR CONCAT_WS COS COSH COT CURRENT_DATE CURRENT_ROW_TIMESTAMP CURRENT_TIME CURRENT_TIMESTAMP CURRENT_WATERMARK DATEDIFF DATE_ADD DATE_SUB DAYOFMONTH
        DAYOFWEEK DAYOFYEAR DEGREES E ELEMENT ENDSWITH EXP EXTRACT FLOOR_TO HOUR INITCAP LEFT LN LOCALTIME LOCALTIMESTAMP LOG LOG10 LOG2
        MAP MAP_ENTRIES MAP_FROM_ARRAYS MAP_KEYS MAP_UNION MAP_VALUES MINUTE MOD MONTH NOW PI POWER PROCTIME QUARTER RADIANS RAND RAND_INTEGER RIGHT ROUND
        SECOND SIN SINH SQRT STARTSWITH SUBSTR SUBSTRING TAN TANH TIMESTAMPADD TIMESTAMPDIFF TRUNCATE UUID WEEK YEAR
    """,
    "values": """
        CONVERT_TZ DECODE ENCODE FROM_BASE64 HEX IS_JSON JSON JSON_EXISTS JSON_QUERY JSON_QUOTE JSON_UNQUOTE JSON_VALUE MD5 OVERLAY
        PARSE_URL PRINTF REGEXP_EXTRACT_ALL REGEXP_INSTR SHA1 SHA2 SHA224 SHA256 SHA384 SHA512 SIMILAR_TO SPLIT STR_TO_MAP TO_BASE64 TRANSLATE UNHEX
        URL_DECODE URL_ENCODE
    """,
    "Arrow or values": """
        BTRIM INSTR JSON_ARRAY JSON_OBJECT JSON_STRING LOCATE LOWER LPAD LTRIM POSITION REGEXP REGEXP_COUNT REGEXP_EXTRACT
        REGEXP_REPLACE REGEXP_SUBSTR REPLACE RPAD RTRIM SPLIT_INDEX TRIM UPPER
    """,
    "columns or values": "DATE_FORMAT FROM_UNIXTIME TO_DATE TO_TIMESTAMP TO_TIMESTAMP_LTZ UNIX_TIMESTAMP",
}
ENGINES: Mapping[str, Engine] = {name: engine for engine, names in _BY_ENGINE.items() for name in names.split()}
"""Who computes each function that is called by a word."""

WRITTEN: Mapping[str, str] = {
    "CEIL_TO": "CEIL(… TO …)", "FLOOR_TO": "FLOOR(… TO …)", "IS_JSON": "IS JSON", "SIMILAR_TO": "SIMILAR TO",
}  # fmt: skip
"""How a script writes those that it does not call by their names."""
NAMES = sorted(
    {*ENGINES, "CAST", "CURRENT_DATABASE", "NULLIF", "TRY_CAST", "TYPEOF"}
    - {"AND", "NOT", "OR", "LIKE", "ROW", *WRITTEN}
)
"""What a script calls by its name, aggregates apart."""
