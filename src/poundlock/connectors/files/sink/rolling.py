"""When a part file is full or old enough to be finished: the rolling policy and nothing else.

Time is always an argument; the same times and sizes give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from poundlock.arguments import defaults_of, refuse_without_effect
from poundlock.errors import DefinitionError
from poundlock.values import duration, format_bytes, format_duration, size


@dataclass(frozen=True, kw_only=True)
class RollingPolicy:
    """When a pending part file becomes a finished one. Whatever comes first; None = no such limit.

    Args:
        every: age since the first record, such as "60 s".
        size: bytes, such as "128 MB"; a record that finds the part larger than this opens a new one.
        inactivity: time since the last record.
        on_checkpoint: finish every part at every checkpoint, so that data is visible after one interval.

    Raises:
        DefinitionError: a limit is not a duration or size, is zero, or has no effect beside on_checkpoint.
    """

    every: str | timedelta | None = "60 s"
    size: str | int | None = "128 MB"
    inactivity: str | timedelta | None = "60 s"
    on_checkpoint: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "inactivity"):
            value = getattr(self, name)
            if value is not None:
                span = duration(value)
                if span < timedelta(milliseconds=1):
                    raise DefinitionError(
                        f"RollingPolicy {name}={value!r} is zero", next="use on_checkpoint=True to roll at each one"
                    )
                object.__setattr__(self, name, span)
        if self.on_checkpoint:
            standing = defaults_of(RollingPolicy, "every", "inactivity")
            times = {
                name: (value, duration(default))
                for name, default in standing.items()
                if (value := getattr(self, name)) is not None
            }
            refuse_without_effect(
                "RollingPolicy", times, because="on_checkpoint finishes every part at every checkpoint"
            )
        if self.size is not None:
            object.__setattr__(self, "size", size(self.size))

    @property
    def max_bytes(self) -> int | None:
        """The size limit in bytes."""
        return self.size  # type: ignore[return-value]

    @property
    def every_ms(self) -> int | None:
        """The age limit in ms."""
        return to_ms(self.every)

    @property
    def inactivity_ms(self) -> int | None:
        """The inactivity limit in ms."""
        return to_ms(self.inactivity)

    def full(self, bytes: int) -> bool:
        """Return whether a part of this size takes no further record."""
        return self.max_bytes is not None and bytes > self.max_bytes

    def due_ms(self, created_ms: int, last_write_ms: int) -> int | None:
        """Return the time, ms since the epoch, from which a part is finished by age or inactivity; None = never."""
        limits = ((created_ms, self.every_ms), (last_write_ms, self.inactivity_ms))
        return min((since + limit for since, limit in limits if limit is not None), default=None)

    def due(self, created_ms: int, last_write_ms: int, now_ms: int) -> bool:
        """Return whether a part is finished by age or inactivity."""
        at = self.due_ms(created_ms, last_write_ms)
        return at is not None and now_ms >= at

    def describe(self) -> str:
        """Return the policy for people, one line."""
        if self.on_checkpoint:
            return "each checkpoint"
        parts = []
        if self.every is not None:
            parts.append(f"every {format_duration(duration(self.every))}")
        if self.max_bytes is not None:
            parts.append(f"over {format_bytes(self.max_bytes)}")
        if self.inactivity is not None:
            parts.append(f"idle {format_duration(duration(self.inactivity))}")
        return ", ".join(parts) or "at the end"


def to_ms(value: str | timedelta | None) -> int | None:
    """Return a time span in whole milliseconds; None = no such limit."""
    return None if value is None else round(duration(value) / timedelta(milliseconds=1))
