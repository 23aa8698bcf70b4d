"""When a part file is full or old enough to be finished, and whether small ones are merged before they become visible.

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
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, duration(value))
                if duration(value) < timedelta(milliseconds=1):
                    to_do = "use on_checkpoint=True to roll at each one"
                    raise DefinitionError(f"RollingPolicy {name}={value!r} is zero", next=to_do)
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
        return _ms(self.every)

    @property
    def inactivity_ms(self) -> int | None:
        """The inactivity limit in ms."""
        return _ms(self.inactivity)

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
        every = "" if self.every is None else f"every {format_duration(duration(self.every))}"
        over = "" if self.max_bytes is None else f"over {format_bytes(self.max_bytes)}"
        idle = "" if self.inactivity is None else f"idle {format_duration(duration(self.inactivity))}"
        return ", ".join(filter(None, (every, over, idle))) or "at the end"


@dataclass(frozen=True, kw_only=True)
class FileCompaction:
    """Merge small finished parts of a bucket, over all subtasks, into one before readers see them.

    Args:
        min_size: merge what waits in a bucket once it adds up to this, such as "64 MB".
        every_checkpoints: and at every n-th checkpoint, whatever waits.
        max_wait: and at the latest after this time, so that an idle bucket's data becomes visible; None = not by time.

    Raises:
        DefinitionError: neither a size nor a number of checkpoints is given, or one is not positive.
    """

    min_size: str | int | None = None
    every_checkpoints: int | None = None
    max_wait: str | timedelta | None = "10 min"

    def __post_init__(self) -> None:
        if self.min_size is None and self.every_checkpoints is None:
            raise DefinitionError("FileCompaction says nothing", next='give min_size="64 MB" or every_checkpoints=10')
        if self.min_size is not None:
            object.__setattr__(self, "min_size", size(self.min_size))
        count = self.every_checkpoints
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise DefinitionError(f"every_checkpoints={count!r} is not a number", next="give 1 or more")
        if self.max_wait is not None:
            object.__setattr__(self, "max_wait", duration(self.max_wait))

    @property
    def max_wait_ms(self) -> int | None:
        """The longest wait in ms."""
        return _ms(self.max_wait)


def _ms(value: str | timedelta | None) -> int | None:
    """Return a time span in whole milliseconds; None = no such limit."""
    return None if value is None else round(duration(value) / timedelta(milliseconds=1))
