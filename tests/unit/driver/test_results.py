"""What tasks report is believed only where it adds up."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from poundlock.connectors.base import PartitionRead
from poundlock.driver.checkpoints import task_results
from poundlock.driver.planner import CheckpointPlan, Planner
from poundlock.errors import TransientError
from poundlock.operators.chain import StepCounts
from poundlock.tasks.report import SourceRead, TaskReport

CHAIN: Any = SimpleNamespace(
    nodes=(), segments=(), keeps_dead_letters=False, source=SimpleNamespace(sources={"made": None, "other": None})
)


def report(subtask: int, **reads: SourceRead) -> TaskReport:
    return TaskReport(0, subtask, "run", (), {"made": StepCounts(rows_in=5)}, reads)


def test_splits_that_no_task_read_fail_the_checkpoint() -> None:
    reports = [report(0, made=SourceRead(1, 10)), report(1, made=SourceRead(1, 20))]
    found = task_results(
        CHAIN, CheckpointPlan(3, {}, (), {"made": 2, "other": 0}), reports, watermarks=None, event_time=None
    )
    assert found.rows_read == {"made": 10, "other": 0}
    assert found.bytes_read == {"made": 30}
    for splits, said in (
        ({"made": 3}, "3 splits of 'made' were planned and 2 were read"),
        ({"made": 2, "other": 1}, "1 splits of 'other' were planned and 0 were read"),
    ):
        with pytest.raises(TransientError, match=said):
            task_results(CHAIN, CheckpointPlan(3, {}, (), splits), reports, watermarks=None, event_time=None)


def test_bytes_are_told_only_where_every_reader_counts_them() -> None:
    reports = [report(0, made=SourceRead(1, 10)), report(1, made=SourceRead(1, None))]
    plan = CheckpointPlan(3, {}, (), {"made": 2})
    assert task_results(CHAIN, plan, reports, watermarks=None, event_time=None).bytes_read == {}


def test_a_source_that_plans_by_bytes_is_given_those_of_each_partition() -> None:
    given: list[Mapping[str, PartitionRead]] = []
    enumerator = SimpleNamespace(initial=dict, measured=given.append)
    sources: Any = {name: SimpleNamespace(enumerator=lambda _: enumerator) for name in ("made", "other")}
    planner = Planner(sources, lambda _: cast(Any, None), 1)
    reads = [
        SourceRead(1, 10, {"a": PartitionRead(2, 7), "b": PartitionRead(1, 3)}),
        SourceRead(1, 20, {"a": PartitionRead(5, 20)}),
    ]
    planner.measured([*(report(n, made=read) for n, read in enumerate(reads)), report(2)])
    assert given == [{"a": PartitionRead(7, 27), "b": PartitionRead(1, 3)}], "nothing was read of the other"
    assert reads[0].partitions["a"] == PartitionRead(2, 7)
