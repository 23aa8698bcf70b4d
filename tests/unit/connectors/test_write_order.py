"""The moment that the writes of sinks by key carry grows, whatever clocks do."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.checkpoint.participant import JSON, Kind, Occasion, Prepared, Staged, Writer, WriterContext
from poundlock.connectors.write_order import OrderedSink, begun_ms


class Ordered(OrderedSink):
    """A sink by key of which only the driver's half is looked at."""

    kind = Kind.IDEMPOTENT

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError


def staged(state: JSON, prepared: list[Prepared]) -> Staged:
    return Ordered().stage(state, prepared, Occasion.CHECKPOINT, 0)


def context(started_ms: int, directive: dict[str, Any]) -> WriterContext:
    return WriterContext(
        job_id="0" * 32, sink="out", epoch=1, checkpoint=1, subtask=0, attempt="a", directive=directive,
        reject=lambda reject: None, started_ms=started_ms,
    )  # fmt: skip


@pytest.mark.parametrize(("clock", "begun"), [(5000, 5000), (1000, 1001), (1, 1001)])
def test_it_is_the_clock_and_more_than_in_the_newest_decision(clock: int, begun: int) -> None:
    decided = staged({}, [Prepared("out", n, {"v": 1, "begun_ms": 999 + n}) for n in range(2)])
    assert decided.committables == []
    assert decided.state == {"v": 1, "pending": [], "at_once": True, "begun_ms": 1000}
    assert begun_ms(context(clock, Ordered().directive(dict(decided.state)))) == begun


def test_a_decision_without_rows_forgets_nothing() -> None:
    assert staged({"begun_ms": 77}, []).state["begun_ms"] == 77
    assert begun_ms(context(5, Ordered().directive({}))) == 5
