"""Aggregates by columns against those by single values, over values of every type, with and without nulls, in one part and in several."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import indices_of, joined
from poundlock.formats.convert import python_values
from poundlock.operators.columns.groups import grouped
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.windows.aggregates import BY, KINDS, SqlAggregate, SqlAggregates
from poundlock.plan.sql_text import result_type
from poundlock.state.hashing import key_hashes
from support.examples import examples

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
"""The NaN of x86, which has a sign; Python's own has none."""
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-1000, 1000),
    pa.int32(): st.integers(-1000, 1000),
    pa.float64(): st.sampled_from([0.25, -3.0, 17.5, math.nan, OTHER_NAN, math.inf, 0.0, -0.0]),
    pa.string(): st.text("abé", max_size=3),
    pa.binary(): st.binary(max_size=2),
    pa.decimal128(10, 2): st.decimals(-1000, 1000, places=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(dt.date(2000, 1, 1), dt.date(2030, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(
        dt.datetime(2000, 1, 1), dt.datetime(2030, 1, 1), timezones=st.just(dt.UTC)
    ),
    pa.list_(pa.float64()): st.lists(st.sampled_from([None, 1.0, -1.0, 0.0, -0.0, math.nan, OTHER_NAN]), max_size=3),
    pa.struct([("a", pa.int64()), ("b c by d", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 2),
            "b c by d": st.none() | st.lists(st.sampled_from([None, "x", "y"]), max_size=2),
        }
    ),
    pa.list_(pa.struct([("d", pa.date32()), ("n", pa.decimal128(4, 1))])): st.lists(
        st.none()
        | st.fixed_dictionaries({"d": st.none() | st.just(dt.date(2020, 1, 1)), "n": st.decimals(0, 1, places=1)}),
        max_size=2,
    ),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
}


def every(kind: pa.DataType) -> list[SqlAggregate]:
    """Return all aggregates that there are of values of a type."""
    found = [SqlAggregate(kind="count")]
    for name in KINDS:
        if name in BY:
            continue
        for ignore_nulls in (False, True) if name in ("first", "last") else (False,):
            aggregate = SqlAggregate(kind=name, column=0, ignore_nulls=ignore_nulls)  # type: ignore[arg-type]
            with suppress(DefinitionError):
                result_type(aggregate, kind, "windows")
                found.append(aggregate)
    return found


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_results_are_those_of_single_values(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | TYPES[kind]), min_size=1, max_size=40))
    cuts = data.draw(st.lists(st.integers(1, len(rows)), max_size=3))
    aggregates = every(kind)
    kinds = [result_type(each, None if each.column is None else kind, "windows") for each in aggregates]
    values = python_values(pa.array([value for _, value in rows], kind))  # structs with their fields in order
    one: dict[Any, Any] = {}
    single = SqlAggregates(aggregates)
    single.add_batch(one, [key for key, _ in rows], [(value,) for value in values])
    columns = ColumnAggregates(tuple(aggregates), (kind,))
    assert columns.of(columns.described).types == columns.types
    edges = sorted({0, *cuts, len(rows)})
    parts = [added(columns, kind, rows[a:b]) for a, b in pairwise(edges)]
    keys = joined([keys for keys, _ in parts])
    held = [joined(list(column)) for column in zip(*(held for _, held in parts), strict=True)]
    assert [column.type for column in held] == columns.types
    if data.draw(st.booleans()):
        held = ColumnAggregates.of(columns.described).decode(columns.encode(held))
    groups = grouped(key_hashes([keys]), keys)
    results = columns.results(columns.merge(held, groups), kinds)
    names = keys.take(indices_of(groups.firsts)).to_pylist()
    for place, (aggregate, of_kind) in enumerate(zip(aggregates, kinds, strict=True)):
        found = dict(zip(names, map(comparable, python_values(results[place])), strict=True))
        wanted = {key: comparable(scaled(single.result(held)[place], of_kind)) for key, held in one.items()}
        assert results[place].type == of_kind
        assert found == wanted, aggregate


@examples(40)
@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_they_go_by_arrival_in_whatever_order_parts_are_merged(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.tuples(st.sampled_from("ab"), st.none() | TYPES[kind], st.none() | st.integers(0, 2)), min_size=1)
    )
    came = data.draw(st.permutations(range(7, 7 + len(rows))))
    aggregates = [
        *(SqlAggregate(kind="first", column=0, ignore_nulls=flag) for flag in (False, True)),
        *(SqlAggregate(kind="last", column=0, ignore_nulls=flag) for flag in (False, True)),
        SqlAggregate(kind="collect_list", column=0),
        SqlAggregate(kind="min_by", column=0, by=1),
        SqlAggregate(kind="count"),
        SqlAggregate(kind="max_by", column=0, by=1),
    ]
    kinds = [pa.list_(kind) if each.kind == "collect_list" else kind for each in aggregates]
    kinds[-2] = pa.int64()
    one: dict[Any, Any] = {}
    single = SqlAggregates(aggregates)
    in_order = [rows[at] for at in np.argsort(came).tolist()]
    single.add_batch(one, [key for key, *_ in in_order], [tuple(values) for _, *values in in_order])
    columns = ColumnAggregates(tuple(aggregates), (kind, pa.int64()), by_arrival=True)
    stored = ColumnAggregates.of(columns.described)
    assert (stored.types, stored.places, stored.described) == (columns.types, columns.places, columns.described)
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=5))})
    parts = []
    for first, stop in pairwise(cuts):
        keys, *arguments, places = (
            pa.array(values, of)
            for values, of in zip(
                [*zip(*rows[first:stop], strict=True), came[first:stop]],
                [pa.string(), kind, pa.int64(), pa.int64()],
                strict=True,
            )
        )
        groups = grouped(key_hashes([keys]), keys)
        parts.append((keys.take(indices_of(groups.firsts)), columns.partial([*arguments, places], groups)))
    split = data.draw(st.integers(1, len(parts)))
    whole = merged_of(
        stored, [part for some in (parts[:split], parts[split:]) if some for part in [merged_of(stored, some)]]
    )
    found = [python_values(column) for column in columns.results(whole[1], kinds)]
    for place, key in enumerate(whole[0].to_pylist()):
        wanted = [comparable(value) for value in single.result(one[key])]
        assert [comparable(values[place]) for values in found] == wanted


def merged_of(
    columns: ColumnAggregates, parts: Sequence[tuple[pa.Array, list[pa.Array]]]
) -> tuple[pa.Array, list[pa.Array]]:
    """Return parts as one, in the form in which state keeps them."""
    keys = joined([keys for keys, _ in parts])
    held = [joined(list(column)) for column in zip(*(held for _, held in parts), strict=True)]
    groups = grouped(key_hashes([keys]), keys)
    merged = columns.decode(columns.encode(columns.merge(held, groups)))
    return keys.take(indices_of(groups.firsts)), merged


def added(
    columns: ColumnAggregates, kind: pa.DataType, rows: Sequence[tuple[str, Any]]
) -> tuple[pa.Array, list[pa.Array]]:
    keys, values = pa.array([key for key, _ in rows], pa.string()), pa.array([value for _, value in rows], kind)
    groups = grouped(key_hashes([keys]), keys)
    return keys.take(indices_of(groups.firsts)), columns.partial([values], groups)


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else pytest.approx(value)
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def scaled(value: Any, kind: pa.DataType) -> Any:
    whole = isinstance(value, Decimal) and pa.types.is_decimal(kind)
    return value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP) if whole else value


def test_a_sum_beyond_64_bits_is_refused_and_one_that_comes_back_is_not() -> None:
    columns = ColumnAggregates((SqlAggregate(kind="sum", column=0),), (pa.int64(),))
    groups = grouped(np.zeros(2, np.uint64), None)
    most = (1 << 63) - 1
    assert columns.partial([pa.array([most, -most])], groups)[0].to_pylist() == [0]
    assert columns.partial([pa.array([most, -(1 << 63)])], groups)[0].to_pylist() == [-1]
    with pytest.raises(TerminalError, match="does not fit its type, int64: a sum is beyond 64 bits\nNext: let the job"):
        columns.partial([pa.array([most, 1])], groups)


def test_a_sum_of_decimals_may_have_38_digits_and_no_more() -> None:
    kind = pa.decimal128(38, 2)
    columns = ColumnAggregates((SqlAggregate(kind="sum", column=0),), (kind,))
    groups = grouped(np.zeros(2, np.uint64), None)
    most = Decimal("9" * 36 + ".99")
    less = Decimal("9" * 36 + ".98")
    for one, other, total in (
        (most, most.copy_negate(), Decimal(0)),
        (less, Decimal("0.01"), most),
        (most.copy_negate(), Decimal(0), most.copy_negate()),
    ):
        assert columns.partial([pa.array([one, other], kind)], groups)[0].to_pylist() == [total]
    for large in (most, most.copy_negate()):
        with pytest.raises(TerminalError, match="a sum has more than 38 digits"):
            columns.partial([pa.array([large, large], kind)], groups)
