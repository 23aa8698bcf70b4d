"""Window joins and co-groups against all pairs of a key and window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import (
    CoGroupFunction,
    DefinitionError,
    EventTimeSessionWindows,
    FileSource,
    Job,
    JoinFunction,
    Side,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.builtin_triggers import CountTrigger
from poundlock.stream.windows.evictors import CountEvictor
from poundlock.testing import Element, ProcessHarness
from support.examples import examples

quick = examples(60)
BY_TS = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_millis(t)")
SCHEMA = "l int, r int"
GROUPED = "l array<int>, r array<int>"


def windows(assigner: WindowAssigner, kind: str = "join") -> Any:
    job = Job("a")
    left, right = (job.from_source(FileSource(f"/{n}")).assign_timestamps_and_watermarks(BY_TS) for n in "lr")
    return getattr(left, kind)(right).where("k").equal_to("id").window(assigner)


def pair(left: Any, right: Any) -> dict[str, Any]:
    return {"l": left["n"], "r": right["n"]}


def grouped(left: Any, right: Any) -> Iterator[Any]:
    yield {"l": [v["n"] for v in left], "r": [v["n"] for v in right]}


def left(n: int, time: int, key: str = "a") -> Element:
    return Element({"k": key, "n": n}, time, 0)


def right(n: int, time: int, key: str = "a") -> Element:
    return Element({"id": key, "n": n}, time, 1)


def test_pairs_that_are_selected_from_are_pairs_of_records() -> None:
    h = ProcessHarness(windows(TumblingEventTimeWindows("10 ms")).select("left.n", "right.n as m"))
    h.process_elements([left(1, 1), left(2, 9), right(3, 5), right(6, 30)])
    pairs = [({"k": "a", "n": n}, {"id": "a", "n": 3}) for n in (1, 2)]
    assert [(e.value, e.timestamp) for e in h.process_watermark(100)] == [(pair, 9) for pair in pairs]


def test_a_co_group_has_no_pairs_to_select_from() -> None:
    with pytest.raises(DefinitionError, match=r"select of a co_group.*\nNext: write a\.join\(b\)"):
        windows(TumblingEventTimeWindows("10 ms"), "co_group").select("left.n")


def test_pairs_of_one_key_and_window() -> None:
    h = ProcessHarness(windows(TumblingEventTimeWindows("10 ms")).apply(pair, schema=SCHEMA))
    h.process_elements([left(1, 1), left(2, 9), right(3, 5), left(4, 10), right(5, 11), right(6, 30), left(7, 2, "b")])
    h.rescale(2)
    found = h.process_watermark(19)
    assert [(e.key, e.value["l"], e.value["r"], e.timestamp) for e in found] == [
        ("a", 1, 3, 9),
        ("a", 2, 3, 9),
        ("a", 4, 5, 19),
    ]
    assert h.end_of_input() == []
    assert (h.state(), h.timers()) == ({}, [])


def test_a_co_group_also_has_sides_with_nothing() -> None:
    h = ProcessHarness(
        windows(TumblingEventTimeWindows("10 ms"), "co_group").apply(grouped, schema="l array<int>, r array<int>")
    )
    h.process_elements([left(1, 1), right(2, 12), left(3, 21), right(4, 21), left(5, 22)])
    assert [e.value for e in h.end_of_input()] == [{"l": [1], "r": []}, {"l": [], "r": [2]}, {"l": [3, 5], "r": [4]}]


def test_late_records_are_counted_and_lateness_fires_again() -> None:
    h = ProcessHarness(windows(TumblingEventTimeWindows("10 ms")).allowed_lateness("5 ms").apply(pair, schema=SCHEMA))
    h.process_elements([left(1, 1)])
    h.process_watermark(9)
    assert [e.value for e in h.process_elements([right(2, 2)])] == [{"l": 1, "r": 2}]
    h.process_watermark(14)
    h.process_elements([right(3, 2), left(4, 2)])
    assert (len(h.output), h.late_dropped) == (1, 2)


def test_triggers_and_evictors_see_side_and_record() -> None:
    join = windows(TumblingEventTimeWindows("10 ms")).trigger(CountTrigger(2)).evictor(CountEvictor(2))
    h = ProcessHarness(join.apply(pair, schema=SCHEMA))
    h.process_elements([left(1, 1)])
    assert [e.value for e in h.process_elements([right(2, 2)])] == [{"l": 1, "r": 2}]
    assert h.state()["contents"] == {("a", (0, 10)): [[1, [0, {"k": "a", "n": 1}]], [2, [1, {"id": "a", "n": 2}]]]}


class Named(JoinFunction):
    opened = False

    def open(self, context: Any) -> None:
        self.opened = True

    def join(self, left: Any, right: Any) -> Iterator[Any]:
        assert self.opened
        if left["n"] < right["n"]:
            yield pair(left, right)
            yield Side("twice", pair(left, right))


class Grouped(CoGroupFunction):
    def co_group(self, left: Any, right: Any) -> Any:
        return None if not right else grouped(left, right)


def test_functions_that_are_classes() -> None:
    h = ProcessHarness(
        windows(TumblingEventTimeWindows("10 ms")).apply(Named(), schema=SCHEMA, side_outputs={"twice": SCHEMA})
    )
    h.process_elements([left(1, 1), right(0, 2), right(2, 3)])
    h.end_of_input()
    assert [e.value for e in h.output] == [e.value for e in h.side_output("twice")] == [{"l": 1, "r": 2}]
    h.close()
    h = ProcessHarness(windows(TumblingEventTimeWindows("10 ms"), "co_group").apply(Grouped(), schema=GROUPED))
    h.process_elements([left(1, 1), right(0, 12)])
    assert [e.value for e in h.end_of_input()] == [{"l": [], "r": [0]}]


@pytest.mark.parametrize(
    ("give", "says"),
    [
        (lambda left, right: "ab", "returned str ab"),
        (lambda left, right: 5, "returned int 5"),
        (lambda left, right: [Side("other", {})], "side output 'other', which is not declared"),
    ],
)
def test_what_a_function_may_not_give(give: Any, says: str) -> None:
    h = ProcessHarness(windows(TumblingEventTimeWindows("10 ms")).apply(give, schema=SCHEMA))
    h.process_elements([left(1, 1), right(0, 2)])
    with pytest.raises(DefinitionError, match=says):
        h.end_of_input()


elements = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 40))


@quick
@given(st.lists(elements, max_size=20), st.sampled_from([(10, 10), (12, 5), (5, 8)]), st.sets(st.integers(0, 20)))
def test_joins_are_all_pairs_of_a_window(given: list[Any], sizes: tuple[int, int], restores: set[int]) -> None:
    size, slide = sizes
    assigner = SlidingEventTimeWindows(f"{size} ms", f"{slide} ms")
    h = ProcessHarness(windows(assigner).apply(pair, schema=SCHEMA), key_groups=4)
    for n, (key, side, time) in enumerate(given):
        if n in restores:
            h.rescale(n % 4 + 1)
        h.process_elements([right(n, time, key) if side else left(n, time, key)])
    h.end_of_input()
    expected = Counter(
        (a, b, w.end - 1)
        for a, (key, side, time) in enumerate(given)
        for b, (other_key, other_side, other_time) in enumerate(given)
        for w in assigner.windows_at(time)
        if (key, side, other_side) == (other_key, 0, 1) and w.start <= other_time < w.end
    )
    assert Counter((e.value["l"], e.value["r"], e.timestamp) for e in h.output) == expected


@quick
@given(st.lists(elements, max_size=20), st.integers(1, 9))
def test_sessions_of_both_sides_together(given: list[Any], gap: int) -> None:
    h = ProcessHarness(windows(EventTimeSessionWindows(f"{gap} ms"), "co_group").apply(grouped, schema=GROUPED))
    h.process_elements([(right if side else left)(n, time, key) for n, (key, side, time) in enumerate(given)])
    h.end_of_input()
    expected = Counter[Any]()
    for wanted in "ab":
        mine = sorted((time, n, side) for n, (key, side, time) in enumerate(given) if key == wanted)
        while mine:
            cut = next((i for i in range(1, len(mine)) if mine[i][0] > mine[i - 1][0] + gap), len(mine))
            some, mine = mine[:cut], mine[cut:]
            sides = [frozenset(n for _, n, s in some if s == side) for side in (0, 1)]
            expected[sides[0], sides[1], some[-1][0] + gap - 1] += 1
    assert Counter((frozenset(e.value["l"]), frozenset(e.value["r"]), e.timestamp) for e in h.output) == expected
