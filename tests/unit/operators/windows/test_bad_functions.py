"""Triggers, evictors and window functions that give what they may not: said in two lines where it happens, never taken for data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from poundlock import (
    EventTimeTrigger,
    Evictor,
    ProcessWindowFunction,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from poundlock.errors import DefinitionError
from poundlock.testing import WindowHarness

WINDOWS = TumblingEventTimeWindows("10 s")


class Gives(ProcessWindowFunction):
    def __init__(self, given: Any) -> None:
        self.given = given

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return self.given


class Keeps(Evictor):
    def __init__(self, before: Callable[[Any], Any], after: Callable[[Any], Any] = lambda elements: elements) -> None:
        self.before, self.after = before, after

    def evict_before(self, elements: Any, window: Any, context: Any) -> Any:
        return self.before(elements)

    def evict_after(self, elements: Any, window: Any, context: Any) -> Any:
        return self.after(elements)


class Answers(Trigger):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_element(self, value: Any, timestamp: Any, window: Any, ctx: Any) -> TriggerResult:
        answer: TriggerResult = self.answer
        return answer

    def clear(self, window: Any, ctx: Any) -> None:
        pass


def fired(function: Any, **settings: Any) -> list[Any]:
    with WindowHarness(WINDOWS, function, key="k", **settings) as h:
        h.process_element({"k": "a"}, 1_000)
        return [row.value for row in h.process_watermark(9_999)]


@pytest.mark.parametrize("given", [{"n": 1}, "text", b"bytes", 7])
def test_one_record_is_not_rows(given: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Gives returned \w+ .*\nNext: yield each record instead"):
        fired(Gives(given))


def test_nothing_is_no_rows() -> None:
    assert fired(Gives(None)) == fired(Gives([])) == []


@pytest.mark.parametrize("answer", [None, True, "FIRE"])
def test_a_trigger_answers_what_to_do(answer: Any) -> None:
    with pytest.raises(DefinitionError, match=f"the trigger Answers returned {answer!r}\nNext: return TriggerResult"):
        fired(Gives([]), trigger=Answers(answer))


@pytest.mark.parametrize("foreign", [lambda elements: None, lambda elements: [{"k": "z"}], lambda elements: "text"])
def test_an_evictor_returns_elements_of_the_window(foreign: Callable[[Any], Any]) -> None:
    for evictor in (Keeps(foreign), Keeps(list, foreign)):
        with pytest.raises(DefinitionError, match=r"the evictor Keeps returned .* where elements of the window belong"):
            fired(Gives([]), evictor=evictor)


def test_an_evictor_may_return_them_in_any_way() -> None:
    assert fired(Gives([{"n": 1}]), evictor=Keeps(iter, tuple)) == [{"n": 1}]


def test_a_lateness_below_zero_is_refused_as_in_a_job() -> None:
    with pytest.raises(DefinitionError, match="'-1 s' is not a duration"):
        fired(Gives([]), allowed_lateness="-1 s")


def test_state_that_holds_itself() -> None:
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    with WindowHarness(WINDOWS, Gives([]), key="k") as h:
        h.process_element({"k": "a", "v": round_and_round}, 1_000)
        with pytest.raises(DefinitionError, match="nested more than 100 levels deep"):
            h.snapshot()


class Puts(WindowAssigner):
    def __init__(self, window: Any) -> None:
        self.window = window

    def assign_windows(self, value: Any, timestamp: int | None, context: Any) -> list[Any]:
        return [self.window]

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()


@pytest.mark.parametrize("bounds", [(0, 10.5), (0.0, 10), (10, 0), (0, 1 << 64), (-(1 << 64), 0), (True, 5)])
def test_a_window_has_whole_milliseconds_in_their_order(bounds: tuple[Any, Any]) -> None:
    with (
        WindowHarness(Puts(TimeWindow(*bounds)), Gives([]), key="k") as h,
        pytest.raises(DefinitionError, match=r"the window assigner gave TimeWindow.*\nNext: return TimeWindow"),
    ):
        h.process_element({"k": "a"}, 1_000)
