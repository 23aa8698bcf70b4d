"""Numbers that are read by words are those that JSON's own reader gives, to the last bit, or none at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.json.numbers import number_column

_DIGITS = st.integers(0, 10**9)
_PLAIN = st.one_of(
    st.integers(-(10**15), 10**15).filter(bool).map(str),
    st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), _DIGITS, st.integers(0, 99999)),
    st.builds("{}.{:03d}".format, st.integers(10**9, 10**10 - 1), st.integers(0, 999)),
    st.sampled_from(["0", "0.5", "-0.0", "0.000000000001", "99999999.25", "999999999999999", "-12345678.5"]),
)
_STRANGE = st.sampled_from(
    ["-0", "00", "01", "-01", ".5", "-.5", "5.", "-", "", "1.2.3", "1e5", "--1", "1-", "+1", "1/2", "1:2", "null", "é"]
)


def _column(texts: list[str], kind: pa.DataType, *, before: str, between: str, behind: str) -> pa.Array | None:
    data, starts, ends = bytearray(before.encode()), [], []
    for text in texts:
        starts.append(len(data))
        data += text.encode()
        ends.append(len(data))
        data += between.encode()
    data = data[: ends[-1]] + behind.encode()
    data += b" " * max(8 - len(data), 0)
    return number_column(np.frombuffer(bytes(data), np.uint8), np.array(starts), np.array(ends), kind)


_AROUND: Any = {
    "before": st.sampled_from(["", "{", '{"timestamp":', "12345678."]),
    "between": st.sampled_from([",", "}\n", ',"value":']),
    "behind": st.sampled_from(["", "}", "}\0........"]),
}


@given(texts=st.lists(_PLAIN, min_size=1, max_size=40), kind=st.sampled_from([pa.float64(), pa.int64(), pa.int16()]), **_AROUND)  # fmt: skip
def test_plain_numbers_are_those_of_json(texts: list[str], kind: pa.DataType, **around: str) -> None:
    column = _column(texts, kind, **around)
    digits = [len(text.strip("-").replace(".", "")) for text in texts]
    points, wanted = ["." in text for text in texts], [json.loads(text) for text in texts]
    if kind == pa.float64():
        fits = max(len(text.strip("-")) for text in texts) <= 16 and max(digits) <= 15
    else:
        top = 1 << (kind.bit_width - 1)
        fits = not any(points) and all(-top <= number < top for number in wanted)
    assert (column is not None) == fits
    if column is not None:
        number = float.hex if kind == pa.float64() else int
        assert [number(value) for value in column.to_pylist()] == [  # type: ignore[operator]
            number(float(value) if kind == pa.float64() else value)
            for value in wanted  # type: ignore[operator]
        ]


@given(before=st.lists(_PLAIN, max_size=9), strange=_STRANGE, behind=st.lists(_PLAIN, max_size=9))
def test_one_that_is_not_plain_leaves_all_to_others(before: list[str], strange: str, behind: list[str]) -> None:
    for kind in (pa.float64(), pa.int64()):
        assert _column([*before, strange, *behind], kind, before="{", between=",", behind="}") is None


@pytest.mark.parametrize("length", range(1, 17))
def test_numbers_of_one_length_with_the_point_at_each_place(length: int) -> None:
    digits = "1234567890123456"[:length]
    for point in range(1, length - 1):
        text = digits[:point] + "." + digits[point + 1 :]
        column = _column([text] * 3, pa.float64(), before="", between=",", behind="")
        assert column is not None
        assert column.to_pylist() == [float(text)] * 3


def test_other_types_are_left_to_others() -> None:
    assert _column(["1"], pa.string(), before="", between=",", behind="") is None
    assert _column(["1"], pa.float32(), before="", between=",", behind="") is None
