"""PRINTF against java.util.Formatter: what String.format(Locale.US, …) of Java 17 gave, null where it refused the format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.printf import FUNCTIONS
from support.sql_functions import Functions

PRINTF = Functions(FUNCTIONS)
RECORDED: dict[str, list[tuple[int, str | None]]] = json.loads(
    (Path(__file__).parent / "data/java_formats.json").read_text(encoding="utf-8")
)
"""By format: the number of a value below, and what came of it."""
INT, LONG, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.string()
VALUES: list[tuple[Any, pa.DataType]] = [
    (1, INT), (-255, INT), (0, INT), (1234567, LONG), (-1, LONG), (-1, pa.int8()), (-2, pa.int16()), (3.14159, DOUBLE),
    (-0.0, DOUBLE), (0.0, DOUBLE), (1e10, DOUBLE), (123456.789, DOUBLE), (1e-5, DOUBLE), (0.0001, DOUBLE),
    (99999.95, DOUBLE), (2.5, DOUBLE), (0.125, DOUBLE), (1e300, DOUBLE), (5e-324, DOUBLE), (math.nan, DOUBLE),
    (math.inf, DOUBLE), (-math.inf, DOUBLE), (0.1, pa.float32()), (1.5e9, pa.float32()), ("abc", TEXT), ("", TEXT),
    ("ä€", TEXT), (True, pa.bool_()), (False, pa.bool_()), (None, INT), (65, INT), (9.995, DOUBLE), (999999.5, DOUBLE),
    (1000000.0, DOUBLE), (0.00009999995, DOUBLE),
]  # fmt: skip


@pytest.mark.parametrize("text", sorted(RECORDED))
def test_values_are_written_as_java_writes_them(text: str) -> None:
    for number, wanted in RECORDED[text]:
        value, kind = VALUES[number]
        assert PRINTF.call("PRINTF", text, pa.array([value], kind)) == [wanted], (value, kind)


def test_several_values_and_formats_of_each_row() -> None:
    texts = pa.array(["%s-%05.1f|%2$s", "%2$s%%", None, "%d"])
    numbers, points = pa.array([1, 2, 3, 4], INT), pa.array([2.25, None, 1.0, 1.0])
    assert PRINTF.call("PRINTF", texts, numbers, points) == ["1-002.3|2.25", "null%", None, "4"]
    assert set(PRINTF.call("PRINTF", "no values")) == {"no values"}


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(TerminalError, match="PRINTF with %h, which is not there"):
        PRINTF.call("PRINTF", "%h", 1)
    with pytest.raises(DefinitionError, match="PRINTF of DECIMAL"):
        PRINTF.call("PRINTF", "%s", pa.array([None], pa.decimal128(3, 1)))
    with pytest.raises(DefinitionError, match="PRINTF without a format"):
        PRINTF.call("PRINTF", 1)
