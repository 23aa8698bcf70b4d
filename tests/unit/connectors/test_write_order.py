"""The moment that the writes of sinks by key carry grows, whatever clocks do."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.checkpoint.participant import Prepared, WriterContext
from poundlock.connectors.write_order import begun_ms, directive_of, staged


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
    assert begun_ms(context(clock, directive_of(dict(decided.state)))) == begun


def test_a_decision_without_rows_forgets_nothing() -> None:
    assert staged({"begun_ms": 77}, []).state["begun_ms"] == 77
    assert begun_ms(context(5, directive_of({}))) == 5
