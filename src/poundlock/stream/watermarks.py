"""Watermark strategies as a user names them: where a row's event time comes from, and how late a row may be.

Plain values; `operators/` says what they mean, and the driver of a job applies them once a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, Protocol, runtime_checkable

from poundlock.arguments import function_name, refuse_without_effect
from poundlock.calls import check_function, check_methods
from poundlock.errors import DefinitionError
from poundlock.values import duration, format_duration

Kind = Literal["bounded", "monotonous", "none", "generator", "ingestion", "processing"]
Timestamp = str | Callable[[dict[str, Any]], Any]

_CLOCKED = ("ingestion", "processing")
_CALLED = 'write timestamp="timestamp_seconds(ts)", the name of a column, or a function of a record'


class WatermarkOutput(Protocol):
    """Where a generator sends what it finds; it is that of one source partition."""

    def emit_watermark(self, timestamp: int) -> None:
        """Say that no row with an event time up to this (ms since 1970) is expected any more. Never moves back."""

    def mark_idle(self) -> None:
        """Say that the partition is to be waited for no longer, until it emits a watermark or is marked active."""

    def mark_active(self) -> None:
        """Say that the partition is to be waited for again."""


class WatermarkGenerator(Protocol):
    """A user's own watermarks, once a checkpoint for each source partition: the greatest event time and how many rows had one.

    A generator is made again from what `snapshot` of the last one gave; without that method from its attributes, if they are
    plain JSON. It may depend on nothing but what it is given, for the driver and every task have to get the same from it.
    """

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Take what a checkpoint read of the partition; called only if it read something.

        Args:
            timestamp: greatest event time among those rows, ms since 1970.
            count: how many rows of the checkpoint had an event time.
            output: where watermarks go.
        """

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called after every checkpoint, and while nothing comes."""


@runtime_checkable
class Snapshots(Protocol):
    """A generator that says itself what another one goes on from."""

    def snapshot(self) -> Any:
        """Return it as plain JSON."""

    def restore(self, state: Any) -> None:
        """Go on from what `snapshot` of another one returned."""


class RecordWatermarkGenerator(Protocol):
    """A user's own watermarks out of each record, as Flink's punctuated ones; see `WatermarkStrategy.for_generator(…, per_record=True)`.

    There is one object for each source partition, in the task that reads it; it sees the records in the order of the partition.
    The next checkpoint's task, and a restart, goes on from its `snapshot`; without that method from its attributes, if they
    are plain JSON. It may depend on nothing but what it is given: other tasks, and a checkpoint that is run again, must get
    the same from it.
    """

    def on_record(self, record: dict[str, Any], timestamp: int, output: WatermarkOutput) -> None:
        """Take a record.

        Args:
            record: column name to value, with the column of event time.
            timestamp: its event time, ms since 1970.
            output: where watermarks go.
        """

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called behind the last record of a checkpoint, and where a checkpoint has none of the partition."""


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Sources that are not to run ahead of each other.

    Args:
        group: the name of the group.
        max_drift: how far ahead of the slowest of the group a source may be.
    """

    group: str
    max_drift: timedelta


@dataclass(frozen=True, kw_only=True)
class WatermarkStrategy:
    """How event time is taken from rows, and how the watermark follows it. Make one with a method such as `bounded_out_of_orderness`.

    Args:
        timestamp: a row's event time: the name of a column, a Spark SQL expression such as "timestamp_seconds(ts)", or a
            Python function of a record. A whole number is ms since 1970; a function may also give a datetime.
        delay: how much earlier than the latest of its partition a row's event time may be.
        column: the column the event time is put into.
        kind: which of the strategies it is.
        generator: makes a user's generator.
        per_record: whether that sees each record (`RecordWatermarkGenerator`) and not each checkpoint (`WatermarkGenerator`).
        idleness: a partition without rows for longer is not waited for; None = it always is.
        alignment: the group of sources this one may not run ahead of; None = none.
    """

    timestamp: Timestamp | None = None
    delay: timedelta = timedelta(0)
    column: str = "event_time"
    kind: Kind = "bounded"
    generator: Callable[[], WatermarkGenerator] | Callable[[], RecordWatermarkGenerator] | None = None
    per_record: bool = False
    idleness: timedelta | None = None
    alignment: Alignment | None = None

    def __post_init__(self) -> None:
        if isinstance(self.timestamp, str) and not self.timestamp.strip():
            raise DefinitionError("a watermark needs to know the time of a row", next=_CALLED)
        if self.timestamp is not None and not isinstance(self.timestamp, str) and not callable(self.timestamp):
            raise DefinitionError(f"{self.timestamp!r} is no timestamp assigner", next=_CALLED)
        if callable(self.timestamp):
            check_function(self.timestamp, "the timestamp assigner", "record")
        if not isinstance(self.column, str) or not self.column.strip():
            raise DefinitionError("the event time needs a column", next='write column="event_time"')
        if not isinstance(self.delay, timedelta):
            raise DefinitionError(
                f"delay={self.delay!r} is no timedelta",
                next='write WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp=…)',
            )
        if self.delay < timedelta(0):
            raise DefinitionError(f"a delay of {format_duration(self.delay)}", next='give "0 s" or more')
        self._refuse_without_effect()

    def _refuse_without_effect(self) -> None:
        unused: dict[str, tuple[object, object]] = {}
        if self.kind != "bounded":
            unused["delay"] = (self.delay, timedelta(0))
        if self.kind != "generator":
            unused |= {"generator": (self.generator, None), "per_record": (self.per_record, False)}
        if self.clocked:
            unused |= {"timestamp": (self.timestamp, None), "idleness": (self.idleness, None)}
        if self.clocked or self.kind == "none":
            unused["alignment"] = (self.alignment, None)
        refuse_without_effect("WatermarkStrategy", unused, because=f"kind is {self.kind!r}")

    @classmethod
    def bounded_out_of_orderness(
        cls, delay: str | timedelta, *, timestamp: Timestamp | None = None, column: str = "event_time"
    ) -> WatermarkStrategy:
        """Return the strategy for rows that come at most `delay` after later ones of their partition.

        The watermark of a partition is its greatest event time less the delay and one millisecond, as in Flink.

        Args:
            delay: such as "5 s"; "0 s" for rows in order.
            timestamp: see the class; `with_timestamp_assigner` can give it too.
            column: the column the event time is put into.

        Raises:
            DefinitionError: the delay is negative, or an expression or name is empty.
        """
        return cls(timestamp=timestamp, delay=duration(delay), column=column)

    @classmethod
    def for_monotonous_timestamps(
        cls, *, timestamp: Timestamp | None = None, column: str = "event_time"
    ) -> WatermarkStrategy:
        """Return the strategy for partitions in which event time never goes back: no delay."""
        return cls(timestamp=timestamp, column=column, kind="monotonous")

    @classmethod
    def monotonous(cls, *, timestamp: Timestamp | None = None, column: str = "event_time") -> WatermarkStrategy:
        """Return `for_monotonous_timestamps(…)`."""
        return cls.for_monotonous_timestamps(timestamp=timestamp, column=column)

    @classmethod
    def no_watermarks(cls, *, timestamp: Timestamp | None = None, column: str = "event_time") -> WatermarkStrategy:
        """Return the strategy without watermarks: event time stands still until the input ends."""
        return cls(timestamp=timestamp, column=column, kind="none")

    @classmethod
    def for_generator(
        cls,
        generator: Callable[[], WatermarkGenerator] | Callable[[], RecordWatermarkGenerator],
        *,
        timestamp: Timestamp | None = None,
        column: str = "event_time",
        per_record: bool = False,
    ) -> WatermarkStrategy:
        """Return the strategy of a user's own generator.

        Args:
            generator: makes one for a partition, such as the class itself.
            timestamp, column: see the class.
            per_record: False = it is called once a checkpoint, see `WatermarkGenerator`; True = with each record, see
                `RecordWatermarkGenerator`. The splits of a partition are read by one task of a checkpoint then.
        """
        if not callable(generator):
            raise DefinitionError(
                f"{generator!r} makes no generators", next="give the class of your WatermarkGenerator, or a function"
            )
        needed = "on_record" if per_record else "on_event"
        if isinstance(generator, type) and not hasattr(generator, needed):
            raise DefinitionError(
                f"the watermark generator {generator.__name__} has no method {needed}",
                next="write on_record(self, record, timestamp, output) and say per_record=True"
                if "on_record" in dir(generator)
                else f"write {needed}, or change per_record=",
            )
        check_function(generator, "for_generator")
        if isinstance(generator, type):
            for base in (RecordWatermarkGenerator if per_record else WatermarkGenerator, Snapshots):
                check_methods(generator, base, "for_generator")
        return cls(timestamp=timestamp, column=column, kind="generator", generator=generator, per_record=per_record)

    @classmethod
    def ingestion_time(cls, *, column: str = "event_time") -> WatermarkStrategy:
        """Return the strategy that gives rows the time at which their checkpoint began; nothing is ever late.

        The time is read once a checkpoint, for all of its tasks.
        """
        return cls(column=column, kind="ingestion")

    @classmethod
    def processing_time(cls, *, column: str = "event_time") -> WatermarkStrategy:
        """Return `ingestion_time`, but for the end of a bounded input: windows that are open then are not fired, as in Flink."""
        return cls(column=column, kind="processing")

    def with_timestamp_assigner(self, timestamp: Timestamp) -> WatermarkStrategy:
        """Return the strategy with another way to an event time: a column, a Spark SQL expression, or a function of a record."""
        if self.clocked:
            raise DefinitionError(f"{self.kind} time takes no event time from rows", next="leave the assigner out")
        return replace(self, timestamp=timestamp)

    def with_idleness(self, timeout: str | timedelta) -> WatermarkStrategy:
        """Return the strategy that waits no longer for a partition without rows for more than `timeout`.

        Raises:
            DefinitionError: the timeout is zero, or the watermark is that of a clock, which waits for no partition.
        """
        if self.clocked:
            raise DefinitionError(
                f"with_idleness: timeout has no effect, because {self.kind} time goes on without rows",
                next="leave with_idleness out",
            )
        span = duration(timeout)
        if span <= timedelta(0):
            raise DefinitionError(
                f"an idle timeout of {format_duration(span)}", next='give one above zero, such as "1 min"'
            )
        return replace(self, idleness=span)

    def with_watermark_alignment(
        self, group: str, max_drift: str | timedelta, update: str | timedelta = "1 s"
    ) -> WatermarkStrategy:
        """Return the strategy of a source that waits when it is more than `max_drift` ahead of the slowest of a group.

        Args:
            group: a name that several sources of the job share.
            max_drift: such as "1 min".
            update: stands in Flink's signature. Ranges are planned once a checkpoint, so only the default is taken.

        Raises:
            DefinitionError: the group has no name, or `update` is not the default.
        """
        refuse_without_effect(
            "with_watermark_alignment",
            {"update": (duration(update), timedelta(seconds=1))},
            because="a source is held back when a checkpoint is planned",
            next="leave update out, and set Job(checkpoint_interval=…)",
        )
        if not isinstance(group, str) or not group.strip():
            raise DefinitionError("watermark alignment needs the name of a group", next='write ("group", "1 min")')
        return replace(self, alignment=Alignment(group=group, max_drift=duration(max_drift)))

    @property
    def clocked(self) -> bool:
        """Whether rows get their time from a clock and not from themselves."""
        return self.kind in _CLOCKED

    @property
    def time_name(self) -> str:
        """What people know the event time of a row by."""
        return self.timestamp if isinstance(self.timestamp, str) else self.column

    def check(self) -> None:
        """Raise DefinitionError if there is no saying what a row's event time is."""
        if self.timestamp is None and not self.clocked:
            raise DefinitionError("a watermark needs to know the time of a row", next=_CALLED)

    def describe(self) -> str:
        """Return one line for `explain`."""
        parts = [self._time(), *self._late()]
        if self.idleness is not None:
            parts.append(f"idle after {format_duration(self.idleness)}")
        if self.alignment is not None:
            drift = format_duration(self.alignment.max_drift)
            parts.append(f"at most {drift} ahead of group {self.alignment.group}")
        return ", ".join(parts)

    def _time(self) -> str:
        if self.clocked:
            return f"{self.kind} time as {self.column}"
        name = self.timestamp if isinstance(self.timestamp, str) else function_name(self.timestamp)
        return f"event time {name} as {self.column}"

    def _late(self) -> list[str]:
        if self.kind == "bounded":
            return [f"at most {format_duration(self.delay)} late"]
        if self.kind == "generator":
            name = function_name(self.generator)
            return [f"watermarks of {name}, which sees each record" if self.per_record else f"watermarks of {name}"]
        return {"monotonous": ["in order"], "none": ["no watermarks"]}.get(self.kind, [])
