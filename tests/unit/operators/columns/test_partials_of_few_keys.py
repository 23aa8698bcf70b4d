"""Rows of few keys add up to the same, whether their keys are numbered first or looked at one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from poundlock.operators.columns.partials import SliceAggregation
from poundlock.operators.columns.rows import keys as keys_module
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.state import hashing
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows

ADDING = SliceAggregation(
    ("key",),
    "t",
    ("value",),
    ColumnAggregates(tuple(SqlAggregate(kind=kind, column=0) for kind in ("sum", "first", "max")), (pa.float64(),)),
    TumblingEventTimeWindows("10 s"),
    hashing.key_hashes,
)


@pytest.mark.parametrize("different", [1, 7, 3000])
def test_sums_are_the_same_by_number_and_by_key(monkeypatch: pytest.MonkeyPatch, different: int) -> None:
    random = np.random.default_rng(different)
    count = 1 << 15
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([f"key {number}" for number in random.integers(0, different, count).tolist()]),
            pa.array(random.integers(0, 50_000_000, count), pa.timestamp("us")),
            pa.array(random.random(count)),
        ],
        names=["key", "t", "value"],
    )
    times = ADDING.times(rows, 0)
    assert ADDING._key.numbered(rows) is not None
    by_number = ADDING.of(rows, times)
    monkeypatch.setattr(keys_module, "_LEAST_NUMBERED", count + 1)
    assert ADDING._key.numbered(rows) is None
    assert SentPartials.of(by_number).batch.equals(SentPartials.of(ADDING.of(rows, times)).batch)


def test_many_keys_nulls_and_numbers_are_not_numbered() -> None:
    count = 1 << 15
    texts = [str(number) for number in range(count)]
    for column in (pa.array(texts), pa.array([None, *texts[1:]]), pa.array(range(count))):
        assert ADDING._key.numbered(pa.RecordBatch.from_arrays([column], names=["key"])) is None
