"""Rolling aggregates against a model, one record out for each that comes in, or the last of each key at the end."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError, FileSource, Job
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.testing import ProcessHarness
from support.examples import examples

quick = examples(80)
KINDS = ("sum", "min", "max", "min_by", "max_by")


def keyed() -> Any:
    return Job("a").from_source(FileSource("/in")).key_by("k")


def stream(kind: str, **options: Any) -> Any:
    return getattr(keyed(), kind)("n", **options)


def model(kind: str, first: bool, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a key's records so far come to, by looking at all of them."""
    known = [r["n"] for r in records if r["n"] is not None]
    if not known:
        return records[-1] if kind.endswith("_by") and not first else records[0]
    extreme = min(known) if kind.startswith("min") else max(known)
    if kind.endswith("_by"):
        best = [r for r in records if r["n"] == extreme]
        return best[0] if first else best[-1]
    return {**records[0], "n": sum(known) if kind == "sum" else extreme}


rows = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-5, 5))), max_size=30).map(
    lambda pairs: [{"k": k, "n": n, "at": at} for at, (k, n) in enumerate(pairs)]
)


@quick
@given(st.sampled_from(KINDS), st.booleans(), rows, st.sets(st.integers(0, 30)))
def test_one_record_out_for_each_in(kind: str, first: bool, records: list[Any], restores: set[int]) -> None:
    options = {"first": first} if kind.endswith("_by") else {}
    h = ProcessHarness(stream(kind, **options), key_groups=4)
    ended = ProcessHarness(stream(kind, **options), key_groups=4, bounded=True)
    ended.process_elements((record, record["at"]) for record in records)
    so_far: dict[str, list[Any]] = {}
    for at, record in enumerate(records):
        if at in restores:
            h.rescale(at % 3 + 1)
        [out] = h.process_element(record, record["at"])
        so_far.setdefault(record["k"], []).append(record)
        assert (out.key, out.timestamp) == (record["k"], record["at"])
        assert out.value == model(kind, first, so_far[record["k"]])
    assert h.end_of_input() == []
    if restores:
        ended.rescale(2)
    assert ended.output == []
    last = {e.key: e.value for e in ended.end_of_input()}
    assert last == {key: model(kind, first, some) for key, some in so_far.items()}
    assert len(ended.output) == len(last)
    assert (ended.state(), ended.timers()) == ({}, [])


def test_what_comes_at_the_end_has_the_last_time_there_is_and_comes_in_chunks() -> None:
    operator, group = RollingOperator(rolling_fold("sum", "n"), bounded=True, chunk_rows=10), KeyGroup(0)
    keys = list(range(35))
    assert list(operator.process(group, GroupBatch(keys, [{"n": key} for key in keys]))) == []
    assert list(operator.advance_processing_time(group, 5)) == list(operator.advance_watermark(group, MAX - 1)) == []
    chunks = list(operator.advance_watermark(group, MAX))
    assert [len(chunk) for chunk in chunks] == [10, 10, 10, 5]
    assert {time for chunk in chunks for time in chunk.timestamps} == {MAX}
    assert sum(row["n"] for chunk in chunks for row in chunk.values) == sum(keys)


@pytest.mark.parametrize(
    ("kind", "values", "results"),
    [
        ("min", [nan, 1.0, nan, -inf], [nan, 1.0, 1.0, -inf]),
        ("max", [1.0, nan, inf], [1.0, nan, nan]),
        ("min_by", [nan, 2.0, nan], [nan, 2.0, 2.0]),
        ("max_by", [2.0, nan, 3.0], [2.0, nan, nan]),
        ("sum", [Decimal("99999999999999999999999999999.99"), Decimal("0.01")], None),
        ("min", ["b", "a", "c"], ["b", "a", "a"]),
    ],
)
def test_other_values(kind: str, values: list[Any], results: list[Any] | None) -> None:
    h = ProcessHarness(stream(kind))
    found = [h.process_element({"k": 1, "n": value})[0].value["n"] for value in values]
    assert repr(found) == repr(results or [values[0], Decimal("100000000000000000000000000000.00")])


def test_a_reduce_that_changes_what_it_is_given_changes_nothing_that_came_out() -> None:
    def into_first(a: Any, b: Any) -> Any:
        a["all"] = [*a["all"], *b["all"]]
        return a

    h = ProcessHarness(keyed().reduce(into_first))
    h.process_elements([({"k": 1, "all": [n]}, None) for n in range(3)])
    assert [e.value["all"] for e in h.output] == [[0], [0, 1], [0, 1, 2]]


def test_there_is_no_other_aggregate() -> None:
    with pytest.raises(DefinitionError, match="'avg' of 'n' is no rolling aggregate"):
        rolling_fold("avg", "n")
