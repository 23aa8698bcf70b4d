"""Evictors by themselves: what stays."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock import CountEvictor, DefinitionError, DeltaEvictor, Evictor, TimeEvictor, TimeWindow
from poundlock.stream.windows.evictors import Timestamped

WINDOW = TimeWindow(0, 100)
ELEMENTS = [Timestamped(t, v) for t, v in ((10, 1), (30, 5), (20, 3))]


def gap(old: int, last: int) -> int:
    return last - old


def left(evictor: Evictor, elements: list[Timestamped], after: bool = False) -> list[Any]:
    context: Any = None
    evict = evictor.evict_after if after else evictor.evict_before
    other = evictor.evict_before if after else evictor.evict_after
    assert list(other(elements, WINDOW, context)) == elements
    return [element.value for element in evict(elements, WINDOW, context)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("evictor", "values"),
    [
        (CountEvictor(2), [5, 3]),
        (CountEvictor(9), [1, 5, 3]),
        (CountEvictor(0), []),
        (TimeEvictor("10 ms"), [5]),  # one exactly 10 ms older goes
        (TimeEvictor("11 ms"), [5, 3]),
        (TimeEvictor("21 ms"), [1, 5, 3]),
        (DeltaEvictor(2, gap), [5, 3]),  # a difference of exactly 2 goes
        (DeltaEvictor(3, gap), [1, 5, 3]),
        (DeltaEvictor(0, gap), [5]),
    ],
)
def test_what_stays(evictor: Any, values: list[int], after: bool) -> None:
    made = type(evictor)(**{**vars(evictor), "after": after})
    assert left(made, ELEMENTS, after) == values
    assert left(made, [], after) == []


def test_elements_without_time_all_stay() -> None:
    assert left(TimeEvictor("1 ms"), [Timestamped(None, 1), Timestamped(None, 2)]) == [1, 2]
    assert left(TimeEvictor("1 ms"), [Timestamped(5, 1), Timestamped(None, 2)]) == [1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CountEvictor(-1), "a CountEvictor of -1"),
        (lambda: TimeEvictor("0 s"), "span is 0 ms"),
        (lambda: DeltaEvictor(1, 2), "2 is no function"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()
