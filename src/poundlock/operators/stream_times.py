"""The watermark of every stream of a job: what the tasks of a checkpoint saw goes in, a watermark for each step comes out.

The result depends on the directive and the reports alone, so the driver and every task of the checkpoint get the same one, in
whatever order reports come and however often. Rows of a checkpoint are judged by the watermark before it; windows close by the
one behind it, which has this checkpoint's rows in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from poundlock.errors import TerminalError
from poundlock.operators.time_graph import TimeGraph, TimeNode, held
from poundlock.operators.time_values import (
    MAX,
    MIN,
    SUMMARY,
    UNKNOWN,
    SourceInput,
    SourceTime,
    SplitTimes,
    StreamHolder,
    StreamTime,
    TimeDirective,
    TimeState,
    known,
    shown,
)
from poundlock.operators.watermarks import Input, PartitionSeen, SourceWatermark, combine

Seen = Mapping[str, Mapping[str, Mapping[str, PartitionSeen]]]
"""By assigner, source and partition."""


@dataclass(frozen=True, slots=True)
class StreamWatermark:
    """The watermark of a stream in one checkpoint.

    Args:
        before: what the checkpoint's rows are judged by, ms; MIN before any.
        after: what its windows close by, ms; MAX behind the end of the input.
        idle: whether nobody waits for the stream.
        ended: whether nothing can come on it any more.
    """

    before: int
    after: int
    idle: bool = False
    ended: bool = False
    held_by: StreamHolder | None = None


@dataclass(frozen=True)
class Advanced:
    """What became of event time in a checkpoint.

    Args:
        state: for the decision, and for the next checkpoint's directive.
        watermarks: by the id of a step: that of the rows it gives on.
    """

    state: TimeState
    watermarks: Mapping[str, StreamWatermark]

    def used(self, streams: Iterable[str]) -> str:
        """Return what a task reports of the watermarks that it ran steps by, as JSON; the driver compares it with its own.

        A task knows nothing of assigners in later stages, so it answers for its own steps only.

        Args:
            streams: the ids of the steps with windows or timers that it ran.
        """
        return json.dumps({name: self.watermarks[name].after for name in sorted(streams)})

    def slowest(self, streams: Iterable[str]) -> StreamWatermark | None:
        """Return that of the least watermark, of equal ones one that is held back; None of none."""
        of = (self.watermarks[name] for name in streams)
        return min(of, key=lambda each: (each.after, each.held_by is None), default=None)


def require_agreement(advanced: Advanced, used: Iterable[str]) -> None:
    """Raise TerminalError unless all tasks ran their steps by the driver's watermarks; the decision would not be what they did.

    Args:
        used: what `Advanced.used` gave in each task.
    """
    for each in sorted(set(used)):
        for name, after in json.loads(each).items():
            if after != advanced.watermarks[name].after:
                raise TerminalError(
                    f"{name}: a task came to the watermark {after}, and the driver to {advanced.watermarks[name].after}",
                    next="have your watermark generators depend on nothing but what they are given, such as the clock or chance",
                )


@dataclass(frozen=True)
class StreamTimes:
    """The event time of a job."""

    graph: TimeGraph

    def initial(self) -> TimeState:
        """Return the state before the first checkpoint."""
        return TimeState()

    def resume(self, state: TimeState) -> TimeState:
        """Return the state that a start of the job goes on with.

        How long partitions have been silent is counted again, and behind the end of its input a stream has the watermark
        that it had before it.
        """
        streams = {
            name: StreamTime(
                watermark=each.before_end if each.watermark == MAX else each.watermark,
                before=each.before,
                idle=each.idle and each.watermark != MAX,
                channels={n: channel for n, channel in each.channels.items() if channel.watermark != MAX},
            )
            for name, each in state.streams.items()
        }
        sources = {
            assigner: {name: _awake(each) for name, each in sources.items() if each.watermark != MAX}
            for assigner, sources in state.sources.items()
        }
        return TimeState(clock=state.clock, streams=streams, sources=sources)

    def directive(
        self, state: TimeState, now_ms: int, sources: Mapping[str, SourceInput], *, drain: bool = False
    ) -> TimeDirective:
        """Return what the tasks of the next checkpoint are given.

        Args:
            state: behind the checkpoint before.
            now_ms: the clock; a clock that was set back stands still here.
            sources: by id; one that is missing has no partitions and has not ended.
            drain: whether the input ends for good with the checkpoint.
        """
        return TimeDirective(state, max(state.clock, now_ms), dict(sources), drain)

    def advance(self, directive: TimeDirective, reports: Iterable[SplitTimes] = ()) -> Advanced:
        """Return the watermarks behind a checkpoint.

        Args:
            reports: of all tasks; none for a look at the clock alone.

        Raises:
            TerminalError: two tasks read one partition whose generator looks at each record.
        """
        return _Step(self.graph, directive, seen_by_assigner(reports)).run()


def _awake(source: SourceTime) -> SourceTime:
    partitions = {name: msgspec.structs.replace(each, silent_since=None) for name, each in source.partitions.items()}
    return msgspec.structs.replace(source, silent_since=None, partitions=partitions)


@dataclass(frozen=True, slots=True)
class _Stream:
    """What is known of a stream while the graph is walked; `before` is the watermark that its rows are judged by."""

    before: int
    input: Input
    ended: bool


@dataclass
class _Step:
    """One walk along the graph."""

    graph: TimeGraph
    directive: TimeDirective
    seen: Seen
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _kept: dict[str, StreamTime] = field(default_factory=dict)
    _sources: dict[str, dict[str, SourceTime]] = field(default_factory=dict)

    def run(self) -> Advanced:
        self._held = held(self.graph, self.directive.state)
        for node in self.graph.nodes:
            if node.is_source:
                self._streams[node.id] = self._source(node)
            elif node.strategy is not None:
                self._streams[node.id] = self._assigner(node)
            else:
                self._streams[node.id] = self._passed(node)
        state = TimeState(clock=self.directive.clock, streams=self._kept, sources=self._sources)
        watermarks = {
            name: StreamWatermark(each.before, each.input.watermark, each.input.idle, each.ended, each.input.holder)
            for name, each in self._streams.items()
        }
        return Advanced(state, watermarks)

    def _source(self, node: TimeNode) -> _Stream:
        # Rows without event time hold no watermark back, but while they come the input has not ended.
        ended = self._has_ended(node.id)
        return _Stream(MIN, Input(MAX if ended else MIN, not ended, None, MIN, True), ended)

    def _has_ended(self, source: str) -> bool:
        return self.directive.drain or self.directive.sources.get(source, _NOTHING).ended

    def _assigner(self, node: TimeNode) -> _Stream:
        assert node.strategy is not None
        before = self.directive.state.sources.get(node.id, {})
        ended = all(self._streams[name].ended for name in node.inputs)
        inputs: dict[str, Input] = {}
        after = self._sources[node.id] = {}
        for name in node.sources:
            source = SourceWatermark(node.strategy, before.get(name))
            if source.watermark != MAX:
                self._read(node.id, name, source)
            reached, reached_idle = source.watermark, source.idle
            if ended if name == UNKNOWN else self._has_ended(name):
                source.end()
            after[name] = source.state()
            holder = StreamHolder(node.id) if name == UNKNOWN else StreamHolder(name, source.held_by)
            inputs[name] = Input(source.watermark, source.idle, holder, reached, reached_idle)
        return self._stream(node, inputs, ended)

    def _read(self, assigner: str, name: str, source: SourceWatermark) -> None:
        known_of = self.directive.sources.get(name, _NOTHING)
        partitions: Sequence[str] | None = [UNKNOWN] if name == UNKNOWN else known_of.partitions
        waiting = self._held.get((assigner, name))
        if waiting is not None and waiting.everything:
            source.wait()
        seen: Mapping[str, PartitionSeen] = self.seen.get(assigner, {}).get(name, {})
        source.checkpoint(seen, self.directive.clock, partitions, () if waiting is None else waiting.partitions)

    def _passed(self, node: TimeNode) -> _Stream:
        inputs = {name: self._streams[name] for name in node.inputs}
        ended = all(each.ended for each in inputs.values())
        if node.kept:
            behind = {name: _held_back(each.input, node.behind_ms) for name, each in inputs.items()}
            return self._stream(node, behind, ended)
        (only,) = inputs.values()
        return _Stream(only.before, only.input, ended)

    def _stream(self, node: TimeNode, inputs: Mapping[str, Input], ended: bool) -> _Stream:
        state = self.directive.state.streams.get(node.id, StreamTime())
        before = known(state.watermark)
        combined = combine(inputs, before, state.channels)
        each = combined.input
        before_end = None
        if each.watermark == MAX:
            before_end = state.before_end if before == MAX else shown(min(each.reached, MAX - 1))
        self._kept[node.id] = StreamTime(
            shown(each.watermark), state.watermark, before_end, each.idle, combined.channels
        )
        return _Stream(before, each, ended)


def _held_back(given: Input, ms: int) -> Input:
    """Return an input that has come so much less far; one that has come to its end has."""
    if not ms:
        return given
    watermark, reached = (at if at in (MIN, MAX) else max(at - ms, MIN) for at in (given.watermark, given.reached))
    return replace(given, watermark=watermark, reached=reached)


_NOTHING = SourceInput(partitions=())


# --- what the tasks of a checkpoint saw, by partition: in whatever order reports come, and however often ------------------


def merged(reports: Iterable[SplitTimes]) -> list[SplitTimes]:
    """Return the reports as one for each partition, in a fixed order.

    It is what a task hands on to the next stage of what it received: any number of tasks may hand on the same.

    Raises:
        TerminalError: as `seen_by_assigner`.
    """
    return [
        SplitTimes(assigner, source, partition, SUMMARY, each.greatest, each.count, each.generator)
        for assigner, sources in sorted(seen_by_assigner(reports).items())
        for source, partitions in sorted(sources.items())
        for partition, each in sorted(partitions.items())
    ]


def seen_by_assigner(reports: Iterable[SplitTimes]) -> Seen:
    """Return what was seen of each partition.

    Raises:
        TerminalError: two tasks read one partition whose generator looks at each record, so neither has seen all of it.
    """
    by_split: dict[tuple[str, str], dict[tuple[str, int], SplitTimes]] = {}
    summaries: set[tuple[str, str]] = set()
    for report in reports:
        place = report.assigner, report.source
        by_split.setdefault(place, {})[report.partition, report.sequence] = report
        if report.sequence == SUMMARY:
            summaries.add(place)
    seen: dict[str, dict[str, dict[str, PartitionSeen]]] = {}
    for (assigner, source), splits in by_split.items():
        whole = (assigner, source) in summaries
        partitions = seen.setdefault(assigner, {}).setdefault(source, {})
        for (partition, sequence), report in splits.items():
            if not whole or sequence == SUMMARY:
                partitions[partition] = _together(partitions.get(partition), report)
    return seen


def _together(seen: PartitionSeen | None, report: SplitTimes) -> PartitionSeen:
    if seen is None:
        return PartitionSeen(report.greatest, report.count, report.generator)
    if report.generator is not None or seen.generator is not None:
        raise TerminalError(
            f"{report.assigner}: two tasks read {report.partition} of {report.source}, whose watermark generator looks at each record",
            next="report this as a bug: the splits of such a partition belong to one task",
        )
    return PartitionSeen(max(seen.greatest, report.greatest), seen.count + report.count)
