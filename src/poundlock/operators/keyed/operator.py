"""The seam between keyed operators and what runs them: a test's harness, or a task of Spark.

A host keeps key groups, gives an operator one group at a time, and stores the group when the operator is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import GroupBatch, OutputChunk


class KeyedOperator(Protocol):
    """Works on one key group at a time. Every generator must be read to its end before the group is used again.

    For one micro-batch a host calls, for each group that has elements or due timers: `advance_processing_time`,
    `process` for each of its batches, `advance_watermark`.
    """

    @property
    def late_dropped(self) -> int:
        """How many elements were late and went nowhere, since the operator was made."""
        ...

    def open(self) -> None:
        """Open the user's functions. Called once, before anything else."""
        ...

    def close(self) -> None:
        """Close the user's functions."""
        ...

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        """Work on elements, judged by the group's watermark and clock."""
        ...

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        """Set the group's watermark, unless it is there already, and fire event-time timers up to it in order of time."""
        ...

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        """Set the group's clock, unless it is there already, and fire processing-time timers up to it in order of time."""
        ...
