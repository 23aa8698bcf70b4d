"""Event time in Spark's plan: the column it is put into, and the greatest of each source partition, counted on the way.

Spark's own watermark of a stream is switched off by a delay no row can reach: the driver alone moves event time on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.watermarks import Seen
from poundlock.plan.rows import BAD, OFFSET, PARTITION, SPLIT, TOPIC
from poundlock.plan.sql import quoted, visible
from poundlock.stream.nodes import WatermarkNode
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import span_ms

__all__ = [
    "SPLIT_SLOTS",
    "TIME",
    "UNKNOWN",
    "TimeChannel",
    "measured",
    "merged",
    "refuse_other_watermarks",
    "timeless_apart",
    "with_event_time",
    "without_watermark",
]

TIME = "time/"  # before the name of a count: what Spark counts is event time, per slot
SPLIT_SLOTS = 8  # the splits of one use of a source are told apart up to so many; further ones share a slot
UNKNOWN = "(not known)"  # stands for the partition of rows whose place Spark's operators have hidden

TIMELESS = "it is null, or not between the years 1 and 9999"

_NEVER = "36500 days"
_USABLE = "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'"  # Python has no others
_MILLIS = "-62135596800000L AND 253402300799999L"  # the same
_DELAY = "spark.watermarkDelayMs"  # Spark's own name of it, in the metadata of a column of event time
_SLOT, _MS, _TIMELESS = "__slot", "__ms", "timeless"
_CHUNK = 32  # beyond that the JVM does not compile what counts into one piece, and it costs ten times as much


@dataclass(frozen=True)
class TimeChannel:
    """One place in the query where event time is measured, as the driver combines them.

    Args:
        name: of the step that gives rows their time; with a number where the step is there twice.
        strategy: of the step.
        uses: the uses of sources whose rows come there.
        partitions: (topic, partition) per slot, of rows of Kafka; None = there are none.
        splits: uses of split-planned sources, in the order of their slots; None = their rows do not say where they are from.
        first: the first slot of splits.
        others: the hidden column that rows of another channel of the same step have; None = there is none.
    """

    name: str
    strategy: WatermarkStrategy
    uses: Sequence[str]
    partitions: Sequence[tuple[str, int]] | None
    splits: Sequence[str] | None
    first: int = 0
    others: str | None = None

    @property
    def slots(self) -> int:
        """How many slots there are, without the one of rows whose place is not known."""
        return len(self.partitions or ()) + SPLIT_SLOTS * len(self.splits or ())

    def lacks(self, partitions: Sequence[tuple[str, int]]) -> bool:
        """Return whether there is a partition without a slot."""
        return self.partitions is not None and not set(partitions) <= set(self.partitions)

    def seen(self, texts: Mapping[str, str], split_names: Mapping[str, Sequence[str]]) -> dict[str, Seen]:
        """Return what a batch had, by the name of a partition.

        Args:
            texts: what Spark counted, as JSON, by the name of the count.
            split_names: per use, the name of each of its slots in this batch.
        """
        found: dict[str, Seen] = {}
        for name, text in texts.items():
            if name.rpartition("/")[0] != f"{TIME}{self.name}":
                continue
            values = json.loads(text)
            for key, value in values.items():
                if key.startswith("m") and value is not None:
                    count = int(values.get(f"c{key[1:]}", 1))
                    found[self._name(int(key[1:]), split_names)] = Seen(int(value), count)
        return found

    def check(self, texts: Mapping[str, str]) -> None:
        """Raise TerminalError if a row had no event time and no way to the dead letters, as Flink fails then."""
        found = texts.get(f"{TIME}{self.name}/0")
        count = 0 if found is None else int(json.loads(found).get(_TIMELESS, 0))
        if count:
            raise TerminalError(
                f"{self.name}: {count} rows without a usable event time in {self.strategy.time_name}: {TIMELESS}",
                next="leave such rows out before it with where(…), or give them a time: coalesce(…) in timestamp=",
            )

    def _name(self, slot: int, split_names: Mapping[str, Sequence[str]]) -> str:
        known = len(self.partitions or ())
        if slot < 0:
            return UNKNOWN
        if slot < known:
            assert self.partitions is not None
            topic, partition = self.partitions[slot]
            return f"{topic}-{partition}"
        number, place = divmod(slot - known, SPLIT_SLOTS)
        assert self.splits is not None
        use = self.splits[number]
        names = split_names.get(use, ())
        return names[place] if place < len(names) else f"{use} {place}"


def merged(splits: Sequence[str]) -> list[str]:
    """Return the name of each slot of a use, given those of its splits in the order of their ids: the first, and how many more."""
    slots = [splits[i::SPLIT_SLOTS] for i in range(min(SPLIT_SLOTS, len(splits)))]
    return [ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more" for ids in slots]


def with_event_time(frame: DataFrame, node: WatermarkNode, python: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Put the event time into its column.

    Args:
        frame: the rows.
        node: the step.
        python: runs the step's Python function, which leaves milliseconds in the column.
    """
    strategy = node.strategy
    if strategy.clocked:
        # Spark's time of the batch: it is in the log of the batch, so a batch that is run again has the same.
        return frame.withColumn(strategy.column, F.current_timestamp())
    if isinstance(strategy.timestamp, str):
        frame = frame.withColumn(strategy.column, F.expr(strategy.timestamp))
    else:
        frame = python(frame)
    kind = _kind_of(frame, strategy.column)
    if kind in ("bigint", "int"):
        number = f"CAST(`{strategy.column}` AS BIGINT)"
        return frame.withColumn(
            strategy.column, F.expr(f"IF({number} BETWEEN {_MILLIS}, timestamp_millis({number}), NULL)")
        )
    if kind in ("timestamp", "timestamp_ntz"):
        usable = f"CAST(`{strategy.column}` AS TIMESTAMP) BETWEEN {_USABLE}"
        return frame.withColumn(strategy.column, F.expr(f"IF({usable}, `{strategy.column}`, NULL)"))
    raise DefinitionError(
        f"{node.id}: event time {strategy.timestamp} is of type {kind}",
        next='give a timestamp, such as "timestamp_seconds(ts)", or a whole number of milliseconds since 1970',
    )


def timeless_apart(frame: DataFrame, node: WatermarkNode) -> DataFrame:
    """Mark rows without event time as ones that go to the dead letters: windows could not hold them, and would lose them without a word."""
    strategy = node.strategy
    if strategy.clocked:
        return frame
    reason = _literal(f"{node.id}: a row without a usable event time in {strategy.time_name}: {TIMELESS}")
    value = f"base64(CAST(to_json(struct({', '.join(quoted(visible(frame)))})) AS BINARY))"
    place = [f"{name} AS {name.strip('_')}" for name in (TOPIC, PARTITION, OFFSET) if name in frame.columns]
    where = f"struct({', '.join([f'{_literal(node.id)} AS source', *place])})"
    bad = f"to_json(struct({reason} AS reason, {value} AS value, {where} AS where))"
    return frame.withColumn(BAD, F.expr(f"IF({BAD} IS NOT NULL OR `{strategy.column}` IS NOT NULL, {BAD}, {bad})"))


def _kind_of(frame: DataFrame, column: str) -> str:
    return str(frame.schema[column].dataType.simpleString())


def without_watermark(frame: DataFrame, strategy: WatermarkStrategy) -> DataFrame:
    """Tell Spark which column is event time, and let it draw no watermark from it.

    How late rows may be stays known to operators that go by it, such as `dropDuplicatesWithinWatermark`.
    """
    marked = frame.withWatermark(strategy.column, _NEVER)
    kept = F.col(f"`{strategy.column}`").alias(strategy.column, metadata={_DELAY: span_ms(strategy.delay)})
    return marked.select(*(kept if name == strategy.column else F.col(f"`{name}`") for name in marked.columns))


def refuse_other_watermarks(frame: DataFrame, step: str) -> None:
    """Raise DefinitionError if a user's function set a watermark of Spark's own in a job that has event time of ours.

    Spark knows one watermark for a whole query: rows would be late by that of others.
    """
    todo = [frame._jdf.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        if str(node.nodeName()) == "EventTimeWatermark" and _NEVER not in str(node.delay().toString()):
            raise DefinitionError(
                f"{step}: the function calls withWatermark, and the job assigns watermarks itself elsewhere",
                next="take withWatermark out, and call assign_timestamps_and_watermarks on the stream before it",
            )
        children = node.children()
        todo += [children.apply(i) for i in range(children.size())]


def measured(frame: DataFrame, channel: TimeChannel) -> DataFrame:
    """Have Spark find the greatest event time of each slot of a channel, and count the rows where the strategy asks for it."""
    strategy = channel.strategy
    if strategy.clocked:
        return frame
    timeless = f"{_MS} IS NULL" + (f" AND {BAD} IS NULL" if BAD in frame.columns else "")
    slots = [-1, *range(channel.slots)]
    told = frame.withColumn(_SLOT, F.expr(_slot_of(channel, frame.columns))).withColumn(
        _MS, F.expr(f"unix_millis(CAST(`{strategy.column}` AS TIMESTAMP))")
    )
    for number, start in enumerate(range(0, len(slots), _CHUNK)):
        counts = [] if number else [F.count(F.expr(f"IF({timeless}, 1, NULL)")).alias(_TIMELESS)]
        for slot in slots[start : start + _CHUNK]:
            of_slot = f"IF({_SLOT} = {slot}, {_MS}, NULL)"
            counts.append(F.max(F.expr(of_slot)).alias(f"m{slot}"))
            if strategy.kind == "generator":
                counts.append(F.count(F.expr(of_slot)).alias(f"c{slot}"))
        told = told.observe(f"{TIME}{channel.name}/{number}", *counts)
    return told.drop(_SLOT, _MS)


def _slot_of(channel: TimeChannel, columns: Sequence[str]) -> str:
    """Return Spark SQL for the slot of a row, -1 where its place is not known."""
    cases = []
    topics: dict[str, list[tuple[int, int]]] = {}
    for slot, (topic, partition) in enumerate(channel.partitions or ()):
        topics.setdefault(topic, []).append((partition, slot))
    for topic, places in topics.items():
        offsets = {slot - partition for partition, slot in places}
        dense = len(offsets) == 1 and len(places) == max(p for p, _ in places) + 1
        which = f"{TOPIC} = {_literal(topic)} AND " if len(topics) > 1 and TOPIC in columns else ""
        if dense:
            cases.append(f"WHEN {which}{PARTITION} BETWEEN 0 AND {len(places) - 1} THEN {PARTITION} + {offsets.pop()}")
        else:
            cases += [f"WHEN {which}{PARTITION} = {partition} THEN {slot}" for partition, slot in places]
    if channel.splits:
        known = len(channel.partitions or ())
        last = channel.first + SPLIT_SLOTS * len(channel.splits)
        cases.append(f"WHEN {SPLIT} >= {channel.first} AND {SPLIT} < {last} THEN {SPLIT} + {known - channel.first}")
    if channel.others is not None:
        cases.append(f"WHEN {channel.others} >= 0 THEN -2")
    return f"CASE {' '.join(cases)} ELSE -1 END" if cases else "-1"


def _literal(text: str) -> str:
    quoted: Any = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
