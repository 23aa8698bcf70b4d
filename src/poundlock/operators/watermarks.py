"""The watermark of one source at one assigner, which is the least of its active partitions, and that of several inputs of one step.

None ever moves back, whatever partitions come and go. A source's is made from its state for one step and gives the state behind it,
so every process that makes the same step gets the same. Inputs are combined as Flink's StatusWatermarkValve does it: one that was
idle counts again only once it has caught up, and one that has ended holds nobody back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from poundlock.operators.generators import Generator, IdlenessTimer, PartitionOutput, kept_generators
from poundlock.operators.time_values import (
    MAX,
    MIN,
    ChannelTime,
    GeneratorReport,
    PartitionTime,
    SourceTime,
    StreamHolder,
    known,
    shown,
)
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import span_ms

CLOCK = "clock"
"""The one partition of a source whose rows get their time from the clock."""


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """What a checkpoint read of one partition: the greatest event time, ms, how many rows had one, what a generator made of them."""

    greatest: int
    count: int = 1
    generator: GeneratorReport | None = None


@dataclass(slots=True)
class _Partition:
    generator: Generator
    timer: IdlenessTimer | None
    output: PartitionOutput = field(default_factory=PartitionOutput)

    def state(self) -> PartitionTime:
        since = None if self.timer is None else self.timer.silent_since
        return PartitionTime(shown(self.output.watermark), self.output.idle, since, self.generator.snapshot())


class SourceWatermark:
    """The watermark of a source; `state` is that behind the step before, None for a new source."""

    def __init__(self, strategy: WatermarkStrategy, state: SourceTime | None = None) -> None:
        state = SourceTime() if state is None else state
        self.strategy = strategy
        self.watermark = known(state.watermark)
        """The watermark of the source, ms; MIN before any."""
        self.idle = state.idle
        """Whether nobody waits for the source."""
        self.held_by = state.held_by
        """The partition with the least watermark of the active ones."""
        self._partitions: dict[str, _Partition] = {}
        self._new_generator = kept_generators(strategy)
        # A clock is never silent, and rows that are given its time are not looked at.
        idleness = None if strategy.clocked else strategy.idleness
        self._timeout_ms = None if idleness is None else span_ms(idleness)
        self._timer = self._new_timer(state.silent_since)  # of a source whose splits come and go with every checkpoint
        for name, each in state.partitions.items():
            self._partitions[name] = self._restored(each)

    def _new_timer(self, silent_since: int | None) -> IdlenessTimer | None:
        return None if self._timeout_ms is None else IdlenessTimer(self._timeout_ms, silent_since)

    def _restored(self, state: PartitionTime) -> _Partition:
        partition = _Partition(self._new_generator(), self._new_timer(state.silent_since))
        partition.output.watermark, partition.output.idle = known(state.watermark), state.idle
        partition.generator.restore(state.generator)
        return partition

    @property
    def partitions(self) -> Mapping[str, int]:
        """The watermark of each partition, MIN where it has none yet."""
        return {name: each.output.watermark for name, each in self._partitions.items()}

    # --- one partition --------------------------------------------------------------------------------------------------

    def add(self, partition: str) -> None:
        """Take a new partition in: it is waited for from now on."""
        if partition not in self._partitions:
            self._partitions[partition] = self._restored(PartitionTime())

    def remove(self, partition: str) -> None:
        """Forget a partition. What it held back moves on with the next step."""
        self._partitions.pop(partition, None)

    def emit(self, partition: str, watermark: int) -> int:
        """Take the watermark of a partition, which makes it active; return that of the source."""
        self._partitions[partition].output.emit_watermark(watermark)
        return self._combine()

    def mark_idle(self, partition: str) -> int:
        """Wait no longer for a partition; return the watermark of the source."""
        self._partitions[partition].output.mark_idle()
        return self._combine()

    # --- a step of all of them ------------------------------------------------------------------------------------------

    def checkpoint(
        self,
        seen: Mapping[str, PartitionSeen],
        now_ms: int,
        partitions: Collection[str] | None = None,
        held: Collection[str] = (),
    ) -> int:
        """Take what a checkpoint read; return the watermark behind it.

        Args:
            seen: per partition that had rows.
            partitions: all that may have rows after this checkpoint; None = splits that were read to their end.
            held: partitions that wait for their alignment group: what is not read is not silent.
        """
        if self.strategy.clocked:
            return self._step({}, now_ms, [CLOCK], ())
        if partitions is None:
            return self._splits(seen, now_ms)
        return self._step(seen, now_ms, partitions, held)

    def wait(self) -> None:
        """Note that the source as a whole waits for its alignment group, so it is not silent."""
        for timer in (self._timer, *(each.timer for each in self._partitions.values())):
            if timer is not None:
                timer.activity()

    def end(self) -> int:
        """Take the end of the input; return the watermark behind it, MAX. Processing time does not end."""
        if self.strategy.kind != "processing":
            self.watermark, self.idle, self.held_by = MAX, False, None
        return self.watermark

    def state(self) -> SourceTime:
        partitions = {name: each.state() for name, each in sorted(self._partitions.items())}
        since = None if self._timer is None else self._timer.silent_since
        return SourceTime(shown(self.watermark), self.idle, self.held_by, since, partitions)

    def _step(
        self, seen: Mapping[str, PartitionSeen], now_ms: int, partitions: Collection[str], held: Collection[str]
    ) -> int:
        wanted = {*partitions, *seen}
        for name in [name for name in self._partitions if name not in wanted]:
            self.remove(name)
        for name in sorted(wanted):
            self.add(name)
        self._take(seen)
        for name in held:
            if name in self._partitions and (timer := self._partitions[name].timer) is not None:
                timer.activity()
        silent = {n for n, p in self._partitions.items() if p.timer is not None and p.timer.is_idle(now_ms)}
        self._emit(now_ms, seen, silent)
        # As if one after the other, the slowest first: where all fall silent together, the source ends at the greatest.
        outputs = [self._partitions[name].output for name in silent]
        falling = sorted((each for each in outputs if not each.idle), key=lambda each: each.watermark)
        for output in falling[:-1]:
            output.mark_idle()
        self._combine()
        for output in falling[-1:]:
            output.mark_idle()
        for name in wanted.difference(partitions):  # read to their end: they hold nobody back behind this checkpoint
            self.remove(name)
        return self._combine()

    def _splits(self, seen: Mapping[str, PartitionSeen], now_ms: int) -> int:
        """They count once, against each other: the least of them is what the source has reached."""
        self._partitions = {}
        for name in sorted(seen):
            self.add(name)
        self._take(seen)
        self._emit(now_ms, seen)
        self._combine()
        self._partitions = {}
        if self._timer is not None:
            if seen:
                self._timer.activity()
            self.idle = self._timer.is_idle(now_ms)
        return self.watermark

    def _take(self, seen: Mapping[str, PartitionSeen]) -> None:
        for name in sorted(seen):
            partition, each = self._partitions[name], seen[name]
            partition.output.mark_active()
            if partition.timer is not None:
                partition.timer.activity()
            if each.generator is None:
                partition.generator.on_event(each.greatest, each.count, partition.output)
                continue
            if each.generator.watermark is not None:
                partition.output.emit_watermark(each.generator.watermark)
            partition.output.idle = each.generator.idle
            partition.generator.restore(each.generator.snapshot)

    def _emit(self, now_ms: int, seen: Mapping[str, PartitionSeen], silent: Set[str] = frozenset()) -> None:
        for name, partition in self._partitions.items():
            if name in seen and seen[name].generator is not None:
                continue  # it emitted what it had to in the task that read the partition
            if name not in silent and not (partition.output.idle and partition.timer is not None):
                partition.generator.on_periodic_emit(now_ms, partition.output)

    def _combine(self) -> int:
        active = {name: each.output.watermark for name, each in self._partitions.items() if not each.output.idle}
        self.idle = bool(self._partitions) and not active
        if active:
            self.held_by = min(active, key=lambda name: (active[name], name))
            self.watermark = max(self.watermark, active[self.held_by])
        elif self._partitions:
            self.held_by = None
        return self.watermark


Status = Literal["active", "idle"]
Emitted = list[int | Status]


@dataclass(slots=True)
class _Channel:
    watermark: int = MIN
    active: bool = True
    aligned: bool = True


class StatusWatermarkValve:
    """Combines the watermarks and statuses of channels, which it knows by their names; all are active at first."""

    def __init__(self, channels: Iterable[Any]) -> None:
        self._channels: dict[Any, _Channel] = {name: _Channel() for name in channels}
        self.watermark = MIN
        """What went downstream last."""
        self.active = True
        """Whether any channel is."""

    def input_watermark(self, channel: Any, watermark: int) -> Emitted:
        """Take a channel's watermark; return what goes downstream for it."""
        current = self._channels[channel]
        if not self.active or not current.active or watermark <= current.watermark:
            return []
        current.watermark = watermark
        current.aligned = current.aligned or watermark >= self.watermark
        return self._least()

    def input_status(self, channel: Any, status: Status) -> Emitted:
        """Take a channel's status; return what goes downstream for it."""
        current = self._channels[channel]
        if (status == "active") == current.active:
            return []
        if status == "active":
            current.active = True
            current.aligned = current.watermark >= self.watermark
            woken: Emitted = [] if self.active else ["active"]
            self.active = True
            return woken
        # What went downstream may have been raised above an aligned channel, as by a restart.
        was_least = current.aligned and current.watermark <= self.watermark
        current.active = current.aligned = False
        if any(each.active for each in self._channels.values()):
            return self._least() if was_least else []
        self.active = False
        return [*(self._least() if was_least else []), "idle"]

    def raise_to(self, watermark: int) -> None:
        """Let nothing lower than this go downstream any more."""
        self.watermark = max(self.watermark, watermark)

    def _least(self) -> Emitted:
        # The last watermark of a channel is that of all only once all have it: behind it those that are silent could not go on.
        going = [each for each in self._channels.values() if each.watermark != MAX]
        if not going:
            return self._output(MAX)
        if aligned := [each.watermark for each in going if each.aligned]:
            return self._output(min(aligned))
        if any(each.active for each in going):
            return []
        return self._output(max(each.watermark for each in going))  # nobody goes on: whatever they had is flushed

    def _output(self, watermark: int) -> Emitted:
        if watermark <= self.watermark:
            return []
        self.watermark = watermark
        return [watermark]

    def to_json(self) -> dict[str, Any]:
        """Return its state: per channel the watermark (null = none yet), and what is not as at first."""
        return {
            name: {
                "watermark": None if each.watermark == MIN else each.watermark,
                **({} if each.active else {"idle": True}),
                **({} if each.aligned or not each.active else {"behind": True}),
            }
            for name, each in self._channels.items()
        }

    def restore(self, state: Mapping[str, Any], watermark: int) -> None:
        """Go on from a state; channels it does not know are as at first, and those it alone knows are gone.

        Args:
            state: what `to_json` gave.
            watermark: what had gone downstream.
        """
        for name, each in self._channels.items():
            if (saved := state.get(name)) is not None:
                value = saved.get("watermark")
                each.watermark = MIN if value is None else int(value)
                each.active = not saved.get("idle", False)
                each.aligned = each.active and not saved.get("behind", False)
        self.active = any(each.active for each in self._channels.values()) or not self._channels
        self.raise_to(watermark)


@dataclass(frozen=True, slots=True)
class Input:
    """What an input of a step has come to.

    Args:
        watermark: ms; MIN before any, MAX behind its end.
        idle: whether nobody waits for it.
        reached: its watermark without an end that came with this checkpoint.
        reached_idle: whether nobody would wait for it then.
    """

    watermark: int
    idle: bool
    holder: StreamHolder | None
    reached: int
    reached_idle: bool


@dataclass(frozen=True, slots=True)
class Combined:
    """What a step has come to: as an input of those behind it, and the state of its own inputs where there are several."""

    input: Input
    channels: dict[str, ChannelTime]


def combine(inputs: Mapping[str, Input], before: int, state: Mapping[str, ChannelTime]) -> Combined:
    """Return the inputs as one.

    Args:
        inputs: what they have come to, by name.
        before: the watermark that went downstream last, ms.
        state: of the inputs behind the step before; those it does not know are new.
    """
    if len(inputs) == 1:
        (only,) = inputs.values()
        watermark = max(before, only.watermark)
        holder = only.holder if watermark != MAX and not only.idle else None
        return Combined(Input(watermark, only.idle, holder, max(before, only.reached), only.reached_idle), {})
    valve = StatusWatermarkValve(inputs)
    valve.restore(msgspec.to_builtins(dict(state)), before)
    # What came in this checkpoint first, then the ends: an input that ends has come as far as its rows for the others.
    reached = {name: (each.reached, each.reached_idle) for name, each in inputs.items()}
    ends = {name: (each.watermark, each.idle) for name, each in inputs.items()}
    before_end = _feed(valve, reached)
    watermark = before_end if ends == reached else _feed(valve, ends)
    going = {name: each for name, each in inputs.items() if not each.idle and each.watermark != MAX}
    holder = going[min(going, key=lambda name: (going[name].watermark, name))].holder if going else None
    after = msgspec.convert(valve.to_json(), dict[str, ChannelTime])
    return Combined(Input(watermark, _all_silent(ends), holder, before_end, _all_silent(reached)), after)


def _feed(valve: StatusWatermarkValve, inputs: Mapping[str, tuple[int, bool]]) -> int:
    for name, (_, idle) in inputs.items():
        if not idle:
            valve.input_status(name, "active")
    # The least first: of inputs that wake up together none is left behind by another that comes before it by its name.
    for name, (watermark, _) in sorted(inputs.items(), key=lambda item: item[1][0]):
        valve.input_watermark(name, watermark)
    for name, (_, idle) in inputs.items():
        if idle:
            valve.input_status(name, "idle")
    return valve.watermark


def _all_silent(ends: Mapping[str, tuple[int, bool]]) -> bool:
    """Return whether nobody is waited for: inputs that have ended are not, and if all have there is an end to hand on."""
    going = [idle for watermark, idle in ends.values() if watermark != MAX]
    return bool(going) and all(going)
