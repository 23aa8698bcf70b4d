"""The functions that the cases of state.json are about, as a user would write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from poundlock import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    FileSource,
    Job,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    Side,
    ValueStateDescriptor,
)

LETTERS = MapStateDescriptor("letters")


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class RunningSum(KeyedProcessFunction):
    def __init__(self, state: str) -> None:
        self.kind = state

    def open(self, context: Any) -> None:
        if self.kind == "reducing":
            self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        else:
            self.sum = context.get_aggregating_state(AggregatingStateDescriptor("sum", Sum()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.sum.add(value["value"])
        yield [self.sum.get(), ctx.get_current_key()]


class StatesBefore(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.value = context.get_state(ValueStateDescriptor("value"))
        self.list = context.get_list_state(ListStateDescriptor("list"))
        self.map = context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        v, key = value["value"], ctx.get_current_key()
        yield [key, self.value.value(), self.list.get(), dict(self.map.items()), v]
        self.value.update(v)
        self.list.add(v)
        self.map.put(str(v), key)


class SharedCountAndTimer(KeyedCoProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", default=1))
        self.set = False

    def _count(self, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        return [ctx.get_current_key(), self.count.value()]

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        if not self.set:
            ctx.timer_service().register_event_time_timer(3)
            self.set = True
        yield self._count(ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self._count(ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ["on_timer", timestamp + 1]


class BroadcastLetters(BroadcastProcessFunction):
    def __init__(self) -> None:
        self.waiting: dict[int, list[int]] = defaultdict(list)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        letters, n = ctx.get_broadcast_state(LETTERS), value["value"]
        if letters.contains(n % 2):
            yield f"{letters.get(n % 2)}{n}"
        else:
            self.waiting[n % 2].append(n)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        n, letter = value["value"]
        ctx.get_broadcast_state(LETTERS).put(n, letter)
        yield f"{n}{letter}"
        for waited in self.waiting.pop(n, []):
            yield f"{letter}{waited}"


class TwoSides(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        text, n = value["value"]
        yield text
        yield Side("side1", n)
        yield Side("side2", f"{text}{n}")  # type: ignore[arg-type]  # the harness takes any value


class SumToSide(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.sum = context.get_state(ValueStateDescriptor("sum", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.sum.update(self.sum.value() + value["value"])
        yield value["value"]
        yield Side("side", self.sum.value())


class CountToSide(KeyedCoProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", default=0))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update(self.count.value() + 1)
        yield [ctx.get_current_key(), value["value"]]
        yield Side("side", self.count.value())

    process_element2 = process_element1


def concatenated() -> Any:
    """Return the stream of the rolling reduce."""
    texts = Job("texts").from_source(FileSource("/in"))
    return texts.key_by("key").reduce(lambda a, b: {**a, "value": a["value"] + b["value"]})
