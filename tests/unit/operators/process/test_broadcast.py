"""Broadcast state: written on one side, read on the other, the same in every task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from poundlock import (
    BroadcastProcessFunction,
    DefinitionError,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from poundlock.testing import ProcessHarness

RULES = MapStateDescriptor("rules")
COUNT = ValueStateDescriptor("count", default=0)


class Apply(KeyedBroadcastProcessFunction):
    """Counts for each key the records that are over the limit of their kind."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(COUNT)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        limit = ctx.get_broadcast_state(RULES).get(value["kind"])
        if limit is not None and value["n"] > limit:
            self.count.update(self.count.value() + 1)
            ctx.timer_service().register_event_time_timer(100)
            yield [ctx.get_current_key(), self.count.value()]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if "reset" in value:
            ctx.apply_to_keyed_state(COUNT, lambda key, state: state.update(value["reset"]))
            return
        ctx.get_broadcast_state(RULES).put(value["kind"], value["limit"])
        yield ["rule", value["kind"], ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time()]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield [ctx.get_current_key(), dict(ctx.get_broadcast_state(RULES).items())]


def harness(function: Any = None, **options: Any) -> ProcessHarness:
    return ProcessHarness(function or Apply(), key="user", broadcast=[RULES], **options)


def test_every_task_sees_every_rule_once() -> None:
    h = harness(key_groups=4, instances=2)
    h.process_watermark(7)
    h.set_processing_time(8)
    out = h.process_broadcast_element({"kind": "x", "limit": 5}, 3)
    assert [e.value for e in out] == [["rule", "x", 3, 7, 8]] * 2
    h.rescale(3)
    for user in "abcdef":
        assert [e.value for e in h.process_element({"user": user, "kind": "x", "n": 6})] == [[user, 1]]
        assert h.process_element({"user": user, "kind": "x", "n": 5}) == []
        assert h.process_element({"user": user, "kind": "y", "n": 9}) == []
    h.process_broadcast_element({"kind": "y", "limit": 0})
    assert sorted(e.value for e in h.process_watermark(100)) == [[user, {"x": 5, "y": 0}] for user in "abcdef"]
    assert h.state()["broadcast:rules"] == {None: {"x": 5, "y": 0}}


def test_a_rule_can_change_the_state_of_all_keys() -> None:
    h = harness()
    h.process_broadcast_element({"kind": "x", "limit": 0})
    for user in "aabbbc":
        h.process_element({"user": user, "kind": "x", "n": 1})
    assert h.state()["state:count"] == {"a": 2, "b": 3, "c": 1}
    h.process_broadcast_element({"reset": 10})
    assert h.state()["state:count"] == {"a": 10, "b": 10, "c": 10}


class Scripted(KeyedBroadcastProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(COUNT)
        self.timers: Any = None

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.timers = ctx.timer_service()
        return value["do"](self, ctx)

    process_broadcast_element = process_element

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).clear()


class Everywhere(Scripted):
    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return value["do"](self, ctx)


READ_ONLY = "broadcast state 'rules' can only be read in process_element and on_timer"


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.put(1, 2),
        lambda state: state.put_all({1: 2}),
        lambda state: state.remove(1),
        lambda state: state.clear(),
    ],
)
def test_the_keyed_side_cannot_write(write: Callable[[Any], Any]) -> None:
    h = harness(Everywhere())
    with pytest.raises(DefinitionError, match=READ_ONLY) as caught:
        h.process_element({"user": "a", "do": lambda self, ctx: write(ctx.get_broadcast_state(RULES))})
    assert caught.value.next.startswith("write it in process_broadcast_element")


def test_a_timer_cannot_write() -> None:
    h = harness(Everywhere())
    h.process_element({"user": "a", "do": lambda self, ctx: self.timers.register_event_time_timer(1)})
    with pytest.raises(DefinitionError, match=READ_ONLY):
        h.process_watermark(1)


NO_KEY = "state or timers of a key were used where there is no key"


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda self, ctx: self.count.update(1), NO_KEY),
        (lambda self, ctx: self.count.value(), NO_KEY),
        (lambda self, ctx: self.count.clear(), NO_KEY),
        (lambda self, ctx: self.timers.register_event_time_timer(1), NO_KEY),
        (lambda self, ctx: ctx.timer_service(), "timers were asked for by a broadcast record"),
        (lambda self, ctx: ctx.get_current_key(), "the key of a broadcast record was asked for"),
        (
            lambda self, ctx: ctx.get_broadcast_state(MapStateDescriptor("other")),
            "broadcast state 'other' is not there",
        ),
    ],
)
def test_the_broadcast_side_has_no_key(do: Any, says: str) -> None:
    h = harness(Everywhere())
    h.process_element({"user": "a", "do": lambda self, ctx: None})
    with pytest.raises(DefinitionError, match=re.escape(says)):
        h.process_broadcast_element({"do": do})


def test_keyed_state_is_out_of_reach_again_after_it_was_applied_to() -> None:
    def do(self: Any, ctx: Any) -> None:
        ctx.apply_to_keyed_state(COUNT, lambda key, state: state.update(state.value() + 1))
        self.count.update(5)

    h = harness(Everywhere(), key_groups=1)
    h.process_element({"user": "a", "do": lambda self, ctx: self.count.update(1)})
    with pytest.raises(DefinitionError, match=NO_KEY):
        h.process_broadcast_element({"do": do})
    assert h.state()["state:count"] == {"a": 2}


def test_without_keys_every_instance_has_the_rules_also_after_rescaling() -> None:
    class Known(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield [value, sorted(ctx.get_broadcast_state(RULES).keys())]

        def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.get_broadcast_state(RULES).put(value, True)
            yield f"got {value}"
            if value == "all":
                ctx.apply_to_keyed_state(COUNT, lambda key, state: None)

    h = ProcessHarness(Known(), broadcast=[RULES], instances=2)
    assert [e.value for e in h.process_broadcast_element("x")] == ["got x"] * 2
    for instances in (3, 1, 2):
        h.rescale(instances)
        assert [h.process_element(n)[0].value for n in range(4)] == [[n, ["x"]] for n in range(4)]
    assert len(h.process_broadcast_element("y")) == 2
    with pytest.raises(DefinitionError, match="apply_to_keyed_state on a stream without key"):
        h.process_broadcast_element("all")


def test_a_function_does_not_share_a_broadcast_record_with_other_tasks() -> None:
    class Counting(KeyedBroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None: ...

        def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            value["seen"] += 1
            ctx.get_broadcast_state(RULES).put("rule", value)
            yield value["seen"]

    assert [e.value for e in harness(Counting(), instances=3).process_broadcast_element({"seen": 0})] == [1, 1, 1]


def test_nothing_is_broadcast_to_other_functions() -> None:
    with pytest.raises(DefinitionError, match="without a broadcast input"):
        ProcessHarness(Apply(), key="user").process_broadcast_element({})
