"""Clauses of other databases that sqlglot reads: each is refused by name, where it would change the result or says what is not done."""

from __future__ import annotations

import pytest

from poundlock.sql.errors import SqlError
from poundlock.sql.script import statements_of

REFUSED = {
    "QUALIFY": "SELECT id FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY ts) = 1",
    "FOR UPDATE": "SELECT id FROM t FOR UPDATE",
    "DISTINCT ON": "SELECT DISTINCT ON (a) id FROM t",
    "SELECT … INTO": "SELECT id INTO x FROM t",
    "LIMIT … BY": "SELECT id FROM t LIMIT 3 BY a",
    "PERCENT": "SELECT id FROM t FETCH FIRST 10 PERCENT ROWS ONLY",
    "WITH TIES": "SELECT id FROM t ORDER BY ts FETCH FIRST 2 ROWS WITH TIES",
    "GROUP BY DISTINCT": "SELECT a FROM t GROUP BY DISTINCT a",
    "WITH ROLLUP": "SELECT a FROM t GROUP BY a WITH ROLLUP",
    "WITH TOTALS": "SELECT a FROM t GROUP BY a WITH TOTALS",
    "* EXCEPT": "SELECT * EXCEPT (id) FROM t",
    "* REPLACE": "SELECT * REPLACE (1 AS id) FROM t",
    "BY NAME": "SELECT id FROM t UNION BY NAME SELECT id FROM u",
    "ASOF JOIN": "SELECT 1 FROM t ASOF JOIN u ON t.id = u.id",
    "LEFT SEMI JOIN": "SELECT 1 FROM t LEFT SEMI JOIN u ON t.id = u.id",
    "OUTER JOIN": "SELECT 1 FROM t OUTER JOIN u ON t.id = u.id",
    "CLUSTER BY": "SELECT id FROM t CLUSTER BY id",
    "SORT BY": "SELECT id FROM t SORT BY id",
    "CONNECT BY": "SELECT id FROM t START WITH id = 1 CONNECT BY id = 2",
    "TABLESAMPLE": "SELECT id FROM t TABLESAMPLE BERNOULLI (50)",
    "IGNORE NULLS": "SELECT LAG(id) IGNORE NULLS OVER (ORDER BY ts) FROM t",
    "WITHIN GROUP": "SELECT LISTAGG(a, ',') WITHIN GROUP (ORDER BY ts) FROM t",
    "EXCLUDE": "SELECT SUM(id) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM t",
    "FORMAT": "SELECT CAST(a AS INT FORMAT 'YYYY') FROM t",
    "DEFAULT": "SELECT CAST(a AS DATE DEFAULT NULL ON CONVERSION ERROR) FROM t",
    "ON CONFLICT": "INSERT INTO t SELECT 1 ON CONFLICT DO NOTHING",
    "RETURNING": "INSERT INTO t SELECT 1 RETURNING id",
    "INSERT OR": "INSERT OR REPLACE INTO t SELECT 1",
    "WITH before INSERT": "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
    "STORED": "CREATE TABLE t (a INT, b AS a + 1 STORED) WITH ('connector' = 'print')",
    "CLONE": "CREATE TABLE t CLONE u",
    "UNIQUE": "CREATE UNIQUE TABLE t (a INT) WITH ('connector' = 'print')",
    "MATERIALIZED": "CREATE MATERIALIZED VIEW v AS SELECT 1",
    "WITH NO SCHEMA BINDING": "CREATE VIEW v AS SELECT 1 WITH NO SCHEMA BINDING",
    "CASCADE": "DROP TABLE t CASCADE",
    "PURGE": "DROP TABLE t PURGE",
    "DESCRIBE FORMATTED": "DESCRIBE FORMATTED t",
}
TAKEN = (
    "WITH x AS (SELECT DISTINCT a, id FROM t ORDER BY ts LIMIT 3) SELECT * FROM x AS y (a, id), u CROSS JOIN w OFFSET 2",
    "SELECT a, COUNT(*) FROM t GROUP BY ROLLUP (a), CUBE (id), GROUPING SETS ((a), ()) HAVING COUNT(*) > 1",
    "SELECT 1 FROM t NATURAL LEFT JOIN u FULL OUTER JOIN w USING (a) ORDER BY a DESC NULLS LAST FETCH FIRST 2 ROWS ONLY",
    "SELECT SUM(DISTINCT a) FILTER (WHERE a > 1) OVER w FROM t WINDOW w AS (PARTITION BY a ORDER BY ts ROWS 1 PRECEDING)",
    "SELECT TRY_CAST(a AS INT), CAST(b AS ROW<a INT>) FROM t, LATERAL TABLE(f(a)) AS s (x), UNNEST(c) WITH ORDINALITY AS e (x, n)",
    "SELECT 1 FROM t JOIN v FOR SYSTEM_TIME AS OF t.ts AS v ON t.a = v.a LEFT JOIN LATERAL (SELECT 2) ON TRUE",
    "SELECT 1 FROM (t1 JOIN t2 ON t1.a = t2.a) JOIN t3 ON TRUE",
    "INSERT OVERWRITE t PARTITION (p = 1) (a, b) SELECT 1, 2 UNION ALL (VALUES (1, 2))",
    "CREATE OR REPLACE TEMPORARY VIEW v (a) COMMENT 'x' AS SELECT 1",
    "CREATE DATABASE IF NOT EXISTS d COMMENT 'x' WITH ('a' = 'b')",
    "DROP DATABASE d RESTRICT",
    "DESCRIBE EXTENDED t",
)


@pytest.mark.parametrize("clause", REFUSED)
def test_a_clause_that_nobody_reads_is_refused_by_name(clause: str) -> None:
    with pytest.raises(SqlError) as refused:
        statements_of(REFUSED[clause])
    assert f": {clause}" in refused.value.what
    assert "is not there" in refused.value.what


@pytest.mark.parametrize("script", TAKEN)
def test_clauses_that_are_read_are_taken(script: str) -> None:
    statements_of(script)


@pytest.mark.parametrize("join", ["JOIN u", "INNER JOIN u", "LEFT JOIN u", "FULL JOIN u WHERE TRUE"])
def test_a_join_says_of_which_rows(join: str) -> None:
    with pytest.raises(SqlError, match="Expected ON or USING"):
        statements_of(f"SELECT 1 FROM t {join}")
