"""What passes between the driver and the tasks of a checkpoint: which runs to look at, and what was written.

Both are plain values; a report of an attempt that was not chosen is thrown away with its file.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from poundlock.state.manifest import Manifest, OperatorChange, RunFile, TimerBound
from poundlock.state.runs.merge import MergePolicy


class StateDirective(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a checkpoint need of the state."""

    # what files are named by
    job: str
    epoch: int
    checkpoint: int
    parallelism: int
    manifest: Manifest
    merging: MergePolicy


class StateWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did for its state, for metrics."""

    decoded: int = 0  # entries that were read
    encoded: int = 0  # entries that were looked at for changes
    merged_bytes: int = 0  # bytes of the runs that were merged
    owed_bytes: int = 0  # bytes of runs whose merge is due and waits for its turn


class PreparedState(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has prepared of its state."""

    checkpoint: int
    first: int  # the task's first key group
    stop: int  # the one behind its last
    file: RunFile | None = None  # the run it wrote; None if nothing changed
    spans: tuple[tuple[int, int], ...] = ()  # the key groups that the run is for: (first, stop)
    # key groups whose runs with some ids are no longer needed: (first, stop, ids)
    removed: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    broadcast_file: RunFile | None = None  # the run of broadcast state; only the task of group 0 writes one
    broadcast_removed: tuple[int, ...] = ()  # ids of runs of broadcast state that are no longer needed
    operators: Mapping[int, OperatorChange] = {}
    timers: tuple[TimerBound, ...] = ()
    work: StateWork = StateWork()
