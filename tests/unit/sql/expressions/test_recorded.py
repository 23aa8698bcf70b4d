"""Expressions against what Flink answered: the recorded cases that are one SELECT of one table's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.analysis import ExpressionAnalysis
from poundlock.sql.expressions.evaluation import EvaluationContext, Program
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.tables import PhysicalColumn, table_of
from poundlock.sql.types import SqlType
from support.sql_expressions import scope_of
from support.sql_rows import batch_of, written_column

PACK = json.loads((Path(__file__).parents[3] / "conformance/data/sql.json").read_text())
CONTEXT = EvaluationContext(UTC)


def tables_of(case: Mapping[str, Any]) -> tuple[str, dict[str, SqlType], list[dict[str, Any]]]:
    """Return name, columns and rows of the table of a case."""
    if not case["tables"]:
        return "", {}, [{}]
    (table,) = case["tables"]
    (made,) = statements_of(table["ddl"])
    assert isinstance(made, ParsedStatement)
    assert isinstance(made.expression, exp.Create)
    definition = table_of(made.expression, table["ddl"])
    columns = {each.name: each.type for each in definition.columns if isinstance(each, PhysicalColumn)}
    rows = table.get("rows", [])
    return table["name"], columns, PACK["datasets"][rows[1:]] if isinstance(rows, str) else rows


def select_of(case: Mapping[str, Any]) -> exp.Select | None:
    """Return the query of a case, None where it is not one SELECT of one table's rows."""
    try:
        statements = statements_of(case["script"])
    except SqlError:
        return None
    query = statements[0].expression if len(statements) == 1 and isinstance(statements[0], ParsedStatement) else None
    if not isinstance(query, exp.Select) or len(case["tables"]) > 1:
        return None
    others = {name for name, value in query.args.items() if value} - {"expressions", "from_", "where", "kind"}
    if others or query.find(exp.Star, exp.Window, exp.AggFunc, exp.Subquery, exp.Join):
        return None
    source = query.args.get("from_")
    is_plain = source is None or (isinstance(source.this, exp.Table) and isinstance(source.this.this, exp.Identifier))
    return query if is_plain else None


def program_of(case: Mapping[str, Any], query: exp.Select) -> tuple[Program, pa.RecordBatch]:
    name, columns, rows = tables_of(case)
    analysis = ExpressionAnalysis(case["script"], scope_of(case["script"], name, columns))
    outputs = []
    for number, node in enumerate(query.expressions):
        inner = node.this if isinstance(node, exp.Alias) else node
        outputs.append((node.alias_or_name or f"EXPR${number}", analysis.expression(inner)))
    where = query.args.get("where")
    condition = None if where is None else analysis.condition(where.this)
    batch = batch_of(rows, columns) if columns else pa.RecordBatch.from_arrays([pa.nulls(1)], ["nothing"])
    return Program(tuple(outputs), condition), batch


PLAIN = [case for case in PACK["cases"] if case["expected"]["kind"] != "error" and select_of(case) is not None]
REFUSED = [
    case
    for case in PACK["cases"]
    if case["id"].split(".")[0] == "error"
    and select_of(case) is not None
    and case["expected"].get("class")
    in (
        "unknown_column",
        "unknown_function",
        "wrong_arguments",
        "type_mismatch",
        "bad_literal",
        "cast_failed",
        "division_by_zero",
    )
]


def normal(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9e}")
    return [normal(each) for each in value] if isinstance(value, list) else value


def sorted_rows(rows: list[list[Any]]) -> list[str]:
    return sorted(json.dumps([normal(value) for value in row], sort_keys=True) for row in rows)


@pytest.mark.parametrize(
    "case", [case for case in PLAIN if case["id"].split(".")[0] in ("scalar", "nested")], ids=lambda each: each["id"]
)
def test_expressions_are_flinks(case: dict[str, Any]) -> None:
    query = select_of(case)
    assert query is not None
    program, batch = program_of(case, query)
    result = program.run(batch, CONTEXT)
    expected = case["expected"]
    types = [each.type for _, each in program.outputs]
    assert result.schema.names == [column["name"] for column in expected["columns"]]
    assert [str(each).replace(" NOT NULL", "") for each in types] == [
        column["type"].replace("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)")
        for column in expected["columns"]
    ]
    columns = [written_column(column, kind) for column, kind in zip(result.columns, types, strict=True)]
    rows = list(map(list, zip(*columns, strict=True)))
    assert sorted_rows(rows) == sorted_rows(expected["rows"])


@pytest.mark.parametrize("case", REFUSED, ids=lambda each: each["id"])
def test_errors_are_of_flinks_kind(case: dict[str, Any]) -> None:
    query = select_of(case)
    assert query is not None
    if case["expected"]["stage"] == "prepare":
        with pytest.raises(SqlError) as refused:
            program_of(case, query)
        assert refused.value.kind == case["expected"]["class"]
        return
    program, batch = program_of(case, query)
    with pytest.raises(EvaluationError) as failed:
        program.run(batch, CONTEXT)
    assert failed.value.kind == case["expected"]["class"]
    assert failed.value.next
