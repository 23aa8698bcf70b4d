"""Watermark generators of one source partition, built in or a user's, and the timer that tells an idle partition.

Nothing here knows a clock: what depends on the time takes it as an argument. A generator may be made again at any time from its
snapshot, which is JSON, in any process; so a user's may depend on nothing but what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.time_values import MAX, MIN, GeneratorReport, shown
from poundlock.stream.watermarks import Snapshots, WatermarkOutput, WatermarkStrategy
from poundlock.values import span_ms


class Generator:
    """The watermarks of one partition. This one never emits any."""

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Take the greatest event time (ms) of some rows, and how many there were."""

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        """Emit what there is to emit; called after every checkpoint and while nothing comes."""

    def snapshot(self) -> Any:
        """Return what a new one needs to go on, as JSON."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a snapshot, which may be that of another strategy."""


@dataclass(slots=True)
class BoundedOutOfOrderness(Generator):
    """The greatest event time less a delay and one millisecond."""

    delay_ms: int
    greatest: int = MIN

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        self.greatest = max(self.greatest, timestamp)

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        if self.greatest != MIN:
            output.emit_watermark(self.watermark)

    @property
    def watermark(self) -> int:
        """The watermark of what came so far, MIN before anything."""
        return MIN if self.greatest == MIN else max(MIN, self.greatest - self.delay_ms - 1)

    def snapshot(self) -> Any:
        return None if self.greatest == MIN else self.greatest

    def restore(self, state: Any) -> None:
        if isinstance(state, int):
            self.greatest = state


class OfTheClock(Generator):
    """The time by the clock, less one millisecond: rows that come from now on are given a later time."""

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        output.emit_watermark(now_ms - 1)


_MADE: Mapping[str, Callable[[WatermarkStrategy], Callable[[], Generator]]] = {
    "bounded": lambda s: partial(BoundedOutOfOrderness, span_ms(s.delay)),
    "monotonous": lambda s: partial(BoundedOutOfOrderness, 0),
    "none": lambda s: Generator,
    "ingestion": lambda s: OfTheClock,
    "processing": lambda s: OfTheClock,
}


def generators_of(strategy: WatermarkStrategy) -> Callable[[], Generator]:
    """Return what makes a generator for one partition.

    Raises:
        DefinitionError: it looks at each record, which only the task that reads them can have it do.
    """
    if strategy.per_record:
        raise DefinitionError(
            "a watermark generator with per_record=True is run by the tasks that read a source, and not here",
            next="leave per_record=True out, and write on_event(self, timestamp, count, output)",
        )
    return _MADE[strategy.kind](strategy)


def generator_of(strategy: WatermarkStrategy) -> Generator:
    """Return a new generator for one partition; raises as `generators_of`."""
    return generators_of(strategy)()


_PLAIN = (type(None), bool, int, float, str)


@dataclass(slots=True)
class PartitionOutput:
    """Where the generator of one partition sends its watermarks; keeps the greatest, and whether the partition is idle."""

    watermark: int = MIN
    idle: bool = False

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark, ms. Raises DefinitionError for what is no whole number of milliseconds."""
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not MIN <= timestamp <= MAX:
            raise DefinitionError(
                f"a watermark generator emitted {timestamp!r}", next="emit a whole number of milliseconds since 1970"
            )
        self.idle = False
        self.watermark = max(self.watermark, timestamp)

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


@dataclass(slots=True)
class KeptGenerator(Generator):
    """A user's generator with a snapshot of it at any time: its own, or its attributes where they are plain values."""

    inner: Any

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        self.inner.on_event(timestamp, count, output)

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        self.inner.on_periodic_emit(output)

    def snapshot(self) -> Any:
        """Return what a new one needs to go on, as JSON. Raises DefinitionError if that is not known."""
        if isinstance(self.inner, Snapshots):
            return self.inner.snapshot()
        attributes = _attributes(self.inner)
        if attributes is None or not _is_plain(attributes):
            name = type(self.inner).__name__
            raise DefinitionError(
                f"the watermark generator {name} keeps what is not plain JSON, and has no snapshot()",
                next="write snapshot(self), which returns plain JSON, and restore(self, state)",
            )
        return dict(attributes) or None

    def restore(self, state: Any) -> None:
        if state is None:
            return
        attributes = _attributes(self.inner)
        if isinstance(self.inner, Snapshots):
            self.inner.restore(state)
        elif isinstance(state, dict) and attributes is not None:
            attributes.update(state)


def _attributes(inner: object) -> dict[str, Any] | None:
    """Return the attributes of an object, None where its class has slots."""
    return vars(inner) if "__dict__" in dir(inner) else None


def _is_plain(value: Any) -> bool:
    """Return whether a value comes back from JSON as the same."""
    if type(value) is list:
        return all(_is_plain(each) for each in value)
    if type(value) is dict:
        return all(type(name) is str and _is_plain(each) for name, each in value.items())
    return type(value) in _PLAIN


def kept_generators(strategy: WatermarkStrategy) -> Callable[[], Generator]:
    """Return what makes a generator for one partition, built in or a user's."""
    return generators_of(strategy) if strategy.generator is None else partial(kept_generator, strategy)


def kept_generator(strategy: WatermarkStrategy) -> Generator:
    """Return a new generator for one partition, built in or a user's."""
    if strategy.generator is None:
        return generator_of(strategy)
    inner = strategy.generator()
    needed = "on_record" if strategy.per_record else "on_event"
    if not hasattr(inner, needed):
        raise DefinitionError(
            f"the watermark generator {type(inner).__name__} has no method {needed}",
            next="write it, or change per_record= of WatermarkStrategy.for_generator",
        )
    return KeptGenerator(inner)


@dataclass(slots=True)
class RecordGenerator:
    """The generator of one partition in the task that reads it: it is handed every record, in the order they were read.

    Args:
        strategy: one with `per_record`.
        snapshot: of the partition's generator behind the checkpoint before; None for a new one.
    """

    strategy: WatermarkStrategy
    snapshot: Any = None
    _generator: KeptGenerator = field(init=False)
    _output: PartitionOutput = field(init=False, default_factory=PartitionOutput)

    def __post_init__(self) -> None:
        generator = kept_generator(self.strategy)
        assert isinstance(generator, KeptGenerator)
        self._generator = generator
        self._generator.restore(self.snapshot)

    def on_records(self, records: Sequence[dict[str, Any]], timestamps: Sequence[int]) -> None:
        """Hand over records and their event times, ms, one by one."""
        on_record, output = self._generator.inner.on_record, self._output
        for record, timestamp in zip(records, timestamps, strict=True):
            on_record(record, timestamp, output)

    def report(self, now_ms: int) -> GeneratorReport:
        """Let it emit what it has to once more, and return what became of it; called once, after the last record."""
        self._generator.on_periodic_emit(now_ms, self._output)
        return GeneratorReport(shown(self._output.watermark), self._output.idle, self._generator.snapshot())


@dataclass(slots=True)
class IdlenessTimer:
    """Tells whether nothing has come for longer than a timeout, counted from the first check that had nothing new.

    Args:
        silent_since: the time of that first check, ms; None = something has come since the last one.
    """

    timeout_ms: int
    silent_since: int | None = None
    _active: bool = field(default=False)

    def activity(self) -> None:
        """Note that something came."""
        self._active = True

    def is_idle(self, now_ms: int) -> bool:
        """Check, at a time by the clock."""
        if self._active:
            self._active, self.silent_since = False, None
            return False
        if self.silent_since is None:
            self.silent_since = now_ms
            return False
        return now_ms - self.silent_since > self.timeout_ms
