"""One life of the query: from `start()` until it ends. Its callback is the checkpoint; between two callbacks the driver may roll.

Whoever holds the coordinator's lock is the only one who decides; a stop takes the lock first, so it never meets a
checkpoint half way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import Directive, Outcome, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared
from poundlock.connectors.base import SourceReading, SplitSource
from poundlock.plan.lower import Lowered
from poundlock.plan.plan import DEAD_LETTER, Plan
from poundlock.plan.stage import PROPERTY
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.progress import StopRequest
from poundlock.runtime.tracker import Tracker
from poundlock.storage.base import Storage
from poundlock.values import Clock

__all__ = ["Query", "QueryStopped", "files_made"]

_POLL_S = 0.05
_TELL_S = 1.0
_QUIET_POLLS = 10
_COMMIT_LOG_S = 10.0


class QueryStopped(Exception):
    """Raised in the callback of a checkpoint that must not begin because the job is stopping."""


@dataclass
class Query:
    """A started query with its coordinator.

    Args:
        plan, lowered: what runs.
        sources: by name, as this start of the job reads them.
        spark_log: Spark's logs of this job.
        checkpoint_path: Spark's checkpoint folder, as Spark wants it.
        coordinator: has recovered already.
        tracker: told of every checkpoint.
        positions: per source, the newest decided position; kept up to date.
        identities: per source, the newest decided identity; kept up to date.
        workspace: gives the durable folder of a split-planned source.
        interval: time between checkpoints.
        clock: what rolls go by.
        on_checkpoint: called after each completed checkpoint.
    """

    plan: Plan
    lowered: Lowered
    sources: Mapping[str, Any]
    spark_log: SparkLog
    checkpoint_path: str
    coordinator: Coordinator
    tracker: Tracker
    positions: dict[str, Any]
    identities: dict[str, Mapping[str, Any]]
    workspace: Callable[[str], Storage]
    interval: timedelta
    clock: Clock
    on_checkpoint: Callable[[], None] = lambda: None
    error: BaseException | None = None
    _query: Any = None
    _stopping: bool = False
    _newest: int = -1
    _told: float = 0.0
    _quiet: int = 0
    _enumerators: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Start the query; returns at once."""
        writer = self.lowered.frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self.checkpoint_path).queryName(self.plan.job.name)
        seconds = 0.0 if self.plan.bounded else self.interval.total_seconds()
        self._query = writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds").start()

    def wait(self, stop: StopRequest) -> Occasion | None:
        """Wait until the query ends. Returns END after a clean stop or the end of input, None after a cancel.

        Raises:
            Exception: what the query failed with.
        """
        while True:
            if stop.canceling:
                return None
            if stop.stopping or self._input_ended():
                return Occasion.END if self._stop(stop) else None
            if not self._query.isActive:
                self._raise()
            self._roll_if_due()
            self._tell()
            stop.wait(_POLL_S)

    def _stop(self, request: StopRequest) -> bool:
        """Let the running checkpoint finish, keep the next from beginning, then end the query; False if canceled meanwhile."""
        while not self.coordinator.lock.acquire(timeout=_POLL_S):
            if request.canceling:
                return False
        self._stopping = True
        self.coordinator.lock.release()
        deadline = time.monotonic() + _COMMIT_LOG_S
        # Spark writes commits/n after the callback; stopping before that is safe but makes the next start deliver n again.
        while self._newest >= 0 and time.monotonic() < deadline and not self.spark_log.committed(self._newest):
            if request.canceling or not self._query.isActive:
                break
            time.sleep(_POLL_S)
        self._query.stop()
        if self.error is not None:
            raise self.error
        return not request.canceling

    def kill(self) -> None:
        """End the query without waiting for anything; what it was doing is done again by the next one."""
        self._stopping = True
        with suppress(Exception):  # it failed or its JVM is gone: both are an end
            self._query.stop()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
        exception = self._query.exception()
        raise exception if exception is not None else RuntimeError("the query ended by itself")

    # --- a checkpoint ------------------------------------------------------------------------------------------------

    def _on_batch(self, frame: Any, batch: int) -> None:
        try:
            with self.coordinator.lock:
                if self._stopping:
                    raise QueryStopped
                self._checkpoint(frame, batch)
        except QueryStopped:
            raise
        except BaseException as error:
            self.error = error
            raise

    def _checkpoint(self, frame: Any, batch: int) -> None:
        began = time.monotonic()
        ranges = self._ranges(batch)
        read: dict[str, int] = {}

        def run(directive: Directive) -> TaskResults:
            results = self._collect(frame, directive, read)
            self._identify(ranges)  # what was read still is what the checkpoint set out to read
            return results

        outcome = self.coordinator.checkpoint(batch, ranges, run)
        self._newest = batch
        for name, found in ranges.items():
            self.positions[name] = found.end
            self.identities[name] = found.identity
        counts = {} if outcome.replayed else {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        took = int((time.monotonic() - began) * 1000)
        self.tracker.checkpoint(batch, sum(read.values()), counts, files_made(outcome), took)
        self._committed(ranges)
        self.on_checkpoint()

    def _ranges(self, batch: int) -> dict[str, SourceRange]:
        """Return what Spark planned for a batch, per source of the job."""
        before = self.spark_log.planned_before(batch)
        ranges = {}
        for name, end in self.spark_log.planned(batch).items():
            if name in self.sources:
                start = before[name] if name in before else self.spark_log.initial(name)
                ranges[name] = SourceRange(start, end)
        return self._identify(ranges)

    def _identify(self, ranges: dict[str, SourceRange]) -> dict[str, SourceRange]:
        for name, found in ranges.items():
            source = self.sources[name]
            if not isinstance(source, SplitSource):
                identity = source.identity(found.start, found.end, self.identities.get(name, {}))
                ranges[name] = SourceRange(found.start, found.end, identity)
        return ranges

    def _collect(self, frame: Any, directive: Directive, read: dict[str, int]) -> TaskResults:
        context = frame.sparkSession.sparkContext
        context.setLocalProperty(PROPERTY, json.dumps(directive, separators=(",", ":")))
        prepared: list[Prepared] = []
        counts: dict[str, dict[str, Counts]] = {}
        for row in frame.collect():
            item = json.loads(row[0])
            if item["t"] == "prepared":
                prepared.append(Prepared(item["sink"], item["subtask"], item["payload"]))
                continue
            read[item["head"]] = read.get(item["head"], 0) + item["read"]
            of_head = counts.setdefault(item["head"], {})
            for sink, found in item["sinks"].items():
                of_head.setdefault(sink, Counts()).add(Counts.from_json(found))
        self._count_before_stage(read, counts)
        total: dict[str, Counts] = {}
        for of_head in counts.values():
            for sink, found in of_head.items():
                total.setdefault(sink, Counts()).add(found)
        return TaskResults(prepared=prepared, counts=total, rows_read=dict(read))

    def _count_before_stage(self, read: dict[str, int], counts: Mapping[str, Mapping[str, Counts]]) -> None:
        """Add the rows that vanished, or came to be, in Spark's operators before a stage."""
        if not any(self.lowered.observed.values()):
            return
        observed = _observed_rows(self._query)
        for head, names in self.lowered.observed.items():
            came_in = sum(observed.get(name, 0) for name in names)
            lost = came_in - read.get(head, 0)
            read[head] = came_in
            for sink, found in counts.get(head, {}).items():
                if sink == DEAD_LETTER:
                    continue
                found.read += lost
                if self.lowered.row_wise[head]:
                    found.filtered += lost
                else:
                    found.produced -= lost

    def _committed(self, ranges: Mapping[str, SourceRange]) -> None:
        for name, found in ranges.items():
            source = self.sources[name]
            if not isinstance(source, SplitSource):
                source.committed(found.end)

    # --- between checkpoints -----------------------------------------------------------------------------------------

    def _roll_if_due(self) -> None:
        if not self.coordinator.lock.acquire(blocking=False):
            return  # the checkpoint that holds it rolls what is due
        try:
            due = self.coordinator.next_roll_ms()
            if due is None or due > self.clock.now_ms():
                return
            outcome = self.coordinator.roll(Occasion.ROLL)
        finally:
            self.coordinator.lock.release()
        if outcome is not None:
            self.tracker.rolled(files_made(outcome))

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_S:
            return
        self._told = now
        lags = [
            source.lag(self.positions[name])
            for name, source in self.sources.items()
            if not isinstance(source, SplitSource) and name in self.positions
        ]
        known = [lag for lag in lags if lag is not None]
        self.tracker.lag(sum(known) if known else None)

    def _input_ended(self) -> bool:
        if not self.plan.bounded:
            return False
        if not self.coordinator.lock.acquire(blocking=False):
            return False
        try:
            return all(self._ended(name, source) for name, source in self.sources.items())
        finally:
            self.coordinator.lock.release()

    def _ended(self, name: str, source: Any) -> bool:
        position = self.positions.get(name)
        if isinstance(source, SplitSource):
            if name not in self._enumerators:
                self._enumerators[name] = source.enumerator(self.workspace(name))
            enumerator = self._enumerators[name]
            return bool(enumerator.finished(enumerator.initial() if position is None else position))
        if isinstance(source, SourceReading):
            return source.finished(position)
        return self._idle()

    def _idle(self) -> bool:
        """Return whether Spark has looked for data several times in a row and found none: all a source it knows can say."""
        status = self._query.status
        waiting = (
            not status["isDataAvailable"] and not status["isTriggerActive"] and "Initializing" not in status["message"]
        )
        self._quiet = self._quiet + 1 if waiting else 0
        return self._quiet >= _QUIET_POLLS


def files_made(outcome: Outcome) -> int:
    """Return how many committables a decision made visible."""
    return 0 if outcome.replayed else sum(len(sink.committables) for sink in outcome.decision.sinks.values())


def _observed_rows(query: Any) -> dict[str, int]:
    """Return what Spark counted in the batch that is being delivered, by the name of each count."""
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    found = {}
    iterator = metrics.iterator()
    while iterator.hasNext():
        pair = iterator.next()
        found[str(pair._1())] = int(pair._2().get(0))
    return found
