"""Relations as streams of a job. A relation that stands in two places becomes one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.table import RowLookup
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.lowering.programs import CalcProgram
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.watermarks import watermark_of
from poundlock.sql.relations.changes import is_updating
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.stable import OperatorIdentity
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalChangelogNormalize,
    LogicalDeduplicate,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalOver,
    LogicalRelation,
    LogicalScan,
    LogicalTopN,
)
from poundlock.stream.nodes import CalcNode
from poundlock.stream.stream import DataStream

if TYPE_CHECKING:
    from poundlock.job import Job

Rule: TypeAlias = Callable[["Lowering", Any], DataStream]
"""Makes the stream of a relation of one kind."""
_WITHOUT_STATE = ("calc", "rowtime", "insertions", "values")
"""Kinds of steps beside the one that a relation is."""
_WITH_TTL = (LogicalAggregate, LogicalChangelogNormalize, LogicalJoin, LogicalTopN, LogicalDeduplicate, LogicalOver)


@dataclass
class Lowering:
    """Makes the streams of one job.

    Args:
        scan: makes the stream of a table.
        updating_table: tells whether a table's rows change.
        rules: make the streams of all other relations.
        lookup: makes what a table is asked by.
        ttl_ms: how long state of a key is kept after its last change; None for ever.
        idle_ms: a partition without rows for longer is not waited for; None where each is waited for.
        identity: says what the operator of a relation is, by which it is known in savepoints.
    """

    job: Job
    context: EvaluationContext
    scan: Callable[[LogicalScan], DataStream]
    updating_table: Callable[[LogicalScan], bool]
    rules: Mapping[type[LogicalRelation], Rule]
    lookup: Callable[[LogicalLookupJoin], RowLookup]
    ttl_ms: int | None = None
    idle_ms: int | None = None
    identity: Callable[[LogicalRelation], OperatorIdentity | None] = lambda relation: None
    _made: dict[int, tuple[LogicalRelation, DataStream]] = field(default_factory=dict)

    def stream(self, relation: LogicalRelation) -> DataStream:
        """Return the stream of a relation, whose columns are called as the relation's fields are in batches.

        Raises:
            DefinitionError: there is no step that does its work.
        """
        known = self._made.get(id(relation))
        if known is None:
            with self._named(relation):
                known = self._made[id(relation)] = relation, self._lowered(relation)
        return known[1]

    @contextmanager
    def _named(self, relation: LogicalRelation) -> Iterator[None]:
        """Have the operator of a relation called by what it is."""
        before, identity = self.job.naming, self.identity(relation)

        def naming(kind: str) -> str | None:
            if identity is None or kind in _WITHOUT_STATE:
                return None
            id = self.job.free_id(identity.name(kind))
            if identity.made_of:
                self.job.made_of[id] = {**identity.made_of, **self._kept_as(relation)}
            return id

        self.job.naming = naming
        try:
            yield
        finally:
            self.job.naming = before

    def _kept_as(self, relation: LogicalRelation) -> dict[str, Any]:
        """Return what the state of an operator is made of beside what its relation says."""
        made: dict[str, Any] = {
            "row kinds": ["changes" if self.is_updating(each) else "insertions" for each in relation.inputs]
        }
        if type(relation) in _WITH_TTL:
            spans: tuple[int | None, ...] = (None,)
            if isinstance(relation, LogicalAggregate):
                spans = (relation.state_ttl,)
            elif isinstance(relation, LogicalJoin) and relation.state_ttl is not None:
                spans = relation.state_ttl
            words = ["unlimited" if self.ttl_of(each) is None else "limited" for each in spans]
            made["time to live"] = words[0] if len(set(words)) == 1 else ", ".join(words)
        return made

    def ttl_of(self, given: int | None) -> int | None:
        """Return how long state is kept, ms, None for ever, where a relation says so itself (0 = for ever) or None."""
        return self.ttl_ms if given is None else given or None

    def is_updating(self, relation: LogicalRelation) -> bool:
        """Return whether the rows of a stream have kinds of change."""
        return is_updating(relation, self.updating_table)

    def is_made(self, relation: LogicalRelation) -> bool:
        """Return whether a relation is a stream by now."""
        return id(relation) in self._made

    def no_updates(self, relation: LogicalRelation, what: str) -> None:
        """Check that rows do not change.

        Args:
            what: is done with them.

        Raises:
            DefinitionError: they do.
        """
        if self.is_updating(relation):
            raise DefinitionError(
                f"{what} of rows that change",
                next="aggregate or join them without a window, or read an append-only table",
            )

    def _lowered(self, relation: LogicalRelation) -> DataStream:
        if isinstance(relation, LogicalScan):
            return self.scan(relation)
        rule = self.rules.get(type(relation))
        if rule is None:
            raise DefinitionError(
                f"{type(relation).__name__} is not there yet in a job of SQL", next="write the query without it"
            )
        return rule(self, relation)

    def calc(
        self,
        stream: DataStream,
        program: Any,
        fields: Sequence[Field],
        *,
        kinds: bool,
        name: str = "calc",
        holds_back_ms: int = 0,
    ) -> DataStream:
        """Return a stream behind a program.

        Args:
            kinds: whether rows have a kind of change.
            holds_back_ms: by how much the watermark stays behind.
        """
        if isinstance(program, CalcProgram):
            program = replace(program, watermark_of=watermark_of(program.steps, stream.node))
        schema = schema_of(fields)
        if kinds:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        node = CalcNode(self.job.operator_id(name, None), [stream.node], program, ddl.render(schema), holds_back_ms)
        return stream.then(node)
