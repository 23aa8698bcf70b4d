"""Whether Flink keeps up with an interval: from what it tells of its checkpoints, and from how latencies go."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.latency import pace, trend

pytestmark = pytest.mark.slow


def checkpoints(id: int, at_ms: int) -> dict[str, Any]:
    return {"latest": {"completed": {"id": id, "trigger_timestamp": at_ms}}}


@pytest.mark.parametrize(("taken", "part"), [(400, 1.0), (200, 0.5), (440, 1.1)], ids=["all", "half", "late ones too"])
def test_the_part_of_the_checkpoints_due_that_were_taken(taken: int, part: float) -> None:
    assert pace(checkpoints(7, 1_000), checkpoints(7 + taken, 41_000), 100) == part


def test_latencies_that_grow_are_seen() -> None:
    assert trend([20.0, 10.0, 30.0] * 100) == 1.0
    assert trend([10.0] * 100 + [15.0] * 100 + [40.0] * 100) == 4.0
