"""A user's watermark generators where a job runs in several processes: what one keeps goes from checkpoint to checkpoint as JSON.

A generator may be made again at any time from its snapshot, in any process, so it may depend on nothing but what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.generators import MAX, MIN, Generator, generator_of
from poundlock.operators.time_values import GeneratorReport, shown
from poundlock.stream.watermarks import Snapshots, WatermarkOutput, WatermarkStrategy

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
        """Wait for the partition no longer."""
        self.idle = True

    def mark_active(self) -> None:
        """Wait for the partition again."""
        self.idle = False


@dataclass(slots=True)
class KeptGenerator:
    """A user's generator with a snapshot of it at any time: its own, or its attributes where they are plain values."""

    inner: Any

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Hand over the greatest event time of a checkpoint, and how many rows had one."""
        self.inner.on_event(timestamp, count, output)

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        """Let it emit what it has to."""
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
        """Go on from a snapshot."""
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


def kept_generator(strategy: WatermarkStrategy) -> Generator:
    """Return a new generator for one partition."""
    return generator_of(strategy) if strategy.generator is None else _made(strategy)


def _made(strategy: WatermarkStrategy) -> KeptGenerator:
    assert strategy.generator is not None
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
        self._generator = _made(self.strategy)
        self._generator.restore(self.snapshot)

    def on_records(self, records: Sequence[dict[str, Any]], timestamps: Sequence[int]) -> None:
        """Hand over records and their event times, ms, one by one."""
        on_record, output = self._generator.inner.on_record, self._output
        for record, timestamp in zip(records, timestamps, strict=True):
            on_record(record, timestamp, output)

    def report(self, now_ms: int) -> GeneratorReport:
        """Let it emit what it has to once more, and return what became of it; called once, after the last record.

        Args:
            now_ms: the checkpoint's clock.
        """
        self._generator.on_periodic_emit(now_ms, self._output)
        return GeneratorReport(shown(self._output.watermark), self._output.idle, self._generator.snapshot())
