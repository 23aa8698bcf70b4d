"""Event time between the checkpoints of one attempt of a job: what a checkpoint begins with, and whether time alone asks for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.decision import EventTime
from poundlock.operators.stream_times import Advanced, StreamTimes, StreamWatermark, require_agreement
from poundlock.operators.time_graph import Held, held_of_source
from poundlock.operators.time_values import (
    DECIDED_FORMAT,
    MIN,
    DecidedTime,
    SourceInput,
    TimeDirective,
    TimeState,
    shown,
)
from poundlock.tasks.report import TaskReport
from poundlock.values import Clock


class JobTime:
    """The event time of a job. Used by one thread at a time."""

    def __init__(self, times: StreamTimes, clock: Clock, decided: DecidedTime | None, operators: Sequence[str]) -> None:
        self._times, self._clock, self._operators = times, clock, operators
        known = times.initial() if decided is None else decided.state
        self._state: TimeState = times.resume(known)
        self._judging = times.graph.judging(operators)
        self.slowest = StreamWatermark(MIN, MIN)
        """The least watermark that rows are judged by, behind the newest checkpoint; nobody holds it back while all are idle."""

    @property
    def active(self) -> bool:
        """Whether there is any event time, or any operator that is given the time."""
        return bool(self._times.graph.assigners) or bool(self._operators)

    def directive(self, sources: Mapping[str, SourceInput], *, drain: bool = False) -> TimeDirective:
        """Return what the tasks of a new checkpoint begin with.

        Args:
            drain: whether the input ends for good with the checkpoint.
        """
        return self._times.directive(self._state, self._clock.now_ms(), sources, drain=drain)

    def held(self) -> dict[str, Held]:
        """Return, per source, what has to wait for others of its alignment group."""
        return dict(held_of_source(self._times.graph, self._state))

    def measured(self, directive: TimeDirective, reports: Sequence[TaskReport]) -> Advanced:
        """Return what became of event time in a checkpoint.

        Raises:
            TerminalError: tasks came to another result.
        """
        advanced = self._times.advance(directive, [seen for report in reports for seen in report.times])
        require_agreement(advanced, [report.watermarks for report in reports if report.watermarks])
        return advanced

    def checkpointed(self, advanced: Advanced, *, drained: bool = False) -> None:
        """Take note that a checkpoint is decided; behind one that was drained the input goes on where it does."""
        self._state = self._times.resume(advanced.state) if drained else advanced.state
        self.slowest = self._slowest(advanced)

    def is_due(
        self,
        sources: Mapping[str, SourceInput],
        timers: tuple[int | None, int | None],
        sinks: Mapping[str, int] | None = None,
    ) -> bool:
        """Let time pass without rows; return whether a timer or a sink is due by it, for which a checkpoint is to be taken.

        Args:
            timers: when the first timer of any operator is due, by event time and by the clock, ms.
            sinks: the watermarks that sinks wait for, ms.
        """
        directive = self.directive(sources)
        advanced = self._times.advance(directive)
        event, clock = timers
        watermark = max((advanced.watermarks[name].after for name in self._operators), default=MIN)
        if (event is not None and event <= watermark) or (clock is not None and clock <= directive.clock):
            return True
        if any(advanced.watermarks[name].after >= at for name, at in (sinks or {}).items()):
            return True
        self._state = advanced.state
        self.slowest = self._slowest(advanced)
        return False

    def _slowest(self, advanced: Advanced) -> StreamWatermark:
        return advanced.slowest(self._judging) or StreamWatermark(MIN, MIN)

    def seen(self, advanced: Advanced, reports: Sequence[TaskReport]) -> EventTime | None:
        """Return what a checkpoint's rows had of event time, and the watermark they were judged by; None where there is none."""
        if not self._times.graph.assigners:
            return None
        greatest = [each.greatest for report in reports for each in report.times]
        before = min((advanced.watermarks[name].before for name in self._judging), default=MIN)
        return EventTime(max_ms=max(greatest, default=None), watermark_ms=shown(before))

    def of_sinks(self, advanced: Advanced, sinks: Iterable[str]) -> dict[str, SinkTime]:
        """Return how far event time has come for the rows of sinks; those that are no step of the job, as dead letters are, are left out."""
        of = {name: advanced.watermarks[name] for name in sinks if name in advanced.watermarks}
        return {name: SinkTime(shown(each.after), each.ended) for name, each in of.items()}

    def decided(self, directive: TimeDirective, advanced: Advanced) -> DecidedTime | None:
        """Return what a decision says of event time; None where there is none."""
        if not self.active:
            return None
        slowest = self._slowest(advanced)
        return DecidedTime(
            v=DECIDED_FORMAT,
            watermark=shown(slowest.after),
            held_by=slowest.held_by,
            state=advanced.state,
            directive=directive,
        )
