"""What checkpoints did, added up; and reasons of dead letters as labels, which have to be few."""

from __future__ import annotations

import pytest

from poundlock.metrics.load import (
    MOST_REASONS,
    OTHER_REASONS,
    CommitLoad,
    JobLoad,
    OperatorLoad,
    TaskLoad,
    count_reason,
    kind_of_reason,
    reasons_added,
)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("map-1 raised ValueError: invalid literal for int() with base 10: 'x'", "map-1 raised ValueError"),
        ("it is no JSON at byte 17", "it is no JSON at byte …"),
        ("column 'price' is \"12 Eur\" and no number", "column … is … and no number"),
        ("no value", "no value"),
        ("x" * 500, "x" * 100),
    ],
)
def test_a_reason_is_named_without_what_is_special_to_its_record(reason: str, kind: str) -> None:
    assert kind_of_reason(reason) == kind


def test_there_are_never_more_reasons_than_a_label_may_have() -> None:
    reasons: dict[str, int] = {}
    for letter in range(MOST_REASONS + 30):
        count_reason(reasons, "bad " + "y" * (letter + 1))
    assert len(reasons) == MOST_REASONS + 1
    assert reasons[OTHER_REASONS] == 30
    assert sum(reasons_added(reasons, {"new": 2, "bad y": 1}).values()) == MOST_REASONS + 33


def test_checkpoints_add_up() -> None:
    one = JobLoad(
        operators={"a": OperatorLoad(5, 4, 1, 0, 0, 2.5, 1.0, None)},
        tasks=(TaskLoad(0, 1, 5, 10.0, 3.0),),
        sinks={"s": CommitLoad(2, 1, 7.0)},
        reasons={"no value": 1},
        phases_ms={"run": 10.0},
        worker_memory_bytes=100,
        worker_cpu_ms=3.0,
    )
    other = JobLoad(
        operators={"a": OperatorLoad(1, 1, bytes_in=9), "b": OperatorLoad(2, 2)},
        tasks=(TaskLoad(0, 0, 1), TaskLoad(0, 1, 1, 1.0, 1.0)),
        sinks={"s": CommitLoad(1), "t": CommitLoad(1)},
        reasons={"no value": 2},
        phases_ms={"run": 1.0, "commit": 2.0},
        worker_memory_bytes=80,
    )
    both = one.plus(other)
    assert both.operators == {"a": OperatorLoad(6, 5, 1, 0, 0, 2.5, 1.0, 9), "b": OperatorLoad(2, 2)}
    assert both.tasks == (TaskLoad(0, 0, 1), TaskLoad(0, 1, 6, 11.0, 4.0))
    assert both.sinks == {"s": CommitLoad(3, 1, 7.0), "t": CommitLoad(1)}
    assert (both.reasons, both.phases_ms) == ({"no value": 3}, {"run": 11.0, "commit": 2.0})
    assert (both.worker_memory_bytes, both.worker_cpu_ms) == (80, 3.0)
    assert both.plus(JobLoad()).worker_memory_bytes == 80, "a checkpoint without tasks has no workers"
