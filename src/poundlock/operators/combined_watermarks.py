"""Several inputs of one step as one watermark: the least of the active ones, as Flink's StatusWatermarkValve combines them.

It never moves back; an input that was idle counts again only once it has caught up, and one that has ended holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from poundlock.operators.time_values import MAX, MIN, ChannelTime, StreamHolder

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
