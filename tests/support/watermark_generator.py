"""The generator of one partition, driven by hand."""

from __future__ import annotations

from collections.abc import Iterable

from poundlock.operators.generators import generator_of, kept_generator
from poundlock.operators.time_values import MIN
from poundlock.stream.watermarks import WatermarkStrategy


class GeneratorHarness:
    """The generator of one partition; it is its own output.

    Args:
        strategy: whose generator.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.watermark = MIN
        """The greatest watermark it emitted."""
        self.idle = False
        """Whether it marked its partition idle."""
        self.generator = generator_of(strategy) if strategy.per_record else kept_generator(strategy)

    def events(self, timestamps: Iterable[int]) -> None:
        """Hand over event times, ms, each as a checkpoint of one row."""
        for timestamp in timestamps:
            self.generator.on_event(timestamp, 1, self)

    def emit(self, now_ms: int = 0) -> int:
        """Let it emit; return the watermark."""
        self.generator.on_periodic_emit(now_ms, self)
        return self.watermark

    def emit_watermark(self, timestamp: int) -> None:
        self.idle, self.watermark = False, max(self.watermark, timestamp)

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False
