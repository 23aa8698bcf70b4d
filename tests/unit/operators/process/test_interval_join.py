"""The interval join: bounds, clean-up and lateness as in Flink, and against all pairs there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import (
    DefinitionError,
    FileSource,
    Job,
    ProcessJoinFunction,
    Side,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.testing import Element, Emitted, ProcessHarness
from support.examples import examples

quick = examples(100)
BY_TS = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_millis(t)")


def joined(lower: int, upper: int, *, exclusive: str = "", late: str = "") -> Any:
    """Return an interval join of keyed streams; `exclusive` and `late` name sides by l, u and l, r."""
    job = Job("a")
    left, right = (
        job.from_source(FileSource(f"/{name}")).assign_timestamps_and_watermarks(BY_TS).key_by("k") for name in "lr"
    )
    join = left.interval_join(right).between(
        f"{'-' * (lower < 0)}{abs(lower)} ms", f"{'-' * (upper < 0)}{abs(upper)} ms"
    )
    join = join.lower_bound_exclusive() if "l" in exclusive else join
    join = join.upper_bound_exclusive() if "u" in exclusive else join
    join = join.side_output_left_late_data("late-left") if "l" in late else join
    return join.side_output_right_late_data("late-right") if "r" in late else join


def harness(lower: int, upper: int, **options: str) -> ProcessHarness:
    return ProcessHarness(joined(lower, upper, **options).select("left.n", "right.n as m"), key_groups=4)


def row(n: int, key: str = "a") -> dict[str, Any]:
    return {"k": key, "n": n}


@pytest.mark.parametrize(
    ("exclusive", "matches"),
    [("", [8, 9, 10, 11, 12]), ("l", [9, 10, 11, 12]), ("u", [8, 9, 10, 11]), ("lu", [9, 10, 11])],
)
@pytest.mark.parametrize("left_first", [True, False])
def test_bounds(exclusive: str, matches: list[int], left_first: bool) -> None:
    h = harness(-2, 2, exclusive=exclusive)
    left = [Element(row(10), 10, 0)]
    right = [Element(row(t), t, 1) for t in range(15)]
    h.process_elements([*left, *right] if left_first else [*right, *left])
    assert sorted(e.value[1]["n"] for e in h.output) == matches
    assert {(e.key, e.timestamp) for e in h.output} == {("a", max(10, t)) for t in matches}


def test_keys_are_joined_apart() -> None:
    h = harness(0, 0)
    h.process_elements([Element(row(1, "a"), 1, 0), Element(row(1, "b"), 1, 1), Element(row(2, "a"), 1, 1)])
    assert h.output == [Emitted("a", (row(1, "a"), row(2, "a")), 1)]


@pytest.mark.parametrize(
    ("lower", "upper", "left_goes", "right_goes"),
    [(-2, 3, 13, 12), (1, 3, 13, 10), (-3, -1, 10, 13), (0, 0, 10, 10)],
)
def test_records_go_when_nothing_can_join_them_any_more(
    lower: int, upper: int, left_goes: int, right_goes: int
) -> None:
    """A left record is kept until its time + upper, a right one until its time - lower, neither less than its own time."""
    h = harness(lower, upper)
    h.process_elements([Element(row(1), 10, 0), Element(row(2, "b"), 10, 1)])
    for side, key, goes in ((0, "a", left_goes), (1, "b", right_goes)):
        assert [t.time for t in h.timers() if t.key == key] == [goes]
        assert ("left", "right")[side] in h.state()
    h.process_watermark(min(left_goes, right_goes) - 1)
    assert set(h.state()) == {"left", "right"}
    h.process_watermark(max(left_goes, right_goes) - 1)
    assert set(h.state()) == (
        {"left"} if left_goes > right_goes else {"right"} if right_goes > left_goes else {"left", "right"}
    )
    h.process_watermark(max(left_goes, right_goes))
    assert h.state() == {}
    assert h.timers() == []


def test_a_record_that_comes_after_later_ones_goes_before_them() -> None:
    h = harness(0, 5)
    h.process_elements([Element(row(t), t, 0) for t in (20, 10, 15)])
    for watermark, left in ((14, [10, 15, 20]), (15, [15, 20]), (20, [20]), (25, [])):
        h.process_watermark(watermark)
        assert [row["n"] for row in h.state().get("left", {"a": [[], []]})["a"][1]] == left


def test_a_record_at_the_watermark_is_taken_and_one_behind_it_is_late() -> None:
    h = harness(-5, 5, late="lr")
    h.process_watermark(10)
    h.process_elements([Element(row(n), n, side) for n in (9, 10) for side in (0, 1)])
    assert [(e.value, e.timestamp) for e in h.side_output("late-left")] == [(row(9), 9)]
    assert [(e.value, e.timestamp) for e in h.side_output("late-right")] == [(row(9), 9)]
    assert [e.timestamp for e in h.output] == [10]
    assert h.late_dropped == 0

    h = harness(-5, 5, late="r")
    h.process_watermark(10)
    h.process_elements([Element(row(9), 9, side) for side in (0, 0, 1)])
    assert (h.late_dropped, len(h.side_output("late-right"))) == (2, 1)


def test_the_function_sees_pairs_with_their_times_and_state_of_the_key() -> None:
    class Pairs(ProcessJoinFunction):
        def open(self, context: Any) -> None:
            self.n = context.get_state(ValueStateDescriptor("n", default=0))

        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
            self.n.update(self.n.value() + 1)
            yield {"n": self.n.value(), "times": [ctx.left_timestamp(), ctx.right_timestamp(), ctx.timestamp()]}
            yield Side("pairs", {"left": left["n"], "right": right["n"]})

    stream = joined(-5, 5).process(
        Pairs(), schema="n int, times array<bigint>", side_outputs={"pairs": "left int, right int"}
    )
    h = ProcessHarness(stream)
    h.process_elements([Element(row(1), 1, 0), Element(row(2), 4, 1), Element(row(3), 2, 1)])
    h.rescale(2)
    h.process_elements([Element(row(4, "a"), 5, 0)])
    assert [(e.value["n"], e.value["times"], e.timestamp) for e in h.output] == [
        (1, [1, 4, 4], 4),
        (2, [1, 2, 2], 2),
        (3, [5, 2, 5], 5),
        (4, [5, 4, 5], 5),
    ]
    assert [tuple(e.value.values()) for e in h.side_output("pairs")] == [(1, 2), (1, 3), (4, 3), (4, 2)]


@pytest.mark.parametrize("time", [None, -(1 << 63)])
def test_records_without_event_time_are_refused(time: int | None) -> None:
    with pytest.raises(DefinitionError, match="of the right side of an interval join has no event time"):
        harness(0, 1).process_element2(row(1), time)


def test_the_last_watermark_ends_everything() -> None:
    h = harness(-10, 10)
    h.process_elements([Element(row(1), (1 << 63) - 5, 0), Element(row(2), 5, 1)])
    h.end_of_input()
    assert h.state() == {}
    assert h.timers() == []


elements = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 25))
steps = st.one_of(
    st.tuples(st.just("elements"), st.lists(elements, max_size=8)),
    st.tuples(st.just("watermark"), st.integers(0, 30)),
)
bounds = st.tuples(st.integers(-8, 8), st.integers(0, 8)).map(lambda b: (b[0], b[0] + b[1]))


@quick
@given(st.lists(steps, max_size=14), bounds, st.data())
def test_all_pairs_that_should_be(script: list[Any], bounds: tuple[int, int], data: st.DataObject) -> None:
    lower, upper = bounds
    h = harness(lower, upper, late="lr")
    mark, number = -1, 0
    live: list[tuple[int, str, int, int]] = []  # side, key, time, number
    expected, late = Counter[Any](), Counter[Any]()
    for kind, what in script:
        if data.draw(st.integers(0, 3)) == 0:
            h.rescale(data.draw(st.integers(1, 4)))
        if kind == "watermark":
            h.process_watermark(what)
            if what > mark:
                mark = what
                live = [r for r in live if r[2] + max(0, upper if r[0] == 0 else -lower) > mark]
            continue
        batch = sorted(
            what, key=lambda e: (e[0], e[1])
        )  # as the harness hands them on: a side of a group after the other
        given = []
        for key, side, time in batch:
            number += 1
            given.append(Element({"k": key, "n": number}, time, side))
            if time < mark:
                late[side, number] += 1
                continue
            for other in live:
                left, right = ((time, number), other[2:]) if side == 0 else (other[2:], (time, number))
                if other[0] != side and other[1] == key and left[0] + lower <= right[0] <= left[0] + upper:
                    expected[left[1], right[1], max(left[0], right[0])] += 1
            live.append((side, key, time, number))
        h.process_elements(given)
    assert Counter((e.value[0]["n"], e.value[1]["n"], e.timestamp) for e in h.output) == expected
    found = [(side, e.value["n"]) for side, tag in enumerate(("late-left", "late-right")) for e in h.side_output(tag)]
    assert Counter(found) == late
    h.end_of_input()
    assert (h.state(), h.timers()) == ({}, [])
    h.close()
