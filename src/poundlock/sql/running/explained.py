"""EXPLAIN: a statement as relations, as the stages of its job, and what runs which of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from poundlock.job import Job
from poundlock.plan.explain import explain, ways
from poundlock.sql.relations.changes import is_updating
from poundlock.sql.relations.meanings import table_text
from poundlock.sql.relations.tree import LogicalRelation
from poundlock.sql.relations.trees import below, tree_lines
from poundlock.sql.running.jobs import JobBuilder
from poundlock.sql.statements.results import Explained, RunsQuery


def explained(result: Explained, builder: JobBuilder) -> str:
    """Return what EXPLAIN shows.

    Args:
        builder: has made the steps of the statement.
    """
    parts = {
        "Abstract Syntax Tree": _relations(result, builder),
        "Optimized Execution Plan": explain(builder.job).splitlines(),
        "Where It Runs": _ways(builder.job),
    }
    return "\n\n".join("\n".join([f"== {title} ==", *lines]) for title, lines in parts.items())


def _relations(result: Explained, builder: JobBuilder) -> Iterator[str]:
    def changes(relation: LogicalRelation) -> str | None:
        if "CHANGELOG_MODE" not in result.details:
            return None
        updates = not builder.is_batch and is_updating(relation, builder.is_updating_table)
        return f"changelogMode=[{'I,UB,UA,D' if updates else 'I'}]"

    if isinstance(result.of, RunsQuery):
        yield from tree_lines(result.of.relation, changes)
        return
    for each in result.of.sinks:
        yield f"LogicalSink(table=[{table_text(each.name)}], fields=[{', '.join(f.name for f in each.relation.fields)}])"
        yield from below((each.relation,), changes)


def _ways(job: Job) -> Iterator[str]:
    by = ways(job)
    yield f"Spark's SQL engine: {', '.join(by.spark) or 'no step'}"
    yield f"by columns: {', '.join(by.columns) or 'no step'}"
    records = [f"{id}, since {reason}" for id, reason in by.records.items()]
    yield f"record by record: {'; '.join(records) or 'no step'}"
