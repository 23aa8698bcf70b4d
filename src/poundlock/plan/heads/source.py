"""What the readers of a source are asked for: the form of its rows, and which columns, by the steps that stand right behind it."""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.checkpoint.capabilities import ReadsOnlyValue
from poundlock.connectors.base import ObjectSource, SplitSource
from poundlock.stream.nodes import Node, PythonNode, SinkNode, SourceNode
from poundlock.tasks.rows_stage import SourceHead


def source_head(node: SourceNode, source: SplitSource, nodes: Sequence[Node]) -> SourceHead:
    """Return a source of a stage. `source`: as this attempt reads it."""
    readers = _readers(node, nodes)
    per_record = any(isinstance(reader, PythonNode) and reader.kind != "map_batches" for reader in readers)
    return SourceHead(
        source,
        "records" if per_record else "batch",
        _needed_columns(readers),
        straight=made_straight(node, nodes, source),
    )


def made_straight(node: SourceNode, nodes: Sequence[Node], source: object) -> bool:
    """Return whether records of a function's own type are made of what a source decodes, and no dict before.

    That is so where every step behind the source makes new records of its own type's; a filter, say, sends on what it is given.
    """
    readers = _readers(node, nodes)
    typed = all(
        isinstance(reader, PythonNode) and reader.kind in ("map", "flat_map", "async_map") and reader.record is not None
        for reader in readers
    )
    return bool(readers) and typed and isinstance(source, ObjectSource) and source.decodes_objects


def _readers(source: Node, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if source in node.inputs]


def _needed_columns(readers: Sequence[Node]) -> tuple[str, ...] | None:
    """Return the columns that the readers of a source need, None for all of them."""
    sinks = [node.sink for node in readers if isinstance(node, SinkNode) and isinstance(node.sink, ReadsOnlyValue)]
    return ("value",) if len(sinks) == len(readers) and all(sink.needs_only_value for sink in sinks) else None
