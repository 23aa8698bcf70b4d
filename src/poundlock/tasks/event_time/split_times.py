"""What a task reports of the event times it saw: for each split, at each assigner, the greatest and how many there were.

A generator that looks at each record is run here, in the order of the partition, from the snapshot the checkpoint before left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from poundlock.formats import convert
from poundlock.operators.generators import RecordGenerator
from poundlock.operators.time_values import SourceTime, SplitTimes, TimeDirective
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.tasks.event_time.assignment import TimedChunk


class SplitPlace(NamedTuple):
    """Where rows were read, the same in every attempt: splits of a source are in order by their sequence.

    Behind steps that lose the place of a row, source and partition are UNKNOWN and the sequence is the number of the task.
    """

    source: str
    partition: str
    sequence: int


@dataclass(slots=True)
class _Split:
    greatest: int
    count: int = 0


class SplitTimesRecorder:
    """Takes the rows of one assigner in one task."""

    def __init__(self, assigner: str, strategy: WatermarkStrategy, directive: TimeDirective) -> None:
        self._assigner = assigner
        self._strategy = strategy
        self._clock = directive.clock
        self._before = directive.state.sources.get(assigner, {})
        self._splits: dict[SplitPlace, _Split] = {}
        self._generators: dict[tuple[str, str], RecordGenerator] = {}

    def rows(self, timed: TimedChunk, place: SplitPlace) -> None:
        """Take the rows of a chunk; chunks of a split come in its order, and splits of a partition in theirs."""
        if self._strategy.clocked or not len(timed.times):
            return
        if self._strategy.per_record:
            # One report for a partition: its splits are all read here.
            place = next((each for each in self._splits if each[:2] == place[:2]), place)
            self._each(timed, place)
        greatest = int(timed.times.max())
        split = self._splits.setdefault(place, _Split(greatest))
        split.greatest = max(split.greatest, greatest)
        split.count += len(timed.times)

    def reports(self) -> list[SplitTimes]:
        """Return the reports; called once, behind the last row."""
        generators = {key: each.report(self._clock) for key, each in self._generators.items()}
        return [
            SplitTimes(self._assigner, *place, each.greatest, each.count, generators.get(place[:2]))
            for place, each in self._splits.items()
        ]

    def _each(self, timed: TimedChunk, place: SplitPlace) -> None:
        key = place.source, place.partition
        if (generator := self._generators.get(key)) is None:
            partitions = self._before.get(place.source, SourceTime()).partitions
            snapshot = partitions[place.partition].generator if place.partition in partitions else None
            generator = self._generators[key] = RecordGenerator(self._strategy, snapshot)
        generator.on_records(convert.to_records(timed.chunk).rows, timed.times.tolist())
