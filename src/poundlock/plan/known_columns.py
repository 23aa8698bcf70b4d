"""The columns of a job's steps as far as its graph tells them, so that what asks for others is refused before anything starts.

Which columns an expression without a name, a function of DataFrames, or a source that is not asked yet gives is not known: what is
behind it is checked when the job starts. A column whose type is not known has the type null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from poundlock.checkpoint.capabilities import KnowsColumns
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.formats import ddl
from poundlock.operators.columns.operator import change_schema
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.records import record_maker
from poundlock.plan.sql_text import Part, named_column, parse_aggregates, parts_of, resolve_column, without_alias
from poundlock.stream.changelog_nodes import (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    RegularJoinNode,
    gives_changes,
    one_sided,
)
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.nodes import (
    CalcNode,
    DeduplicateNode,
    IntervalJoinNode,
    KeyedNode,
    Node,
    PartitionNode,
    ProcessNode,
    PythonNode,
    RollingNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    TopNNode,
    UnionNode,
    WatermarkNode,
    WindowJoinNode,
    WindowNode,
)
from poundlock.stream.over_nodes import OverNode, TemporalJoinNode
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode

_UNKNOWN = pa.null()
_SIDES = ("left", "right")


def check_columns(nodes: Sequence[Node]) -> None:
    """Check what the steps of a job, inputs before readers, ask for by name.

    Raises:
        DefinitionError: a function's record has a field that is no column, or of another type; a key, an aggregate or an order
            names none, or a join selects one that no side has.
    """
    known: dict[int, pa.Schema | None] = {}
    for node in nodes:
        records = (
            [node.record] if isinstance(node, PythonNode) else node.records if isinstance(node, ProcessNode) else ()
        )
        for record, parent in zip(records, node.inputs, strict=False):
            schema = None if record is None else _columns(parent, known)
            if schema is not None:
                record_maker(record, schema, node.id)
        for parent, names in zip(node.inputs, _named(node), strict=False):
            schema = _columns(parent, known) if names else None
            for name in names if schema is not None else ():
                resolve_column(schema, name, node.id)
        if isinstance(node, (IntervalJoinNode, WindowJoinNode)) and node.select:
            sides = {side: _columns(parent, known) for side, parent in zip(_SIDES, node.inputs, strict=True)}
            for text in node.select:
                _check_pair(node.id, text, sides)


def columns_of(node: Node) -> pa.Schema | None:
    """Return the columns that a step gives, those whose type is not known with the type null; None where they are not known."""
    return _columns(node, {})


def _named(node: Node) -> list[list[str]]:
    """Return the columns that a step names, for each of its inputs: keys, what is added up, what records are put in order by."""
    if isinstance(node, (WindowNode, PartitionNode)):
        texts = [list(node.keys)]
    elif isinstance(node, KeyedNode):
        texts = [list(keys) for keys in node.keys]
    else:
        return []
    if isinstance(node, WindowNode) and node.aggregates:
        texts[0] += parse_aggregates(node.aggregates, node.id).arguments
    names = [[column.path[0] for text in each if (column := named_column(text)) is not None] for each in texts]
    if isinstance(node, RollingNode) and node.column is not None:
        names[0].append(node.column)
    if isinstance(node, (TopNNode, ChangelogTopNNode)):
        names[0] += [each.column for each in node.order_by]
    if isinstance(node, GroupAggregateNode):
        names[0] += [name for call in node.aggregates for name in (call.column, call.filter) if name is not None]
    if isinstance(node, OverNode):
        names[0] += [each.column for each in node.order] + [name for call in node.calls for name in call.columns]
    if isinstance(node, TemporalJoinNode):
        for side, name in zip(names, node.times, strict=True):
            side.append(name)
    return names


def _columns(node: Node, known: dict[int, pa.Schema | None]) -> pa.Schema | None:
    """Return the columns that a step gives; None where they are not known.

    Args:
        known: those of steps, by identity; it is filled as they are asked for, since a parser of SQL is loaded for some.
    """
    if id(node) not in known:
        known[id(node)] = _after(node, [_columns(parent, known) for parent in node.inputs])
    return known[id(node)]


def _after(node: Node, before: Sequence[pa.Schema | None]) -> pa.Schema | None:
    first = before[0] if before else None
    if isinstance(node, SourceNode):
        return node.source.known_columns if isinstance(node.source, KnowsColumns) else None
    if isinstance(node, SqlNode):
        return _after_sql(node, first)
    if isinstance(node, (PythonNode, SideOutputNode, CalcNode)) and node.schema is not None:
        return ddl.parse(node.schema)
    if isinstance(node, (PartitionNode, SinkNode)) or (isinstance(node, PythonNode) and node.kind == "filter"):
        return first
    if isinstance(node, WatermarkNode):
        return _with(first, node.strategy.column)
    if isinstance(node, UnionNode):
        alike = all(schema is not None and first is not None and schema.equals(first) for schema in before)
        return first if alike else None
    if isinstance(node, WindowNode):
        return _after_windows(node, first)
    return _after_keyed(node, before) if isinstance(node, KeyedNode) else None


def _after_keyed(node: KeyedNode, before: Sequence[pa.Schema | None]) -> pa.Schema | None:
    first = before[0]
    if node.schema is not None:
        return ddl.parse(node.schema)
    if isinstance(node, GroupAggregateNode):
        keys = _selected(node.keys[0], first)
        results = [pa.field(call.name, call.type) for call in node.aggregates]
        return None if keys is None else change_schema(pa.schema([*keys, *results]))
    if isinstance(node, ChangelogTopNNode) and first is not None:
        return change_schema(pa.schema([field for field in first if field.name != ROW_KIND]), node.rank)
    if isinstance(node, ChangelogNormalizeNode):
        return first
    if isinstance(node, RegularJoinNode):
        return _joined(node, *before)
    if isinstance(node, OverNode):
        return None if first is None else _over(node, first)
    if isinstance(node, TemporalJoinNode):
        return _both(*before)
    if isinstance(node, (SqlIntervalJoinNode, SqlWindowJoinNode)):
        return _joined_by_time(node, before)
    if isinstance(node, (IntervalJoinNode, WindowJoinNode)):
        return _selected(node.select, None)
    if isinstance(node, RollingNode) or (isinstance(node, DeduplicateNode) and node.keep == "first"):
        return first
    if isinstance(node, (DeduplicateNode, TopNNode)) and first is not None:
        return change_schema(first, node.rank if isinstance(node, TopNNode) else None)
    return None


def _over(node: OverNode, first: pa.Schema) -> pa.Schema:
    rows = [field for field in first if field.name != ROW_KIND]
    schema = pa.schema([*rows, *(pa.field(call.name, call.type) for call in node.calls)])
    return change_schema(schema) if node.gives_changes or ROW_KIND in first.names else schema


def _both(left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
    if left is None or right is None:
        return None
    return pa.schema([field for side in (left, right) for field in side if field.name != ROW_KIND])


def _joined(node: RegularJoinNode, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
    if left is None or right is None:
        return None
    kinds = [ROW_KIND in side.names for side in (left, right)]
    sides = [pa.schema([field for field in side if field.name != ROW_KIND]) for side in (left, right)]
    schema = pa.schema([field for side in sides[: 1 if one_sided(node.kind) else 2] for field in side])
    return change_schema(schema) if gives_changes(node.kind, kinds) else schema


def _joined_by_time(
    node: SqlIntervalJoinNode | SqlWindowJoinNode, sides: Sequence[pa.Schema | None]
) -> pa.Schema | None:
    left_out = () if isinstance(node, SqlIntervalJoinNode) else node.columns
    fields = []
    for side in sides[: 1 if one_sided(node.kind) else 2]:
        if side is None:
            return None
        fields += [field for field in side if field.name not in left_out]
    return pa.schema(fields)


def _after_windows(node: WindowNode, first: pa.Schema | None) -> pa.Schema | None:
    own = None if node.schema is None else ddl.parse(node.schema)
    if node.function is not None and not isinstance(node.function, ArrowAggregateWindow):
        return first if own is None else own
    texts = [*node.keys, "window_start", "window_end"]
    names = [] if own is not None else parse_aggregates(node.aggregates, node.id).names
    given = _selected(texts, None)
    if given is None or None in names:
        return None
    return pa.schema([*given, *(own or ()), *((str(name), _UNKNOWN) for name in names)])


def _after_sql(node: SqlNode, first: pa.Schema | None) -> pa.Schema | None:
    if node.kind == "select":
        return _selected(node.arguments, first)
    if node.kind == "with_column":
        return _with(first, node.arguments[0])
    if node.kind == "drop" and first is not None:
        dropped = {name.lower() for name in node.arguments}
        return pa.schema([field for field in first if field.name.lower() not in dropped])
    return first


def _with(schema: pa.Schema | None, column: str) -> pa.Schema | None:
    """Return columns with one more, or another one in the place of that of its name."""
    if schema is None:
        return None
    others = [field for field in schema if field.name.lower() != column.lower()]
    return pa.schema([*others, pa.field(column, _UNKNOWN)])


def _selected(texts: Sequence[str], schema: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of some expressions, None where one has no name that is known."""
    fields = []
    for text in texts:
        column = named_column(text)
        name = column.name if column is not None else without_alias(parts_of(text))[1]
        if name is None:
            return None
        plain = None if column is None or schema is None else column.column
        kind = schema.field(plain).type if schema is not None and plain in schema.names else _UNKNOWN
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


# --- select of a join ------------------------------------------------------------------------------------------------


def _check_pair(operator: str, text: str, sides: Mapping[str, pa.Schema | None]) -> None:
    """Refuse an expression over `left` and `right` that names a column without its side, or one that its side has not."""
    parts, _ = without_alias(parts_of(text))
    if any(part.text == "->" for part in parts):  # the names of a function within the expression are no columns
        return
    for place, part in enumerate(parts):
        before = parts[place - 1].lower if place else ""
        behind = parts[place + 1] if place + 1 < len(parts) else Part("", 0, 0, "mark")
        if not part.names_column or before in (".", "as") or behind.lower in ("(", "from") or behind.kind == "string":
            continue
        if part.lower in sides and behind.lower == ".":
            named = parts[place + 2] if place + 2 < len(parts) else behind
            schema = sides[part.lower]
            if schema is not None and named.kind in ("word", "quoted") and not _has(schema, named.text):
                _refuse_unknown(operator, f"{part.lower}.{named.text}", sides)
            continue
        having = [side for side, schema in sides.items() if schema is None or _has(schema, part.text)]
        if len(parts) == 1 and not having:
            _refuse_unknown(operator, part.text, sides)
        if len(parts) == 1 or any(sides[side] is not None for side in having):
            written = [f'"{side}.{part.text}"' for side in having]
            if len(written) == 2:
                written[1] = f'"right.{part.text} AS right_{part.text}"'
            raise DefinitionError(
                f"{operator}: select({text!r}) does not say of which side {part.text!r} is",
                next=f"write {' or '.join(written)}",
            )


def _has(schema: pa.Schema, name: str) -> bool:
    return name.lower() in (each.lower() for each in schema.names)


def _refuse_unknown(operator: str, name: str, sides: Mapping[str, pa.Schema | None]) -> None:
    there = [f"{side}.{each}" for side, schema in sides.items() if schema is not None for each in schema.names]
    own = name.rpartition(".")[2].lower()
    near = next((each for each in there if each.partition(".")[2].lower() == own), None)
    ways = did_you_mean(name, there, f"use one of {', '.join(there)}", show=repr)
    raise DefinitionError(
        f"{operator}: select: there is no column {name!r}", next=ways if near is None else f"did you mean {near!r}?"
    )
