"""Functions of a user's own: declared, created by their place in Python, checked where they are called, computed over columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import udaf, udf
from poundlock.errors import DefinitionError
from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.evaluation import is_constant
from poundlock.sql.expressions.tree import Literal, UserCall
from poundlock.sql.statements.results import RunsQuery, ShownRows
from poundlock.sql.statements.session import SqlSession
from poundlock.sql.types import SqlType
from poundlock.sql.user.aggregates import own_aggregate
from poundlock.sql.user.function import UserFunctionResult
from poundlock.sql.user.loading import loaded

PLACE = "support.sql_user_functions"
T = "CREATE TABLE t (id INT, s STRING, x DECIMAL(10, 2)) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"
INT = SqlType("INT")


def taken(script: str) -> list[Any]:
    """Return what the statements of a script come to."""
    return list(SqlSession().results(script))


def created(name: str, attribute: str, kind: str = "") -> str:
    return f"CREATE {kind} FUNCTION {name} AS '{PLACE}.{attribute}' LANGUAGE PYTHON;"


def refusal(script: str) -> SqlError:
    with pytest.raises(SqlError) as refused:
        taken(script)
    return refused.value


def test_functions_are_created_changed_shown_and_dropped() -> None:
    script = (
        created("Double", "double")
        + created("d2", "double", "TEMPORARY")
        + created("d3", "double", "TEMPORARY SYSTEM")
        + "SHOW USER FUNCTIONS; SHOW FUNCTIONS LIKE 'do%';"
        + f"ALTER FUNCTION double AS '{PLACE}.nested' LANGUAGE PYTHON; DROP TEMPORARY FUNCTION IF EXISTS nobody;"
        + "DROP TEMPORARY FUNCTION d2; DROP TEMPORARY SYSTEM FUNCTION d3; SHOW USER FUNCTIONS; SELECT double(1)"
    )
    shown = [each for each in taken(script) if isinstance(each, ShownRows | RunsQuery)]
    assert [list(each.rows) for each in shown[:3]] == [[("d2",), ("d3",), ("double",)], [("double",)], [("double",)]]
    assert str(shown[3].relation.fields[0].type).startswith("ROW<`a` INT")


@pytest.mark.parametrize(
    ("script", "says", "next"),
    [
        (created("f", "nobody"), "there is no nobody in the module", "declare it there"),
        (created("f", "undeclared"), "is not declared as a function of SQL", "@udf"),
        ("CREATE FUNCTION f AS 'no.such.thing' LANGUAGE PYTHON", "there is no module no", "put it beside the script"),
        ("CREATE FUNCTION f AS 'alone' LANGUAGE PYTHON", "names no function in a module", "write AS"),
        (f"CREATE FUNCTION f AS '{PLACE}.double'", "written in Python here", "write LANGUAGE PYTHON"),
        ("CREATE FUNCTION f", "a function without AS", "write CREATE FUNCTION name AS"),
        ("CREATE FUNCTION a.f AS 'x.y' LANGUAGE PYTHON USING JAR 'a'", "'USING' is not possible here", "end"),
        (created("f", "double") * 2, "there is a function f already", "IF NOT EXISTS"),
        ("DROP FUNCTION f", "there is no function f", "SHOW USER FUNCTIONS"),
        (T + created("f", "double") + "SELECT f(s) FROM t", "f does not take (STRING)", "write f(INT)"),
        (T + created("f", "double") + "SELECT f(id, id) FROM t", "f does not take (INT, INT)", "write f(INT)"),
        (T + created("f", "double") + "SELECT zzz(id) FROM t", "there is no function ZZZ", "SHOW FUNCTIONS"),
        (T + created("f", "words") + "SELECT f(s) FROM t", "f gives rows, and no value", "LATERAL TABLE(f(…))"),
        (T + created("f", "double") + "SELECT * FROM t, LATERAL TABLE(f(id))", "gives a value, and no rows", "@udtf"),
        (T + "SELECT * FROM t, LATERAL TABLE(zzz(id))", "there is no function ZZZ", "SHOW FUNCTIONS"),
        (
            T + created("f", "words") + "SELECT * FROM t, LATERAL TABLE(f(s)) AS q (a)",
            "1 names for 2 columns",
            "name each",
        ),
        (T + created("f", "Total") + "SELECT id FROM t WHERE f(id) > 1", "an aggregate in WHERE", "HAVING"),
        (T + created("f", "Total") + "SELECT SUM(f(id)) FROM t", "an aggregate in SUM(…)", "sub-query"),
        (T + created("f", "Total") + "SELECT f(s) FROM t", "f does not take (STRING)", "write f(BIGINT)"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(script: str, says: str, next: str) -> None:
    error = refusal(script)
    assert says in error.what
    assert next in error.next
    assert error.what.startswith("line 1, column ")


def test_a_call_is_cast_to_the_types_that_are_declared() -> None:
    script = T + created("ratio", "ratio") + "SELECT ratio(id, x) FROM t"
    (relation,) = [each.relation for each in taken(script) if isinstance(each, RunsQuery)]
    (call,) = relation.expressions
    assert isinstance(call, UserCall)
    assert [str(each.type) for each in call.arguments] == ["DOUBLE", "DOUBLE"]


def test_names_with_their_database_and_systems_functions_first() -> None:
    script = (
        "CREATE DATABASE db;"
        + created("db.f", "double")
        + created("abs", "nested", "TEMPORARY SYSTEM")
        + "SELECT db.f(1), default_catalog.db.F(1), ABS(1)"
    )
    (relation,) = [each.relation for each in taken(script) if isinstance(each, RunsQuery)]
    assert [each.function.rpartition(".")[2] for each in relation.expressions] == ["double", "double", "nested"]
    assert (
        "there is no function zzz.f"
        in refusal("CREATE DATABASE db;" + created("db.f", "double") + "SELECT zzz.f(1)").what
    )


def run(attribute: str, *columns: pa.Array) -> pa.Array:
    function = loaded(attribute, f"{PLACE}.{attribute}")
    return function.run(columns, [INT] * len(columns), len(columns[0]) if columns else 2)


def test_values_go_to_python_and_come_back() -> None:
    numbers = pa.array([1, None, 3], pa.int32())
    assert run("double", numbers).to_pylist() == [2, None, 6]
    assert run("double", numbers).type == pa.int32()
    assert run("constant").to_pylist() == [7, 7]
    ((row, _, _), kind) = (run("nested", numbers).to_pylist(), run("nested", numbers).type)
    assert (row["a"], dict(row["m"]), [str(each) for each in row["l"]]) == (1, {"k": 1}, ["1.50", "None"])
    assert kind == loaded("nested", f"{PLACE}.nested").result.arrow
    assert run("ratio", pa.array([1.0, 3.0]), pa.array([2.0, 2.0])).to_pylist() == [0.5, 1.5]


def test_rows_that_a_function_gives_are_a_list_for_each_row() -> None:
    given = run("words", pa.array(["a bc", "", "d"]))
    assert [[(r["f0"], r["f1"]) for r in rows] for rows in given.to_pylist()] == [[("a", 1), ("bc", 2)], [], [("d", 1)]]
    assert [[r["f0"] for r in rows] for rows in run("numbers", pa.array([2, 0], pa.int32())).to_pylist()] == [
        [0, 1],
        [],
    ]


def test_an_error_of_the_function_goes_on_as_it_is_and_a_wrong_result_names_its_line() -> None:
    with pytest.raises(ValueError, match="two is too many"):
        run("fails", pa.array([1, 2], pa.int32()))
    with pytest.raises(UserFunctionResult) as refused:
        run("too_large", pa.array([1, 2], pa.int32()))
    assert "too_large (support.sql_user_functions.too_large" in refused.value.what
    assert "sql_user_functions.py:" in refused.value.what
    assert "returned 200, which is no TINYINT" in refused.value.what


def test_a_function_that_is_not_deterministic_is_computed_for_each_row() -> None:
    one = Literal(1, INT)
    for attribute, arguments, known in (("double", (one,), True), ("constant", (), False)):
        function = loaded(attribute, f"{PLACE}.{attribute}")
        assert is_constant(UserCall(function.path, arguments, INT, user=function)) is known


def test_an_aggregate_by_row_adds_takes_back_and_merges() -> None:
    row = SqlType("ROW", of=(SqlType("DOUBLE"), SqlType("DOUBLE")), names=("f0", "f1"))
    function = own_aggregate(loaded("w", f"{PLACE}.WeightedAverage"), row)
    values = pa.array([{"f0": 1.0, "f1": 1.0}, {"f0": 3.0, "f1": 1.0}, {"f0": 5.0, "f1": 2.0}], row.arrow)
    held = function.fold([pa.nulls(2, function.types[0])], values, np.array([1, 1, 1]), np.array([0, 0, 1]))
    assert function.result(held).to_pylist() == [2.0, 5.0]
    held = function.fold(held, values.slice(1, 1), np.array([-1]), np.array([0]))
    assert function.result(held).to_pylist() == [1.0, 5.0]
    assert function.result(function.merge(held, np.array([0, 0]), 1)).to_pylist() == [11.0 / 3]
    assert function.retracts


def test_an_aggregate_by_columns_keeps_an_accumulator_for_the_groups_that_had_rows() -> None:
    row = SqlType("ROW", of=(SqlType("BIGINT"),), names=("f0",))
    function = own_aggregate(loaded("total", f"{PLACE}.Total"), row)
    values = pa.array([{"f0": each} for each in (1, 2, 4)], row.arrow)
    held = [pa.nulls(3, each) for each in function.types]
    held = function.fold(held, values, np.array([1, 1, 1]), np.array([0, 0, 2]))
    held = function.fold(held, values.slice(2), np.array([1]), np.array([2]))
    assert function.result(held).to_pylist() == [3, None, 8]
    assert function.result(function.merge(held, np.array([0, 0, 0]), 2)).to_pylist() == [11, None]
    with pytest.raises(UserFunctionResult, match="cannot take back a row"):
        function.fold(held, values.slice(2), np.array([-1]), np.array([2]))
    assert not function.retracts


def test_what_a_declaration_lacks_is_named_where_it_stands() -> None:
    with pytest.raises(DefinitionError, match="udf without result_type"):
        udf(lambda x: x)
    with pytest.raises(DefinitionError, match="func_type='pandas' is not known"):
        udf(lambda x: x, result_type="INT", func_type="pandas")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="which is no ImperativeAggregateFunction"):
        udaf(object(), result_type="INT", accumulator_type="INT")
    assert udf(lambda x: x + 1, result_type="INT")(1) == 2
