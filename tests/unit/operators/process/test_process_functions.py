"""Process functions: timers, state, side outputs, what is refused, and that output never changes after it was yielded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from poundlock import (
    CoProcessFunction,
    DefinitionError,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    ProcessFunction,
    Side,
    StateTtlConfig,
    TimeDomain,
    ValueStateDescriptor,
)
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.output import GroupBatch, detached
from poundlock.operators.process.process import ProcessOperator
from poundlock.testing import Emitted, ProcessHarness, Timer


class Scripted(KeyedProcessFunction):
    """Does what the element says, a function of the context."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return value["do"](ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield [
            timestamp,
            ctx.timestamp(),
            ctx.get_current_key(),
            ctx.time_domain(),
            ctx.timer_service().current_watermark(),
        ]


def doing(key: str, do: Callable[[Any], Any]) -> dict[str, Any]:
    return {"key": key, "do": do}


def harness(function: Any = None, **options: Any) -> ProcessHarness:
    return ProcessHarness(function or Scripted(), key="key", **options)


def event(*times: int) -> Callable[[Any], None]:
    def do(ctx: Any) -> None:
        for time in times:
            ctx.timer_service().register_event_time_timer(time)

    return do


def test_timers_fire_in_order_of_time_once_for_a_key_and_time() -> None:
    h = harness()
    h.process_element(doing("a", event(30, 10, 10, 20)))
    h.process_element(doing("b", event(10)))
    assert [(t.domain, t.time) for t in h.timers()] == [("event", 10), ("event", 10), ("event", 20), ("event", 30)]
    assert h.process_watermark(9) == []
    fired = h.process_watermark(25)
    assert sorted(e.value for e in fired if e.value[0] == 10) == [
        [10, 10, "a", TimeDomain.EVENT_TIME, 25],
        [10, 10, "b", TimeDomain.EVENT_TIME, 25],
    ]
    assert [e.value[0] for e in fired if e.key == "a"] == [10, 20]
    assert {e.timestamp for e in fired} == {10, 20}
    assert h.timers() == [Timer("event", 30, "a", None)]
    assert h.process_watermark(25) == []


def test_a_timer_for_a_time_that_is_over_fires_when_the_watermark_next_moves() -> None:
    h = harness()
    h.process_watermark(100)
    assert h.process_element(doing("a", event(50))) == []
    assert h.process_watermark(100) == []
    assert [e.value[0] for e in h.process_watermark(101)] == [50]


def test_a_timer_that_fires_may_set_and_delete_others() -> None:
    class Chain(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            event(10, 40)(ctx)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
            yield timestamp
            if timestamp < 30:
                ctx.timer_service().register_event_time_timer(timestamp + 10)
            ctx.timer_service().delete_event_time_timer(40)

    h = harness(Chain())
    h.process_element({"key": "a"})
    assert [e.value for e in h.process_watermark(50)] == [10, 20, 30]
    assert h.timers() == []


def test_timers_of_the_clock_have_no_event_time_and_stay_at_the_end_of_input() -> None:
    h = harness()
    h.process_element(doing("a", lambda ctx: ctx.timer_service().register_processing_time_timer(1000)), 5)
    assert h.end_of_input() == []
    [fired] = h.set_processing_time(1000)
    assert fired == Emitted("a", [1000, 1000, "a", TimeDomain.PROCESSING_TIME, MAX], None)


def test_deleted_timers_do_not_fire() -> None:
    h = harness()
    h.process_element(doing("a", event(10)))
    h.process_element(doing("b", lambda ctx: ctx.timer_service().delete_event_time_timer(10)))
    h.process_element(doing("a", lambda ctx: ctx.timer_service().delete_event_time_timer(11)))
    assert len(h.timers()) == 1
    h.process_element(doing("a", lambda ctx: ctx.timer_service().delete_event_time_timer(10)))
    h.process_element(doing("a", lambda ctx: ctx.timer_service().register_processing_time_timer(10)))
    h.process_element(doing("a", lambda ctx: ctx.timer_service().delete_processing_time_timer(10)))
    assert h.process_watermark(10) == h.set_processing_time(10) == []


def test_what_a_record_is_told() -> None:
    def told(ctx: Any) -> list[Any]:
        timers = ctx.timer_service()
        return [[ctx.get_current_key(), ctx.timestamp(), timers.current_watermark(), timers.current_processing_time()]]

    h = harness()
    assert h.process_element(doing("a", told)) == [Emitted("a", ["a", None, MIN, 0], None)]
    h.process_watermark(7)
    h.set_processing_time(8)
    assert h.process_element(doing("b", told), 9) == [Emitted("b", ["b", 9, 7, 8], 9)]


def test_state_lives_as_long_as_its_ttl_says() -> None:
    class Seen(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            self.seen = context.get_state(ValueStateDescriptor("seen", ttl=StateTtlConfig(ttl="1 s")))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield self.seen.value()
            self.seen.update(value["n"])

    h = harness(Seen())
    h.set_processing_time(500)
    assert [e.value for e in h.process_elements([({"key": "a", "n": 1}, None), ({"key": "a", "n": 2}, None)])] == [
        None,
        1,
    ]
    h.set_processing_time(1499)
    h.rescale(2)
    assert [e.value for e in h.process_element({"key": "a", "n": 3})] == [2]
    h.set_processing_time(2499)
    assert [e.value for e in h.process_element({"key": "a", "n": 4})] == [None]


def test_a_row_stays_as_it_was_when_it_was_yielded() -> None:
    class Growing(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            self.all = context.get_state(ValueStateDescriptor("all"))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            held = self.all.value() or {"list": [], "n": 0}
            held["list"].append(value["n"])
            held["n"] = value["n"]
            self.all.update(held)
            yield held
            yield Side("side", held)
            yield {"deep": (held["list"],)}

    h = harness(Growing())
    h.process_elements([({"key": "a", "n": n}, None) for n in (1, 2)])
    assert [e.value for e in h.output] == [
        {"list": [1], "n": 1},
        {"deep": ([1],)},
        {"list": [1, 2], "n": 2},
        {"deep": ([1, 2],)},
    ]
    assert [e.value for e in h.side_output("side")] == [{"list": [1], "n": 1}, {"list": [1, 2], "n": 2}]


def test_functions_are_opened_and_closed_once_an_instance() -> None:
    class Told(KeyedProcessFunction):
        said: ClassVar[list[str]] = []

        def open(self, context: Any) -> None:
            self.said.append("open")

        def close(self) -> None:
            self.said.append("close")

        def process_element(self, value: Any, ctx: Any) -> None: ...

    with harness(Told(), instances=2) as h:
        assert Told.said == ["open"] * 2
        h.rescale(1)
        assert Told.said == ["open"] * 2 + ["close"] * 2 + ["open"]
    assert Told.said[-1] == "close"
    with pytest.raises(DefinitionError, match="the harness is closed"):
        h.process_element({"key": "a"})


def test_two_inputs_share_state_and_have_keys_of_their_own() -> None:
    class Both(KeyedCoProcessFunction):
        def open(self, context: Any) -> None:
            self.all = context.get_list_state(ListStateDescriptor("all"))

        def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.all.add(value["n"])
            yield [ctx.get_current_key(), self.all.get()]

        def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.all.add(-value["n"])
            yield [ctx.get_current_key(), self.all.get()]

    h = ProcessHarness(Both(), key="user", key2=lambda record: record["id"].lower())
    assert h.process_element1({"user": "a", "n": 1})[0].value == ["a", [1]]
    assert h.process_element2({"id": "A", "n": 2})[0].value == ["a", [1, -2]]
    assert h.process_element2({"id": "B", "n": 3})[0].value == ["b", [-3]]
    assert h.state() == {"state:all": {"a": [1, -2], "b": [-3]}}


def test_functions_without_keys_take_elements_in_turn() -> None:
    class Count(CoProcessFunction):
        n = 0

        def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.n += 1
            yield [value, self.n, ctx.timestamp(), ctx.timer_service().current_watermark()]

        process_element2 = process_element1

    h = ProcessHarness(Count(), instances=2)
    h.process_watermark(3)
    assert [
        h.process_element1("a", 5)[0].value,
        h.process_element2("b")[0].value,
        h.process_element1("c")[0].value,
    ] == [
        ["a", 1, 5, 3],
        ["b", 1, None, 3],
        ["c", 2, None, 3],
    ]


def test_rows_come_in_chunks() -> None:
    class Twice(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.timer_service().register_event_time_timer(10 + value)
            yield value
            yield value

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield timestamp

    operator, group = ProcessOperator(Twice(), chunk_rows=10), KeyGroup(0)
    operator.open()
    keys = list(range(100))
    chunks = [list(chunk.values) for chunk in operator.process(group, GroupBatch(keys, keys))]
    assert [len(chunk) for chunk in chunks] == [10] * 20
    assert [row for chunk in chunks for row in chunk] == [key for key in keys for _ in range(2)]
    fired = operator.advance_watermark(group, 1000)
    assert len(next(fired)) == 10
    assert len(group.event_timers) == 90  # what nobody asked for yet is not done yet
    assert sum(len(chunk) for chunk in fired) == 90


def test_neither_watermark_nor_clock_goes_back() -> None:
    operator, group = ProcessOperator(Scripted()), KeyGroup(0, watermark=50, processing_time=60)
    operator.open()
    list(operator.process(group, GroupBatch(["a"], [doing("a", event(10))])))
    assert list(operator.advance_watermark(group, 40)) == list(operator.advance_processing_time(group, 50)) == []
    assert (group.watermark, group.processing_time) == (50, 60)


@pytest.mark.parametrize(
    "value", [[[1], {"a": [2]}], {"a": {"b": [1]}}, ([1], [2]), {frozenset({1}), "a"}, Side("a", [1]), 1]
)
def test_what_is_detached_shares_nothing_that_can_change(value: Any) -> None:
    found = detached(value)
    assert found == value
    assert type(found) is type(value)
    held = {id(part) for part in parts(value) if isinstance(part, (list, dict, set))}
    assert not held & {id(part) for part in parts(found)}


def parts(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, (list, tuple, set, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts(part)


class OnWrongStream(ProcessFunction):
    def __init__(self, do: Callable[[Any], Any]) -> None:
        self.do = do

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.do(ctx)


@pytest.mark.parametrize(
    ("do", "says", "advises"),
    [
        (lambda ctx: {"n": 1}, "Scripted returned dict {'n': 1}", "yield each record instead"),
        (lambda ctx: Side("a", 1), "Scripted returned Side", "yield each record"),
        (lambda ctx: 5, "Scripted returned int 5", "yield each record"),
        (lambda ctx: [Side("", 1)], "side output '', which is not declared", "declare it"),
        (lambda ctx: event(1.5)(ctx), "a timer for 1.5", "whole number of milliseconds"),
        (lambda ctx: event(1 << 63)(ctx), "a timer for 9223372036854775808", "whole number of milliseconds"),
        (
            lambda ctx: ctx.get_broadcast_state(None),
            "nothing is broadcast to this function",
            "write stream.connect(rules.broadcast(descriptor))",
        ),
    ],
)
def test_what_a_function_may_not_do(do: Any, says: str, advises: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(says)) as caught:
        harness().process_element(doing("a", do))
    assert advises in caught.value.next


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda ctx: ctx.timer_service().register_event_time_timer(1), "a timer was set on a stream without key"),
        (lambda ctx: ctx.timer_service().delete_processing_time_timer(1), "a timer was set on a stream without key"),
    ],
)
def test_timers_need_keys(do: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as caught:
        ProcessHarness(OnWrongStream(do)).process_element(1)
    assert "key_by" in caught.value.next


def test_state_needs_keys() -> None:
    class Wants(ProcessFunction):
        def open(self, context: Any) -> None:
            context.get_state(ValueStateDescriptor("n"))

        def process_element(self, value: Any, ctx: Any) -> None: ...

    with pytest.raises(DefinitionError, match="state 'n' was asked for on a stream without key"):
        ProcessHarness(Wants())


def test_state_has_no_value_before_there_is_a_key() -> None:
    class Early(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            context.get_state(ValueStateDescriptor("n")).update(1)

        def process_element(self, value: Any, ctx: Any) -> None: ...

    with pytest.raises(DefinitionError, match="where there is no key"):
        harness(Early())


def test_only_timers_have_a_domain() -> None:
    with pytest.raises(AttributeError, match="time_domain"):
        harness().process_element(doing("a", lambda ctx: ctx.time_domain()))


def test_undeclared_side_outputs_are_refused_where_they_are_used() -> None:
    class Two(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield Side("known", value)
            yield Side("unknown", value)

    operator = ProcessOperator(Two(), tags=["known"])
    with pytest.raises(DefinitionError, match="Two sent a record to the side output 'unknown'") as caught:
        list(operator.process(KeyGroup(0), GroupBatch([None], [1])))
    assert caught.value.next == 'declare it: side_outputs={"unknown": "…"}'
