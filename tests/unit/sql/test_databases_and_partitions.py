"""CREATE and ALTER DATABASE, SHOW PARTITIONS, commands of Flink's client in scripts, and what is refused beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poundlock.sql.errors import SqlError
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import Done, ShownRows
from poundlock.sql.statements.session import SqlSession, error_kind
from poundlock.sql.stored_catalog import CatalogFiles, StoredDatabases

TABLE = """CREATE TABLE t (id INT, dt STRING, `an hour` INT) PARTITIONED BY (dt, `an hour`)
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');"""


def results(script: str) -> list[Any]:
    return list(SqlSession().results(script))


@pytest.mark.parametrize(
    "catalog", ["", "CREATE CATALOG c WITH ('type' = 'filesystem', 'path' = '{path}'); USE CATALOG c;"]
)
def test_a_database_has_a_comment_and_properties(tmp_path: Path, catalog: str) -> None:
    session = SqlSession()
    script = catalog.format(path=tmp_path) + (
        "CREATE DATABASE d COMMENT 'its text' WITH ('a' = '1', 'b' = '2'); USE d;"
        "CREATE TABLE t (id INT) WITH ('connector' = 'print'); CREATE DATABASE IF NOT EXISTS d COMMENT 'no';"
        "ALTER DATABASE d SET ('b' = '3', 'c' = '4'); SHOW TABLES"
    )
    *_, tables = session.results(script)
    assert tables.rows == [("t",)], "tables stay"
    databases = session.catalogs._databases(session.catalogs.catalog)
    assert databases["d"].comment == "its text"
    assert databases["d"].properties == {"a": "1", "b": "3", "c": "4"}
    if catalog:
        stored = StoredDatabases(CatalogFiles(str(tmp_path), "default_database"))
        assert stored["d"].properties == {"a": "1", "b": "3", "c": "4"}
        assert (stored["d"].comment, [*stored["d"].relations]) == ("its text", ["t"])
        assert stored["default_database"].properties == {}


def test_a_check_writes_no_properties(tmp_path: Path) -> None:
    catalog = f"CREATE CATALOG c WITH ('type' = 'filesystem', 'path' = '{tmp_path}'); USE CATALOG c;"
    SqlSession().check(f"{catalog} CREATE DATABASE d; ALTER DATABASE d SET ('a' = '1')")
    assert not (tmp_path / "catalog").exists()


def test_partitions_are_the_folders_with_files(tmp_path: Path) -> None:
    for file in (
        "dt=b/an%20hour=1/part-0", "dt=a%2Fb/an%20hour=2/part-0", "dt=a%2Fb/an%20hour=10/below/part-0",
        "dt=b/an%20hour=3/.pending", "dt=b/an%20hour=4/_SUCCESS", "dt=b/part-0", "other=b/an%20hour=1/part-0", "part-0",
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    table = TABLE.format(path=tmp_path)
    _, whole, some, none = results(
        f"{table} SHOW PARTITIONS t; SHOW PARTITIONS t PARTITION (`an hour` = 1, dt = 'b'); SHOW PARTITIONS t PARTITION (dt = 'c')"
    )
    assert isinstance(whole, ShownRows)
    assert [name for name, _ in whole.columns] == ["partition name"]
    assert whole.rows == [("dt=a/b/an hour=10",), ("dt=a/b/an hour=2",), ("dt=b/an hour=1",)]
    assert (some.rows, none.rows) == ([("dt=b/an hour=1",)], [])
    _, empty = results(f"{TABLE.format(path=tmp_path / 'absent')} SHOW PARTITIONS t")
    assert empty.rows == []


@pytest.mark.parametrize("last", ["QUIT", "exit", "Quit;"])
def test_a_script_ends_where_the_client_of_flink_quits(last: str) -> None:
    assert results(f"CREATE DATABASE d; CLEAR; {last}; SELECT no such thing") == [Done()]
    assert [each.text for each in statements_of("clear; SHOW TABLES")] == ["SHOW TABLES"]


@pytest.mark.parametrize(
    ("script", "says", "kind"),
    [
        ("ALTER DATABASE d SET ('a' = 'b')", "there is no database d", "other"),
        ("ALTER DATABASE default_database", "ALTER DATABASE that sets nothing", "syntax"),
        ("ALTER DATABASE default_database SET (a = 'b')", "an option's name in quotes is missing", "syntax"),
        ("CREATE DATABASE d WITH ('a')", "'a' without a value", "syntax"),
        ("DESCRIBE DATABASE default_database", "DESCRIBE DATABASE is not there, as in Flink 2.3", "syntax"),
        ("SHOW CREATE DATABASE default_database", "there is no SHOW CREATE DATABASE", "syntax"),
        ("SHOW PARTITIONS", "a table without a name", "syntax"),
        ("SHOW PARTITIONS t", "there is no table or view t", "other"),
        (TABLE.format(path="x") + "SHOW PARTITIONS t PARTITION (id = 1)", "id is no column of the partitions", "unknown_column"),
        ("CREATE TABLE t (id INT) WITH ('connector' = 'print'); SHOW PARTITIONS t", "t has no partitions", "unsupported_query"),
        ("CREATE TABLE t ()", "a table without a column in its parentheses", "syntax"),
        ("CREATE TABLE t () WITH ('connector' = 'print')", "a table without a column in its parentheses", "syntax"),
        ("CREATE TABLE t (id INT) DISTRIBUTED BY HASH(id) INTO 4 BUCKETS WITH ('connector' = 'print')", "DISTRIBUTED is not there", "unsupported_query"),
        ("CREATE TABLE t (id INT) DISTRIBUTED BY (id) WITH ('connector' = 'print')", "DISTRIBUTED is not there", "unsupported_query"),
        ("CREATE TABLE t (id INT) DISTRIBUTED INTO 4 BUCKETS", "DISTRIBUTED is not there", "unsupported_query"),
        ("CREATE TABLE t (id INT); ALTER TABLE t ADD DISTRIBUTION BY HASH(id)", "DISTRIBUTION is not there", "syntax"),
        ("SELECT 1; QUIT now", "no statement begins with QUIT", "syntax"),
    ],
)  # fmt: skip
def test_what_is_refused(script: str, says: str, kind: str) -> None:
    with pytest.raises(SqlError) as refused:
        results(script)
    assert says in refused.value.what
    assert error_kind(refused.value) == kind
