"""Several inputs of one step as one watermark, by Flink's valve: the least of the active ones, and it never moves back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poundlock.operators.time_values import MAX, ChannelTime
from poundlock.operators.valve import StatusWatermarkValve


@dataclass(frozen=True, slots=True)
class StreamHolder:
    """Who holds a watermark back: a source, and of that a partition, where one is known."""

    source: str
    partition: str | None = None

    def __str__(self) -> str:
        return self.source if self.partition is None else f"{self.partition} of {self.source}"


@dataclass(frozen=True, slots=True)
class Input:
    """What an input of a step has come to.

    Args:
        watermark: ms; MIN before any, MAX behind its end.
        idle: whether nobody waits for it.
        holder: who holds it back.
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
    channels = {
        name: {"watermark": each.watermark, "idle": each.idle, "behind": each.behind} for name, each in state.items()
    }
    valve.restore(channels, before)
    # What came in this checkpoint first, then the ends: an input that ends has come as far as its rows for the others.
    reached = {name: (each.reached, each.reached_idle) for name, each in inputs.items()}
    ends = {name: (each.watermark, each.idle) for name, each in inputs.items()}
    before_end = _feed(valve, reached)
    watermark = before_end if ends == reached else _feed(valve, ends)
    going = {name: each for name, each in inputs.items() if not each.idle and each.watermark != MAX}
    holder = going[min(going, key=lambda name: (going[name].watermark, name))].holder if going else None
    after = {
        name: ChannelTime(each["watermark"], each.get("idle", False), each.get("behind", False))
        for name, each in valve.to_json().items()
    }
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
