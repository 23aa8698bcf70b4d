"""ALTER TABLE and ALTER VIEW: what becomes of the definition, and what is refused."""

from __future__ import annotations

import pytest

from poundlock.sql.errors import SqlError
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import ShownRows
from poundlock.sql.statements.session import SqlSession

TABLES = """
CREATE TABLE t (a INT, b STRING, c AS a + 1, ts TIMESTAMP(3), p INT, WATERMARK FOR ts AS ts) PARTITIONED BY (p)
WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
CREATE TABLE k (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'print', 'print-identifier' = 'k');
CREATE VIEW v AS SELECT a FROM t;
"""


def last(script: str) -> ShownRows:
    session, script = SqlSession(), TABLES + script
    made = [session.take(each, script) for each in statements_of(script)][-1]
    assert isinstance(made, ShownRows)
    return made


def columns(script: str, of: str = "t") -> list[str]:
    """Return the names of a table's columns, those that may not be NULL with a !, behind some statements."""
    return [f"{row[0]}{'' if row[2] else '!'}" for row in last(f"{script}; DESCRIBE {of}").rows]


@pytest.mark.parametrize(
    ("action", "names"),
    [
        ("ADD d DOUBLE", "a b c ts p d"),
        ("ADD d DOUBLE FIRST", "d a b c ts p"),
        ("ADD d DOUBLE AFTER a", "a d b c ts p"),
        ("ADD (d DOUBLE AFTER b, e AS a + 2 FIRST, f INT)", "e a b d c ts p f"),
        ("MODIFY b INT FIRST", "b a c ts p"),
        ("MODIFY (a BIGINT NOT NULL, b INT AFTER ts)", "a! c! ts b p"),
        ("DROP b", "a c ts p"),
        ("DROP (b, c)", "a ts p"),
        ("DROP (a, c)", "b ts p"),
        ("RENAME b TO d", "a d c ts p"),
        ("ADD PRIMARY KEY (a, b) NOT ENFORCED", "a! b! c! ts p"),
    ],
)
def test_columns(action: str, names: str) -> None:
    assert columns(f"ALTER TABLE t {action}") == names.split()


def test_watermark_key_and_options() -> None:
    def shown(script: str, of: str = "t") -> str:
        return str(last(f"{script}; SHOW CREATE TABLE {of}").rows[0][0])

    assert "WATERMARK" not in shown("ALTER TABLE t DROP WATERMARK")
    moved = shown("ALTER TABLE t MODIFY WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
    assert "WATERMARK FOR `ts` AS `ts` - INTERVAL '5' SECOND" in moved
    again = shown("ALTER TABLE t DROP WATERMARK; ALTER TABLE t ADD (WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)")
    assert "INTERVAL '1' SECOND" in again
    assert "PRIMARY KEY (`d`)" in shown("ALTER TABLE k RENAME a TO d", "k")
    assert "PRIMARY KEY" not in shown("ALTER TABLE k DROP PRIMARY KEY", "k")
    assert "PRIMARY KEY" not in shown("ALTER TABLE k DROP CONSTRAINT PK_a", "k")
    assert "PRIMARY KEY (`a`, `b`)" in shown("ALTER TABLE k MODIFY PRIMARY KEY (a, b) NOT ENFORCED", "k")
    assert "'print-identifier' = 'm'" in shown("ALTER TABLE k SET ('print-identifier' = 'm')", "k")
    assert "print-identifier" not in shown("ALTER TABLE k RESET ('print-identifier')", "k")


def test_a_view_has_another_query() -> None:
    assert columns("ALTER VIEW v AS SELECT b, a FROM t", "v") == ["b", "a"]
    assert last("ALTER VIEW v AS SELECT b FROM t; SHOW CREATE VIEW v").rows == [("CREATE VIEW `v` AS SELECT b FROM t",)]
    assert columns("ALTER VIEW v RENAME TO w; ALTER TABLE k RENAME TO l", "w") == ["a"]


def test_what_is_not_there_is_left_alone_where_that_is_asked_for() -> None:
    assert columns("ALTER TABLE IF EXISTS nothere RENAME TO other") == columns("DESCRIBE t")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE nothere RENAME TO other", "no table or view nothere"),
        ("ALTER TABLE t ADD a INT", "a column a already"),
        ("ALTER TABLE t ADD d INT AFTER nope", "no column nope"),
        ("ALTER TABLE t MODIFY d INT", "no column d"),
        ("ALTER TABLE t ADD WATERMARK FOR ts AS ts", "the table has a watermark"),
        ("ALTER TABLE k MODIFY WATERMARK FOR b AS b", "the table has not a watermark"),
        ("ALTER TABLE t ADD PRIMARY KEY (nope) NOT ENFORCED", "no column nope"),
        ("ALTER TABLE k ADD PRIMARY KEY (b) NOT ENFORCED", "the table has a primary key"),
        ("ALTER TABLE t DROP nope", "no column nope"),
        ("ALTER TABLE t DROP a", "a is used by the column c"),
        ("ALTER TABLE t DROP ts", "ts is used by the watermark"),
        ("ALTER TABLE t DROP p", "p is used by PARTITIONED BY"),
        ("ALTER TABLE k DROP a", "a is used by the primary key"),
        ("ALTER TABLE t RENAME a TO d", "a is used by the column c"),
        ("ALTER TABLE t RENAME b TO a", "a column a already"),
        ("ALTER TABLE t DROP PRIMARY KEY", "no primary key"),
        ("ALTER TABLE k DROP WATERMARK", "no watermark"),
        ("ALTER TABLE k DROP CONSTRAINT other", "no constraint other"),
        ("ALTER TABLE k RESET ('connector')", "a table without a connector"),
        ("ALTER TABLE k RESET ('nope')", "no option 'nope'"),
        ("ALTER TABLE t MODIFY a STRING, b INT", "Unexpected token"),
        ("ALTER TABLE v SET ('a' = 'b')", "v is a view"),
        ("ALTER VIEW t AS SELECT 1", "t is a table"),
        ("ALTER VIEW v AS SELECT nope FROM t", "no column nope"),
        ("ALTER VIEW v ADD a INT", "Expected RENAME TO or AS"),
        ("ALTER TABLE t MODIFY ts STRING", "WATERMARK FOR ts, which is of type STRING"),
        ("ALTER TABLE t", "Expected ADD, MODIFY, DROP, RENAME, SET or RESET"),
        ("ALTER MODEL d SET ('a' = 'b')", "Expected TABLE, VIEW, DATABASE, FUNCTION or CATALOG"),
    ],
)
def test_what_cannot_be_is_refused(statement: str, what: str) -> None:
    with pytest.raises(SqlError, match=what):
        last(statement)
