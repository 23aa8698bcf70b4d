"""Steps of ours with state in Spark's query: their rows are packed by key group, hosted by transformWithState, and unpacked.

A step that Spark's own operators can do with the same result never comes here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.make import process_operator
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.operators.windows.make import window_operator
from poundlock.operators.windows.spec import WindowSpec
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.emitted import PairRows, RecordRows, WindowRows, unpack_task
from poundlock.plan.hosting import LATE_DROPPED, NEXT_TIMER, Host, Input, Output, hosted
from poundlock.plan.packing import PACKED, Packing, check_keys, pack_task
from poundlock.plan.rows import BAD, EVENT_TIME, HIDDEN, OFFSET, PARTITION, TOPIC
from poundlock.plan.sql_aggregates import parse_aggregates
from poundlock.stream.nodes import WindowNode
from poundlock.stream.process_nodes import IntervalJoinNode, KeyedNode, ProcessNode

__all__ = ["KEYED", "Emitted", "emitted", "unpacked"]

KEYED = (
    "keyed/"  # before the name of a count: late rows that went nowhere, and the earliest timer that waits for the clock
)
_KEY, _ARGUMENT = "__key", "__argument"
_PLACE = (TOPIC, PARTITION, OFFSET)


@dataclass(frozen=True)
class Emitted:
    """What a step emits: packs of rows, and the columns of each tag."""

    frame: DataFrame
    schemas: Mapping[str, pa.Schema]


@dataclass
class _Made:
    """What a step's host is made of."""

    operator: KeyedOperator
    frames: list[DataFrame] = field(default_factory=list)
    packings: list[Packing] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    outputs: dict[str, Output] = field(default_factory=dict)


def emitted(
    node: WindowNode | KeyedNode,
    inputs: Sequence[DataFrame],
    *,
    control: DataFrame,
    groups: int,
    bounded: bool,
    counted_as: str,
) -> Emitted:
    """Return what a step emits.

    Args:
        node: the step.
        inputs: its rows, hidden columns included.
        control: the control rows of its key groups, see `plan/control.py`.
        groups: number of key groups.
        bounded: whether the job's input ends.
        counted_as: name of the count of late rows that went nowhere, and of the earliest timer that waits for the clock.
    """
    made = _window(node, inputs[0], groups) if isinstance(node, WindowNode) else _process(node, inputs, groups, bounded)
    keyed = [(frame, taken.keys) for frame, taken in zip(made.frames, made.inputs, strict=True) if taken.keys]
    texts = [node.keys] if isinstance(node, WindowNode) else node.keys
    check_keys(node.id, [keys for keys in texts if keys], [_arrow(frame.select(*keys)) for frame, keys in keyed])
    packs = [
        map_in_arrow(frame, pack_task(packing), PACKED)
        for frame, packing in zip(made.frames, made.packings, strict=True)
    ]
    host = Host(made.operator, made.inputs, made.outputs, first=_first(node))
    frame = hosted(reduce(DataFrame.union, [*packs, control]), host)
    number = "CAST(CAST(payload AS STRING) AS BIGINT)"
    late = F.expr(f"coalesce(sum(if(tag = '{LATE_DROPPED}', {number}, 0L)), 0L)")
    timer = F.expr(f"min(if(tag = '{NEXT_TIMER}', {number}, NULL))")
    frame = frame.observe(counted_as, late.alias("late"), timer.alias("timer"))
    frame = frame.where(f"tag NOT IN ('{LATE_DROPPED}', '{NEXT_TIMER}')")
    return Emitted(frame, {tag: _schema(output) for tag, output in made.outputs.items()})


def _schema(output: Output) -> pa.Schema:
    schema: pa.Schema = output.schema
    return schema


def _first(node: WindowNode | KeyedNode) -> int:
    """Return which input of a batch is worked on first: broadcast rules hold for the rows that come with them."""
    return 1 if isinstance(node, ProcessNode) and node.broadcast else 0


def unpacked(found: Emitted, tag: str, select: Sequence[str] = ()) -> DataFrame:
    """Return the rows of one tag, for Spark operators that follow. They keep their event time in a hidden column.

    Args:
        found: what a step emits.
        tag: the tag.
        select: Spark SQL of what is made of its columns.
    """
    schema = found.schemas[tag].append(pa.field(EVENT_TIME, pa.timestamp("us", "UTC")))
    frame = map_in_arrow(found.frame, unpack_task(tag, schema), ddl.render(schema))
    return frame.selectExpr(*select, f"`{EVENT_TIME}`") if select else frame


# --- windows ---------------------------------------------------------------------------------------------------------


def _window(node: WindowNode, frame: DataFrame, groups: int) -> _Made:
    columns = [name for name in frame.columns if name not in HIDDEN]
    time = _time(node.id, node.column, frame, needed=node.assigner.is_event_time())
    input_schema = _arrow(frame.select(*_quoted(columns)))
    keys = [f"{_KEY}{i}" for i in range(len(node.keys))]
    selected = [F.expr(text).alias(name) for text, name in zip(node.keys, keys, strict=True)]
    outputs: dict[str, Output] = {}
    if node.aggregates:
        parsed = parse_aggregates(node.aggregates, node.id)
        elements = [f"{_ARGUMENT}{i}" for i in range(len(parsed.arguments))]
        selected += [F.expr(text).alias(name) for text, name in zip(parsed.arguments, elements, strict=True)]
        outputs[MAIN] = _window_rows(node, frame)
        kept = columns if node.late_tag is not None else []
        how: Literal["record", "tuple"] = "tuple"
        aggregates: SqlAggregates | None = SqlAggregates(parsed.aggregates)
    else:
        elements, kept, how, aggregates = columns, columns, "record", None
        outputs[MAIN] = RecordRows(node.id, input_schema if node.schema is None else ddl.parse(node.schema))
    outputs |= {tag: RecordRows(node.id, ddl.parse(text)) for tag, text in node.side_outputs.items()}
    if node.late_tag is not None:
        outputs[node.late_tag] = RecordRows(node.id, input_schema)
    made = _Made(window_operator(WindowSpec.of(node, aggregates)), outputs=outputs)
    _add(
        made,
        frame,
        selected,
        keys,
        time,
        kept,
        Input(keys=keys, time=_stamp(time), columns=elements, how=how, whole=columns),
        groups,
    )
    return made


def _window_rows(node: WindowNode, frame: DataFrame) -> WindowRows:
    """Return the columns of a window's results, as Spark would name and type them."""
    good = frame.drop(*HIDDEN)
    schema = _arrow(good.groupBy(*[F.expr(key) for key in node.keys]).agg(*[F.expr(text) for text in node.aggregates]))
    count = len(node.keys)
    return WindowRows([schema.field(i) for i in range(count)], [schema.field(i) for i in range(count, len(schema))])


# --- process functions, rolling aggregates, joins ----------------------------------------------------------------------


def _process(node: KeyedNode, frames: Sequence[DataFrame], groups: int, bounded: bool) -> _Made:
    made = _Made(process_operator(node, bounded=bounded))
    schemas = []
    for side, frame in enumerate(frames):
        columns = [name for name in frame.columns if name not in HIDDEN]
        schemas.append(_arrow(frame.select(*_quoted(columns))))
        needed = isinstance(node, IntervalJoinNode)
        time = _time(node.id, node.columns[side], frame, needed=needed)
        keys = [f"{_KEY}{i}" for i in range(len(node.keys[side]))]
        selected = [F.expr(text).alias(name) for text, name in zip(node.keys[side], keys, strict=True)]
        broadcast = isinstance(node, ProcessNode) and bool(node.broadcast) and side == 1
        taken = Input(keys=keys, time=_stamp(time), columns=columns, whole=columns)
        _add(made, frame, selected, keys, time, columns, taken, groups, everywhere=broadcast, spread=not keys)
    if isinstance(node, IntervalJoinNode) and node.select:
        made.outputs[MAIN] = PairRows(*schemas)
    else:
        made.outputs[MAIN] = RecordRows(node.id, schemas[0] if node.schema is None else ddl.parse(node.schema))
    late = dict(zip(node.late_tags, schemas, strict=True)) if isinstance(node, IntervalJoinNode) else {}
    for tag, text in node.side_outputs.items():
        schema = late.get(tag, schemas[0]) if text is None else ddl.parse(text)
        made.outputs[tag] = RecordRows(node.id, schema)
    return made


# --- the rows that go in -----------------------------------------------------------------------------------------------


def _add(
    made: _Made,
    frame: DataFrame,
    selected: Sequence[Column],
    keys: Sequence[str],
    time: str | None,
    kept: Sequence[str],
    taken: Input,
    groups: int,
    *,
    everywhere: bool = False,
    spread: bool = False,
) -> None:
    """Add an input to a host: its good rows with what the packing and the operator need, and where they come from."""
    good = frame.where(f"{BAD} IS NULL") if BAD in frame.columns else frame
    place = [name for name in _PLACE if name in frame.columns]
    stamp = [] if time is None else [F.expr(f"CAST(`{time}` AS TIMESTAMP)").alias(EVENT_TIME)]
    columns: list[Column | str] = [*selected, *stamp, *_quoted(kept), *_quoted(place)]
    made.frames.append(good.select(*columns))
    made.packings.append(
        Packing(
            keys=keys, time=_stamp(time), groups=groups, side=len(made.inputs), everywhere=everywhere, spread=spread
        )
    )
    made.inputs.append(taken)


def _time(operator: str, column: str | None, frame: DataFrame, *, needed: bool) -> str | None:
    """Return the column with the event time: as the strategy named it, or as a step of ours before has set it."""
    if column is not None and column in frame.columns:
        return column
    if EVENT_TIME in frame.columns:
        return EVENT_TIME
    if needed:
        raise DefinitionError(
            f"{operator}: the column {column!r} with the event time is gone before it",
            next="keep it in select(…), or assign timestamps and watermarks right before",
        )
    return None


def _stamp(time: str | None) -> str | None:
    return None if time is None else EVENT_TIME


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _arrow(frame: DataFrame) -> pa.Schema:
    return ddl.parse(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in frame.schema.fields))
