"""Keyed operators of ours inside Spark's transformWithState: Spark keeps one blob for each key group and hands it out with the rows.

Within a batch a group first gets the time its elements are judged by, then its elements, then the new watermark; the same rows
and times give the same blob and the same output, whenever the batch is delivered.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from poundlock.operators.keyed.codec import Head, read_head
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import OutputChunk
from poundlock.plan.emitted import TAG, with_time
from poundlock.plan.packing import CONTROL, GROUP, PAYLOAD, PLACE, SIDE, pack_bytes, unpack_rows
from poundlock.plan.tasks import directive_of_task
from poundlock.tasks.keyed_input import KeyedInput as Input
from poundlock.tasks.keyed_output import KeyedOutput as Output

__all__ = ["EMITTED", "LATE_DROPPED", "NEXT_TIMER", "STATE", "Host", "Input", "Output", "Times", "hosted"]

EMITTED = f"{TAG} string, {PAYLOAD} binary"
LATE_DROPPED = "\0late"  # the tag of the row that tells how many elements were late and went nowhere
NEXT_TIMER = "\0timer"  # the tag of the row that tells the next time, in ms, at which a group waits for the clock
STATE = "group"  # name of the state in Spark


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a batch, all in ms.

    Args:
        before: the watermark that the batch's elements are judged by.
        after: the watermark behind them.
        now: the clock.
    """

    before: int
    after: int
    now: int

    @classmethod
    def of(cls, directive: Mapping[str, Any], payload: bytes) -> Times:
        """Return the times of a batch, from what the driver says of it; without a driver the clock is in a group's control row."""
        now = directive.get("clock")
        return cls(
            directive.get("watermark_before", MIN),
            directive.get("watermark", MIN),
            int(payload) if now is None else now,
        )


class Host(StatefulProcessor):
    """Runs an operator over the key groups of one task of Spark.

    Args:
        operator: the operator.
        inputs: by side.
        outputs: by tag; what is emitted under another tag goes nowhere.
        first: the side whose rows of a batch are worked on first.
    """

    def __init__(
        self,
        operator: KeyedOperator,
        inputs: Sequence[Input],
        outputs: Mapping[str, Output],
        *,
        first: int = 0,
    ) -> None:
        self._operator = operator
        self._inputs = inputs
        self._outputs = outputs
        self._first = first
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once a task and batch."""
        self._state = handle.getValueState(STATE, "blob binary")
        self._operator.open()
        # State is many small objects that all stay: going through them again and again costs more than what is worked on.
        gc.disable()

    def close(self) -> None:
        """Called at the end of the task."""
        self._operator.close()
        gc.enable()

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called for each key group that has rows; it always has the control row."""
        times, packs = self._sorted(rows)
        stored = self._state.get()
        if not packs:
            head = None if stored is None else read_head(bytes(stored[0]))
            if head is None or not _due(head, times):  # nothing changes; the group learns the time when it is needed
                yield from _timer(None if head is None else head.next_processing_timer)
                return
        dropped = self._operator.late_dropped
        group = self._group(int(key[0]), stored, times)
        for chunk, rows_in in self._work(group, times, packs):
            output = self._outputs.get(chunk.tag)
            if output is not None and len(chunk):
                yield _emitted(chunk.tag, pack_bytes(_rows(output, chunk, rows_in)))
        if self._operator.late_dropped != dropped:
            yield _emitted(LATE_DROPPED, str(self._operator.late_dropped - dropped).encode())
        if group.is_empty():
            if stored is not None:
                self._state.clear()
        else:
            self._state.update((group.encode(),))
            yield from _timer(group.processing_timers.next_time())

    def times(self, payload: bytes) -> Times:
        """Return the times of a group in this batch, given its control row."""
        return Times.of(directive_of_task(), payload)

    def _group(self, number: int, stored: Any, times: Times) -> KeyGroup:
        if stored is None:
            return KeyGroup(number, watermark=times.before, processing_time=times.now)
        group = KeyGroup.decode(bytes(stored[0]))
        # In between it was not needed, so no timer lies there. It goes back where a job goes on behind the end of its input.
        group.watermark = times.before if group.watermark == MAX else max(group.watermark, times.before)
        return group

    def _work(self, group: KeyGroup, times: Times, packs: Iterable[tuple[int, bytes]]) -> Iterator[_Found]:
        operator = self._operator
        yield from ((chunk, None) for chunk in operator.advance_processing_time(group, times.now))
        for side, payload in packs:
            rows, taken = unpack_rows(payload), self._inputs[side]
            whole = rows.select(list(taken.whole)) if set(taken.whole) <= set(rows.schema.names) else None
            yield from ((chunk, whole) for chunk in operator.process(group, taken.batch(rows, side)))
        yield from ((chunk, None) for chunk in operator.advance_watermark(group, times.after))

    def _sorted(self, frames: Iterator[pd.DataFrame]) -> tuple[Times, list[tuple[int, bytes]]]:
        """Return the times, and the packs in order of side and place."""
        times = None
        packs: list[tuple[bool, int, str, bytes]] = []
        for frame in frames:
            for side, place, payload in zip(frame[SIDE], frame[PLACE], frame[PAYLOAD], strict=True):
                if side == CONTROL:
                    times = self.times(bytes(payload))
                else:
                    packs.append((side != self._first, int(side), str(place), bytes(payload)))
        assert times is not None, "every group has a control row in every batch"
        packs.sort()  # by their bytes where a place is there twice, as of a source that is read twice: never as they arrived
        return times, [(side, payload) for _, side, _, payload in packs]


_Found = tuple[OutputChunk, pa.RecordBatch | None]


def _rows(output: Output, chunk: OutputChunk, came_as: pa.RecordBatch | None) -> pa.RecordBatch:
    """Return the rows of a chunk; elements that are sent on are taken from what came in."""
    if chunk.rows is None or came_as is None:
        return output.rows(chunk)
    return with_time(came_as.take(pa.array(chunk.rows)).cast(output.schema), chunk.timestamps)


def _due(head: Head, times: Times) -> bool:
    event, processing = head.next_event_timer, head.next_processing_timer
    return (event is not None and event <= times.after) or (processing is not None and processing <= times.now)


def _timer(at_ms: int | None) -> Iterator[pd.DataFrame]:
    """Tell when a group waits for the clock; the end of all time is not waited for."""
    if at_ms is not None and at_ms < MAX:
        yield _emitted(NEXT_TIMER, str(at_ms).encode())


def _emitted(tag: str, payload: bytes) -> pd.DataFrame:
    return pd.DataFrame({TAG: [tag], PAYLOAD: [payload]})


def hosted(packed: DataFrame, host: Host) -> DataFrame:
    """Return what an operator emits, as rows of EMITTED.

    Args:
        packed: rows of PACKED: those of all inputs, and the control row of every group.
        host: the operator.
    """
    frame: DataFrame = packed.groupBy(GROUP).transformWithStateInPandas(
        host, outputStructType=EMITTED, outputMode="append", timeMode="None"
    )
    return frame
