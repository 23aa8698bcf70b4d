"""Window functions: what they are given, what state they have, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from poundlock import DefinitionError, Side
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.process import AggregateWindow, ProcessWindow, ProcessWindowFunction, ReduceWindow
from poundlock.stream.functions.state import ListStateDescriptor, ValueStateDescriptor
from poundlock.stream.nodes import WindowNode
from poundlock.stream.windows.assigners import AssignerContext, WindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountTumblingWindows,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import CountTrigger, DeltaTrigger, EventTimeTrigger, PurgingTrigger
from poundlock.stream.windows.evictors import CountEvictor, Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import CountWindow, GlobalWindow, TimeWindow, Window
from poundlock.testing import KeyedOperatorHarness, WindowHarness
from support.window_scripts import All, ms

TEN = TumblingEventTimeWindows(ms(10))
BOTH = pytest.mark.parametrize("general", [False, True], ids=["quick", "general"])

FIRINGS = ValueStateDescriptor("firings", 0)
WINDOWS = ListStateDescriptor("windows")


def v(value: int, key: str = "a") -> dict[str, Any]:
    return {"k": key, "v": value}


def plus(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**a, "v": a["v"] + b["v"]}


@dataclass
class Telling(ProcessWindowFunction):
    """Tells everything it can see, and counts its firings for the window and its windows for the key."""

    calls: list[Any] = field(default_factory=list)

    def open(self, context: Any) -> None:
        self.calls.append("open")
        self.windows = context.get_list_state(WINDOWS)

    def close(self) -> None:
        self.calls.append("close")

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        firings = context.window_state().get_state(FIRINGS)
        firings.update(firings.value() + 1)
        window = context.window()
        assert context.global_state().get_list_state(WINDOWS) is self.windows
        if firings.value() == 1:
            self.windows.add(window.start)
        yield {
            "values": [e["v"] for e in elements],
            "firing": firings.value(),
            "windows": self.windows.get(),
            "times": (window.start, window.end, context.current_watermark(), context.current_processing_time()),
        }
        if len(elements) > 1:
            yield Side("many", key)

    def clear(self, context: Any) -> None:
        self.calls.append(("clear", context.window()))
        context.window_state().get_state(FIRINGS).clear()


@BOTH
def test_a_process_function_sees_its_window_and_has_state_of_window_and_key(general: bool) -> None:
    telling = Telling()
    with WindowHarness(TEN, telling, key="k", allowed_lateness="10 ms", general=general) as h:
        h.set_processing_time(77)
        h.process_elements([(v(1), 1), (v(2), 2), (v(3), 12), (v(9, "b"), 5)])
        first = h.process_watermark(9)
        assert [(e.key, e.value, e.timestamp, e.window) for e in first if e.key == "a"] == [
            (
                "a",
                {"values": [1, 2], "firing": 1, "windows": [0], "times": (0, 10, 9, 77)},
                9,
                TimeWindow(0, 10),
            )
        ]
        (again,) = h.process_element(v(4), 3)
        assert (again.value["values"], again.value["firing"]) == ([1, 2, 4], 2)
        h.restore(h.snapshot())
        assert h.state()["window:firings"] == {("a", (0, 10)): 2, ("b", (0, 10)): 1}
        (second,) = h.process_watermark(19)
        assert (second.value["windows"], second.value["firing"]) == ([0, 10], 1)
        assert h.state()["state:windows"] == {"a": [0, 10], "b": [0]}
        assert h.state()["window:firings"] == {("a", (10, 20)): 1}
        h.process_watermark(100)
        assert set(h.state()) == {"state:windows"}
        assert [(e.key, e.value, e.timestamp) for e in h.side_output("many")] == [("a", "a", 9)] * 2
    gone = [call[1] for call in telling.calls if isinstance(call, tuple)]
    assert sorted(gone) == [TimeWindow(0, 10), TimeWindow(0, 10), TimeWindow(10, 20)]
    assert [call for call in telling.calls if isinstance(call, str)] == ["open", "close", "open", "close"]


@BOTH
def test_a_process_function_behind_a_reduce_gets_the_one_record(general: bool) -> None:
    with WindowHarness(TEN, ReduceWindow(plus, Telling()), key="k", general=general) as h:
        h.process_elements([(v(1), 1), (v(2), 2), (v(3), 3)])
        assert h.state()["contents"] == {("a", (0, 10)): v(6)}
        (out,) = h.end_of_input()
        assert out.value["values"] == [6]


@BOTH
def test_windows_that_merge_have_no_state_of_their_own(general: bool) -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), Telling(), key="k", general=general) as h:
        h.process_element(v(1), 1)
        with pytest.raises(DefinitionError, match="windows that merge have no per-window state"):
            h.end_of_input()


@BOTH
def test_late_elements_are_counted_where_there_is_no_output_for_them(general: bool) -> None:
    with WindowHarness(TEN, plus, key="k", late=False, general=general) as h:
        h.process_watermark(15)
        h.process_elements([(v(1), 3), (v(2), 16), (v(3), 9)])
        assert (h.late_dropped, h.late) == (2, [])
        h.restore(h.snapshot())
        h.process_element(v(1), 3)
        assert h.late_dropped == 3


@BOTH
@pytest.mark.parametrize("assigner", [TEN, EventTimeSessionWindows(ms(5)), DynamicEventTimeSessionWindows(lambda e: 3)])
def test_an_element_without_event_time_is_refused(assigner: WindowAssigner, general: bool) -> None:
    with WindowHarness(assigner, plus, key="k", general=general) as h:
        with pytest.raises(DefinitionError, match="an element without event time came to"):
            h.process_element(v(1))
        h.process_element(v(1), 1)
        with pytest.raises(DefinitionError, match="an element without event time came to"):
            h.process_elements([(v(1), 2), (v(1), None)])


@BOTH
def test_lists_hold_elements_in_the_order_they_came(general: bool) -> None:
    with WindowHarness(SlidingEventTimeWindows(ms(10), ms(5)), All(), general=general) as h:
        h.process_elements([(v(1), 7), (v(2), 3), (v(3), 8), (v(4), 1), (v(5), 9), (v(6), 12)])
        out = {e.window.start: e.value[0] for e in h.end_of_input()}
        assert out == {-5: (2, 4), 0: (1, 2, 3, 4, 5), 5: (1, 3, 5, 6), 10: (6,)}


@BOTH
@pytest.mark.parametrize("assigner", [TEN, EventTimeSessionWindows(ms(5))], ids=["tumbling", "session"])
def test_a_window_that_begins_late_fires_for_its_elements_and_never_again(assigner: Any, general: bool) -> None:
    with WindowHarness(assigner, All(), allowed_lateness="10 ms", general=general) as h:
        h.process_watermark(9)
        assert [e.value[0] for e in h.process_element(v(1), 4)] == [(1,)]
        assert [(t.domain, t.time) for t in h.timers()] == [("event", 19 if assigner is TEN else 18)]
        assert h.end_of_input() == []
        assert h.state() == {}


@BOTH
def test_a_session_that_fired_and_goes_on_fires_at_its_new_end(general: bool) -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), allowed_lateness="20 ms", general=general) as h:
        h.process_element(v(1), 0)
        assert len(h.process_watermark(6)) == 1
        assert [e.value[0] for e in h.process_element(v(2), 1)] == [(1, 2)]  # ends at 6, which is over
        assert h.process_element(v(3), 6) == []  # ends at 11
        assert [e.value[0] for e in h.process_watermark(10)] == [(1, 2, 3)]
        assert h.process_watermark(29) == []
        assert h.process_watermark(30) == []
        assert h.state() == {}


def test_a_watermark_or_a_clock_that_goes_back_is_ignored() -> None:
    operator = window_operator(WindowSpec(assigner=TEN, function=ReduceWindow(plus)))
    group = KeyGroup(0, watermark=50, processing_time=60)
    assert [*operator.advance_watermark(group, 40), *operator.advance_processing_time(group, 40)] == []
    assert (group.watermark, group.processing_time) == (50, 60)


def test_a_window_of_many_keys_comes_out_in_chunks() -> None:
    for function in (SqlAggregates([SqlAggregate(kind="count")]), ReduceWindow(plus), ReduceWindow(plus, Counting())):
        operator = window_operator(WindowSpec(assigner=TEN, function=function), chunk_rows=100)
        group = KeyGroup(0)
        keys = list(range(1050))
        assert list(operator.process(group, GroupBatch(keys, [{"v": k} for k in keys], [5] * len(keys)))) == []
        chunks = list(operator.advance_watermark(group, 9))
        assert [len(chunk) for chunk in chunks] == [*[100] * 10, 50]
        assert [key for chunk in chunks for key in chunk.keys] == keys
        assert group.is_empty()


class Counting(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        return [len(elements)]


class Silent(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> None:
        return None


@BOTH
def test_a_function_may_give_nothing(general: bool) -> None:
    with WindowHarness(TEN, Silent(), general=general) as h:
        h.process_element(v(1), 1)
        assert h.end_of_input() == []


def test_late_rows_are_told_by_their_number_in_the_host() -> None:
    for general in (False, True):
        spec = WindowSpec(assigner=TEN, function=ReduceWindow(plus), late_tag="late")
        operator = window_operator(spec, general=general)
        group = KeyGroup(0, watermark=100)
        batch = GroupBatch(["a", "b", "c"], [v(1), v(2), v(3)], [5, 105, 7], rows=[17, 18, 19])
        (chunk,) = operator.process(group, batch)
        assert (chunk.tag, chunk.keys, chunk.rows, chunk.timestamps) == ("late", ["a", "c"], [17, 19], [5, 7])


# --- assigners, triggers and evictors of a user's own ----------------------------------------------------------------


@dataclass(frozen=True)
class Alternating(WindowAssigner):
    """Odd values into the global window, even ones into the window of their own second and into a numbered one."""

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        assert timestamp is not None
        if value["v"] % 2:
            return [GlobalWindow()]
        start = timestamp // 1000 * 1000
        return [TimeWindow(start, start + 1000), CountWindow(7)]

    def default_trigger(self) -> Trigger:
        return PurgingTrigger(CountTrigger(2))


def test_an_assigner_of_ones_own_may_give_windows_of_all_kinds() -> None:
    with WindowHarness(Alternating(), All(), key="k") as h:
        h.process_elements([(v(1), 1), (v(2), 5), (v(3), 10)])
        h.restore(h.snapshot())
        assert set(h.state()["contents"]) == {("a", (0, 1000)), ("a", 7)}
        h.process_element(v(4), 999)
        assert [(e.value[0], e.window, e.timestamp) for e in h.output] == [
            ((1, 3), GlobalWindow(), (1 << 63) - 1),
            ((2, 4), TimeWindow(0, 1000), 999),
            ((2, 4), CountWindow(7), (1 << 63) - 1),
        ]


class Wrong(Alternating):
    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        return [(0, 10)]  # type: ignore[list-item]


class Shrinking(EventTimeSessionWindows):
    """Merges windows into one that has ended long ago."""

    def merge_windows(self, windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, Sequence[TimeWindow]]]:
        return [(TimeWindow(0, 5), windows)]


def test_what_an_assigner_of_ones_own_gets_wrong_is_told() -> None:
    with WindowHarness(Wrong(), All()) as h, pytest.raises(DefinitionError, match=r"gave \(0, 10\)\nNext: return Time"):
        h.process_element(v(1), 1)
    with WindowHarness(Shrinking(ms(5)), All()) as h:
        h.process_watermark(50)
        h.process_element(v(1), 60)
        with pytest.raises(DefinitionError, match="which has ended already"):
            h.process_element(v(1), 62)
    with (
        WindowHarness(DynamicEventTimeSessionWindows(lambda e: e["v"]), All()) as h,
        pytest.raises(DefinitionError, match="the gap of an element is 0"),
    ):
        h.process_element(v(0), 1)


def test_gaps_may_be_said_as_time() -> None:
    with WindowHarness(DynamicEventTimeSessionWindows(lambda e: "2 s" if e["v"] else ms(10)), All()) as h:
        h.process_elements([(v(1), 0), (v(0), 5000)])
        assert [e.window for e in h.end_of_input()] == [TimeWindow(0, 2000), TimeWindow(5000, 5010)]


@dataclass(frozen=True)
class OnlyOdd(Evictor):
    """Takes even values out before the function, and everything after it."""

    def evict_before(self, elements: Sequence[Any], window: Window, context: Any) -> Sequence[Any]:
        assert context.get_current_watermark() >= window.max_timestamp()
        assert context.get_current_processing_time() == 5
        return [e for e in elements if e.value["v"] % 2]

    def evict_after(self, elements: Sequence[Any], window: Window, context: Any) -> Sequence[Any]:
        return []


def test_an_evictor_of_ones_own() -> None:
    with WindowHarness(TEN, All(), evictor=OnlyOdd(), allowed_lateness="10 ms") as h:
        h.set_processing_time(5)
        h.process_elements([(v(1), 1), (v(2), 2), (v(3), 3)])
        assert [e.value[0] for e in h.process_watermark(9)] == [(1, 3)]
        assert "contents" not in h.state()
        assert [e.value[0] for e in h.process_element(v(5), 4)] == [(5,)]


def test_an_evictor_that_leaves_nothing() -> None:
    """A reduce of nothing has no result; a process function is called without elements, as in Flink."""
    for function, found in ((plus, []), (All(), [((), 9)])):
        with WindowHarness(TEN, function, evictor=CountEvictor(0)) as h:
            h.process_element(v(1), 1)
            assert [e.value for e in h.process_watermark(9)] == found


def test_sessions_with_an_evictor_keep_their_elements_when_they_merge() -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), evictor=CountEvictor(2)) as h:
        h.process_elements([(v(1), 0), (v(2), 10), (v(3), 5)])
        (out,) = h.end_of_input()
        assert (len(out.value[0]), out.window) == (2, TimeWindow(0, 15))


def test_a_trigger_that_cannot_merge_is_refused_for_sessions() -> None:
    with pytest.raises(DefinitionError, match="DeltaTrigger cannot be used with session windows"):
        WindowHarness(EventTimeSessionWindows(ms(5)), All(), trigger=DeltaTrigger(1, lambda a, b: 0))


# --- which operator runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"assigner": TEN}, "AlignedWindowOperator"),
        ({"assigner": TEN, "trigger": EventTimeTrigger(), "allowed_lateness_ms": 5}, "AlignedWindowOperator"),
        ({"assigner": SlidingEventTimeWindows(ms(5), ms(9))}, "AlignedWindowOperator"),
        ({"assigner": TEN, "trigger": CountTrigger(1)}, "WindowOperator"),
        ({"assigner": TEN, "evictor": CountEvictor(1)}, "WindowOperator"),
        ({"assigner": EventTimeSessionWindows(ms(5))}, "SessionWindowOperator"),
        ({"assigner": Shrinking(ms(5))}, "WindowOperator"),
        ({"assigner": CountTumblingWindows(3)}, "CountWindowOperator"),
        ({"assigner": CountTumblingWindows(3), "trigger": CountTrigger(3)}, "WindowOperator"),
        ({"assigner": GlobalWindows()}, "WindowOperator"),
    ],
)
def test_common_windows_have_an_operator_of_their_own(spec: dict[str, Any], kind: str) -> None:
    assert type(window_operator(WindowSpec(function=ReduceWindow(plus), **spec))).__name__ == kind


def test_a_spec_is_what_a_node_says() -> None:
    said: dict[str, Any] = {"trigger": CountTrigger(2), "evictor": CountEvictor(1), "late_tag": "too late"}
    function = ReduceWindow(plus)
    sides = {"many": "n int"}
    node = WindowNode("w", [], [], TEN, "at", [], function=function, allowed_lateness=ms(5), side_outputs=sides, **said)
    wanted = WindowSpec(assigner=TEN, function=function, allowed_lateness_ms=5, tags=("many",), **said)
    assert WindowSpec.of(node) == wanted
    sql = WindowNode("w", [], [], TEN, "at", ["count(*) as n"])
    count = SqlAggregates([SqlAggregate(kind="count")])
    assert WindowSpec.of(sql, count) == WindowSpec(assigner=TEN, function=count, tags=())
    with pytest.raises(TypeError, match="say what they mean"):
        WindowSpec.of(sql)


class Misspelt(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield Side("mnay", key)


@pytest.mark.parametrize("late_tag", [None, "mnay"])
def test_a_side_output_that_was_not_declared_is_refused(late_tag: str | None) -> None:
    spec = WindowSpec(assigner=TEN, function=ProcessWindow(Misspelt()), tags=("many",), late_tag=late_tag)
    with KeyedOperatorHarness(lambda: window_operator(spec)) as h:
        h.process_element(1, 1)
        with pytest.raises(DefinitionError, match="Misspelt sent a record to the side output 'mnay'"):
            h.end_of_input()


class Keeping(ProcessWindowFunction):
    """Gives the elements themselves."""

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        yield elements


@BOTH
def test_what_a_function_gave_does_not_change_with_the_window(general: bool) -> None:
    with WindowHarness(TEN, Keeping(), allowed_lateness="9 ms", general=general) as h:
        h.process_element(1, 1)
        h.process_watermark(9)
        h.process_element(2, 2)
        assert [row.value for row in h.output] == [[1], [1, 2]]


def test_state_of_another_operator_is_refused() -> None:
    state = ScratchState(1)
    plain = WindowSpec(assigner=TEN, function=ReduceWindow(plus))
    list(window_operator(plain).process(state.open(), GroupBatch(["a"], [v(1)], [5])))
    changed = WindowSpec(assigner=TEN, function=ReduceWindow(plus), trigger=CountTrigger(2))
    state.write()
    restored = state.open()
    with pytest.raises(Exception, match="'contents' is kept as panes state and asked for as windows state"):
        list(window_operator(changed).process(restored, GroupBatch(["a"], [v(1)], [5])))


class Largest:
    """Not an AggregateFunction."""


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ReduceWindow(3), "reduce needs a function, got 3"),  # type: ignore[arg-type]
        (lambda: AggregateWindow(Largest()), "is no AggregateFunction"),  # type: ignore[arg-type]
        (lambda: ReduceWindow(plus, plus), "is no ProcessWindowFunction"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_function_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()


def test_a_result_stays_as_it_was_when_the_function_changes_its_record() -> None:
    def add(total: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        total["v"] += row["v"]
        return total

    class Growing(ProcessWindowFunction):
        def open(self, context: Any) -> None:
            self.all: list[int] = []

        def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
            self.all.append(len(elements))
            yield {"all": self.all}

    with WindowHarness(GlobalWindows(), ReduceWindow(add), key="k", trigger=CountTrigger(1)) as h:
        h.process_elements([(v(1), None), (v(2), None), (v(3), None)])
        assert [row.value["v"] for row in h.output] == [1, 3, 6]
    with WindowHarness(GlobalWindows(), Growing(), key="k", trigger=CountTrigger(1)) as h:
        h.process_elements([(v(1), None), (v(2), None)])
        assert [row.value["all"] for row in h.output] == [[1], [1, 2]]
