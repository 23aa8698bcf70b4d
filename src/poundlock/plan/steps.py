"""The steps of a stage's chain: which operator a node becomes, and which columns and form of rows it leaves behind."""

from __future__ import annotations

from copy import copy

import pyarrow as pa

from poundlock.formats import ddl
from poundlock.operators.chain import Edge, Operator, Pass
from poundlock.operators.user_functions import Filter, FlatMap, MapBatches, MapRecords
from poundlock.stream.functions.base import RichFunction
from poundlock.stream.nodes import Node, PythonNode, SideOutputNode


def edge(node: Node, step: str) -> Edge:
    """Return where a node's rows come from, given the step of its parent."""
    return Edge(step, node.tag if isinstance(node, SideOutputNode) else "")


def schema_after(node: Node, before: pa.Schema | None) -> pa.Schema | None:
    """Return the columns a node leaves behind, None if they are not known."""
    if not isinstance(node, (PythonNode, SideOutputNode)):
        return before
    return before if node.schema is None else ddl.parse(node.schema)


def operator_of(node: Node, before: pa.Schema | None) -> Operator:
    """Return what does a node's work in a task. `before` are the columns it is given, where known."""
    if not isinstance(node, PythonNode):
        return Pass()
    # One object may stand in several places of a job; each place opens and closes one of its own, as in Flink.
    function = copy(node.function) if isinstance(node.function, RichFunction) else node.function
    rejects = node.on_error == "bad_record"
    if node.kind == "filter":
        return Filter(function, rejects=rejects)
    schema = ddl.parse(node.schema or "")
    if node.kind == "map_batches":
        return MapBatches(node.id, function, schema, before, rejects=rejects)
    if node.kind == "map":
        return MapRecords(node.id, function, schema, rejects=rejects)
    schemas = {"": schema} | {tag: ddl.parse(text) for tag, text in node.side_outputs.items()}
    return FlatMap(node.id, function, schemas, rejects=rejects)
