"""Several inputs' watermarks as one: the least of the active ones, as Flink's StatusWatermarkValve combines them.

It never moves back; an input that was idle counts again only once it has caught up, and one that has ended holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.operators.generators import MAX, MIN

Status = Literal["active", "idle"]
Emitted = list[int | Status]


@dataclass(slots=True)
class _Channel:
    watermark: int = MIN
    active: bool = True
    aligned: bool = True


class StatusWatermarkValve:
    """Combines the watermarks and statuses of channels; all are active at first.

    Args:
        channels: their names.
    """

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
