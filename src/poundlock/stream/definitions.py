"""What is checked of every process function and join where it is written: schema, side outputs, keys, event time.

What is wrong is reported with the user's own line, before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poundlock.arguments import MAPPING, check_kind
from poundlock.errors import DefinitionError
from poundlock.stream.nodes import KeyedNode, Node, PartitionNode, QueryNode, SortColumn, WatermarkNode, WindowNode

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream
    from poundlock.stream.watermarks import WatermarkStrategy


def checked_schema(schema: Any, what: str) -> str:
    """Return the DDL of what comes out. Raises DefinitionError if there is none, or it is no DDL."""
    from poundlock.formats import ddl  # Arrow is loaded where a schema is given, not by importing this package

    if not isinstance(schema, str) or not schema.strip():
        raise DefinitionError(
            f"{what} does not say which columns come out", next='write schema="user string, n bigint"'
        )
    ddl.parse(schema)
    return schema


def tag_name(tag: Any, what: str) -> str:
    """Return the tag of a side output. Raises DefinitionError if it is no name."""
    if not isinstance(tag, str) or not tag.strip():
        raise DefinitionError(f"{tag!r} is no name of a side output", next=f"{what}, such as late")
    return tag


def checked_sides(sides: Mapping[str, str] | None) -> dict[str, str]:
    """Return tags with their DDL."""
    check_kind("side_outputs", MAPPING, {"side_outputs": sides}, optional=True)
    return {
        tag_name(tag, "give tags names"): checked_schema(schema, f"the side output {tag!r}")
        for tag, schema in (sides or {}).items()
    }


def checked_keys(keys: Any, what: str) -> list[str]:
    """Return Spark SQL expressions of a key, given as one text or several.

    Raises:
        DefinitionError: there is none, or one is no text.
    """
    texts = [keys] if isinstance(keys, str) else list(keys) if isinstance(keys, Sequence) else []
    if not texts or not all(isinstance(key, str) and key.strip() for key in texts):
        raise DefinitionError(f"{what} needs Spark SQL text, got {keys!r}", next=f'write {what}("user")')
    return texts


def checked_stream(other: Any, own: DataStream, what: str) -> DataStream:
    """Return the other stream. Raises DefinitionError if it is none, or of another job."""
    from poundlock.stream.stream import DataStream

    if not isinstance(other, DataStream):
        raise DefinitionError(f"{what} with {other!r}, which is no stream", next=f"write a.{what}(b) with two streams")
    if other.job is not own.job:
        raise DefinitionError(f"{what} of streams of two jobs", next="make both streams from one Job")
    return other


def same_number(left: Sequence[str], right: Sequence[str], what: str) -> None:
    """Raise DefinitionError unless both sides have as many keys."""
    if len(left) != len(right):
        raise DefinitionError(
            f"{what} by {len(left)} keys on one side and {len(right)} on the other: {', '.join(left)} and {', '.join(right)}",
            next="give both sides as many expressions, in the same order",
        )


def event_time_column(node: Node, what: str, *, needed: bool = False) -> str | None:
    """Return the column of a stream's event time, None if no watermark is assigned before.

    Raises:
        DefinitionError: it is needed and there is none, or there are several.
    """
    columns = set(_time_columns(node))
    if len(columns) > 1:
        raise DefinitionError(
            f"the streams before {what} keep their event time in different columns: {', '.join(sorted(columns))}",
            next="give their watermark strategies the same column=",
        )
    if needed and not columns:
        raise DefinitionError(
            f"{what} needs event time, and no watermark is assigned before it",
            next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on each of its streams first",
        )
    return columns.pop() if columns else None


def check_places_known(node: Node, strategy: WatermarkStrategy) -> None:
    """Raise DefinitionError if watermarks of partitions would be made of rows that no longer know their partition.

    Args:
        node: gives the rows.
        strategy: of the watermarks; one that goes by a clock, or gives none, needs no partition.
    """
    if strategy.clocked or strategy.kind == "none":
        return
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, PartitionNode):
            raise DefinitionError(
                f"watermarks behind {each.kind}, where rows no longer know their partition: one that is ahead would make "
                "the rows of all others late",
                next=f"call assign_timestamps_and_watermarks(…) before {each.kind}(…); the event time stays with the rows",
            )
        if not isinstance(each, (KeyedNode, WindowNode)):
            todo += each.inputs


def _time_columns(node: Node) -> Iterator[str]:
    """Yield the columns of event time that steps before have, as far as the nearest query of SQL, which says where it is."""
    todo, seen = [node], {id(node)}
    while todo:
        each = todo.pop()
        if isinstance(each, QueryNode):
            yield from [] if each.time is None else [each.time]
            continue
        if isinstance(each, WatermarkNode):
            yield each.strategy.column
        new = [parent for parent in each.inputs if id(parent) not in seen]
        seen |= {id(parent) for parent in new}
        todo += new


_SORT = re.compile(r"\s*`?([^`\s]+)`?(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)


def sort_columns(texts: Any) -> list[SortColumn]:
    """Return an order such as ["price desc", "id"].

    Raises:
        DefinitionError: there is none, or one is no column with a direction.
    """
    given = list(texts) if isinstance(texts, Sequence) else []
    if not given:
        raise DefinitionError(f"an order by {texts!r}", next='write order_by="price desc", or several columns')
    columns = []
    for text in given:
        match = _SORT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise DefinitionError(
                f"an order by {text!r}",
                next='give a column such as "price desc" or "at nulls last"; compute one with with_column(…) first',
            )
        column, direction, nulls = match.groups()
        descending = (direction or "").lower() == "desc"
        nulls_first = not descending if nulls is None else nulls.lower() == "first"
        columns.append(SortColumn(column, descending, nulls_first))
    return columns
