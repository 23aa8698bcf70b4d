"""Keyed operators for the tasks: how their rows come in, what they emit, and which columns an exchange has to bring.

Keys, times and arguments of aggregates are columns here; what has to be computed for them was computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from poundlock.plan.heads.changelog import (
    changelog_normalize_head,
    changelog_top_n_head,
    group_aggregate_head,
    regular_join_head,
)
from poundlock.plan.heads.columns import NameOf, event_time_column, known_schema, named_by
from poundlock.plan.heads.over import over_head, temporal_join_head
from poundlock.plan.heads.process import match_head, process_head
from poundlock.plan.heads.timed_join import timed_join_head
from poundlock.plan.heads.window import window_head
from poundlock.plan.normalize import Normalized
from poundlock.plan.sql_text import resolve_column
from poundlock.stream.changelog_nodes import (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    RegularJoinNode,
)
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import (
    DeduplicateNode,
    KeyedNode,
    Node,
    PartitionNode,
    TopNNode,
    WindowNode,
)
from poundlock.stream.over_nodes import OverNode, TemporalJoinNode
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.tasks.exchange.blocks import ExchangeInput
from poundlock.tasks.keyed_rows import check_keys
from poundlock.tasks.keyed_stage import KeyedHead

_OF_ONE_KEY = (ChangelogTopNNode, DeduplicateNode, GroupAggregateNode, MatchNode, OverNode, RegularJoinNode, TopNNode)
"""Steps of which all rows have one key where they name none."""


def keyed_head(
    node: WindowNode | KeyedNode,
    given: Sequence[pa.Schema | None],
    timed: Sequence[bool],
    graph: Normalized,
    name_of: NameOf,
    *,
    bounded: bool,
) -> KeyedHead:
    """Return the operator of a step.

    Args:
        given: the columns of each input.
        timed: per input, whether its rows have an event time in a hidden column.
        graph: the job's, which knows what was computed for the step.
        name_of: asked for the name of a key or result that is an expression.
        bounded: whether the job's input ends and only final results are wanted.

    Raises:
        DefinitionError: a column that is needed is not there, or keys of two inputs never meet.
    """
    schemas = [known_schema(node.id, schema) for schema in given]
    inputs = graph.inputs[node.id]
    keys = [
        [resolve_column(schema, key.column, node.id) for key in each.keys]
        for each, schema in zip(inputs, schemas, strict=True)
    ]
    keyed = [
        (each, pa.schema([schema.field(name) for name in names]))
        for each, schema, names in zip(inputs, schemas, keys, strict=True)
        if names
    ]
    check_keys(node.id, [[key.text for key in each.keys] for each, _ in keyed], [side for _, side in keyed])
    own = [
        pa.schema([field for field in schema if field.name not in each.hidden])
        for schema, each in zip(schemas, inputs, strict=True)
    ]
    if isinstance(node, WindowNode):
        return window_head(node, graph, schemas[0], own[0], keys[0], timed[0], name_of)
    if isinstance(node, GroupAggregateNode):
        named = [named_by(key, own[0], name_of) for key in inputs[0].keys]
        fields = {key: schemas[0].field(key).with_name(name) for key, name in zip(keys[0], named, strict=True)}
        return group_aggregate_head(node, schemas[0], fields, bounded=bounded)
    if isinstance(node, ChangelogTopNNode):
        return changelog_top_n_head(node, own[0], keys[0], bounded=bounded)
    if isinstance(node, ChangelogNormalizeNode):
        return changelog_normalize_head(node, own[0], keys[0])
    if isinstance(node, RegularJoinNode):
        return regular_join_head(node, own, keys, bounded=bounded)
    if isinstance(node, MatchNode):
        return match_head(node, schemas[0], keys[0], timed[0])
    if isinstance(node, OverNode):
        return over_head(node, own[0], keys[0], bounded=bounded)
    if isinstance(node, TemporalJoinNode):
        return temporal_join_head(node, own, keys)
    if isinstance(node, (SqlIntervalJoinNode, SqlWindowJoinNode)):
        times = [
            event_time_column(node.id, column, schema, has_time)
            for column, schema, has_time in zip(node.columns, own, timed, strict=True)
        ]
        return timed_join_head(node, own, keys, times)
    return process_head(node, graph, own, keys, timed, bounded)


def exchange_inputs(node: Node, head: KeyedHead, *, max_parallelism: int) -> list[tuple[ExchangeInput, list[str]]]:
    """Return what the exchange before a step brings to each of its inputs, and the columns of that."""
    exchanged = []
    for side, taken in enumerate(head.inputs):
        keyless = isinstance(node, KeyedNode) and not taken.keys and not isinstance(node, _OF_ONE_KEY)
        how: Literal["keyed", "broadcast", "spread"] = "spread" if keyless else "keyed"
        to = ExchangeInput(
            operator=head.id,
            side=side,
            keys=tuple(taken.keys),
            how="broadcast" if side in head.broadcast else how,
            max_parallelism=max_parallelism,
        )
        columns = dict.fromkeys([*taken.whole, *taken.keys, *taken.columns, *([taken.time] if taken.time else [])])
        exchanged.append((to, list(columns)))
    return exchanged


def placing_input(node: PartitionNode, keys: Sequence[str]) -> ExchangeInput:
    """Return what an exchange brings to a step that places rows among its tasks; `keys` are the columns of its key."""
    hows: dict[str, Literal["spread", "rescale", "custom"]] = {"rebalance": "spread", "rescale": "rescale"}
    return ExchangeInput(
        operator=node.id,
        keys=tuple(keys),
        how=hows.get(node.kind, "custom"),
        max_parallelism=None,
        partitioner=node.partitioner,
    )
