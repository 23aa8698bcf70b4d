"""Where statements end that are typed into a shell."""

from __future__ import annotations

import pytest

from poundlock.errors import DefinitionError
from poundlock.sql.errors import SqlError
from poundlock.sql.script import StatementSet, statements_of
from poundlock.sql.shell.statement_input import is_ended, statements_in
from poundlock.sql.statements.session import SqlSession


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;",
        "SELECT\n1\n;",
        "SELECT ';' ;",
        "SELECT 1; -- one",
        "SELECT 1; /* one */",
        "SELECT 1; SELECT 2;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;",
        "EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;",
        "SELECT CASE WHEN a THEN 1 END;",
        "",
        "-- nothing",
        ";",
    ],
)
def test_statements_that_have_ended(text: str) -> None:
    assert is_ended(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 1; SELECT",
        "SELECT ';",
        "SELECT 1 -- ;",
        "SELECT 1 /* ;",
        "SELECT `a;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
        "BEGIN STATEMENT SET;",
        "EXPLAIN PLAN FOR EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
    ],
)
def test_statements_that_go_on(text: str) -> None:
    assert not is_ended(text)


def test_each_statement_stands_where_it_does_in_the_text() -> None:
    text = "SELECT 1;\n  SELECT 'é;',\n 2; "
    first, second = statements_in(text)
    assert first == "SELECT 1"
    assert second == "         \n  SELECT 'é;',\n 2"
    assert len(second) == len(text.rstrip("; "))


def test_a_statement_set_is_one_statement() -> None:
    text = "SET 'table.dml-sync' = 'true'; EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SELECT 3;"
    statements = statements_in(text)
    assert [len(statements_of(each)) for each in statements] == [1, 1, 1]
    (made,) = statements_of(statements[1])
    assert isinstance(made, StatementSet)
    assert len(made.inserts) == 2


def test_an_error_says_the_line_and_column_of_the_whole_text() -> None:
    text = "SELECT 1;\nSELECT 2; SELECT nothing;"
    with pytest.raises(SqlError) as caught:
        SqlSession().check(statements_in(text)[2])
    assert (caught.value.place.line, caught.value.place.column) == (2, 18)
    assert caught.value.shown.endswith(f"\n{' ' * 17}^")


def test_a_text_without_its_end_is_for_the_reader_to_refuse() -> None:
    assert statements_in("SELECT 'a") == ["SELECT 'a"]
    with pytest.raises(DefinitionError, match="does not end"):
        statements_of("SELECT 'a")
