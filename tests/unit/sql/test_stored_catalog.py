"""Catalogs that last on disk: what one session defines another one finds, and two never write the same version."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.create_text import create_table_text, expression_text, table_in
from poundlock.sql.dialect import MetadataColumn
from poundlock.sql.errors import SqlError
from poundlock.sql.statements.results import RunsQuery, ShownRows
from poundlock.sql.statements.session import SqlSession
from poundlock.sql.stored_catalog import CatalogFiles, StoredDatabases
from poundlock.sql.tables import ComputedColumn

TABLE = """CREATE TABLE orders (
  id INT NOT NULL COMMENT 'its number',
  `it's` ROW<a ARRAY<INT NOT NULL>, b MAP<STRING, DECIMAL(10, 2)>>,
  ts TIMESTAMP(3),
  moment TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time' VIRTUAL,
  dbl AS id * 2 + CASE WHEN id > 3 THEN 1 ELSE 0 END,
  daily AS DATE_FORMAT(ts - INTERVAL '1' DAY, 'yyyy-MM-dd') COMMENT 'a day',
  since AS TIMESTAMPDIFF(DAY, TIMESTAMP '2026-01-01 00:00:00', ts),
  k STRING,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'orders, it''s said' PARTITIONED BY (k)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"""


def session(path: Path, script: str = "", *, trial: bool = False) -> tuple[SqlSession, list[Any]]:
    """Return a session that has the catalog, and what the statements of a script come to in it."""
    made = SqlSession()
    if trial:
        made = made.trial()
    use = f"CREATE CATALOG lake WITH ('type' = 'filesystem', 'path' = '{path}'); USE CATALOG lake;"
    return made, list(made.results(use + script))


def names(path: Path, kind: str = "TABLES") -> list[str]:
    (shown,) = [each for each in session(path, f"SHOW {kind}")[1] if isinstance(each, ShownRows)]
    return [row[0] for row in shown.rows]


def test_what_was_defined_is_there_in_another_session(tmp_path: Path) -> None:
    script = (
        f"{TABLE}; CREATE VIEW big (n) AS SELECT id FROM orders WHERE dbl > 6; CREATE DATABASE other;"
        "CREATE TABLE other.dup LIKE orders (EXCLUDING CONSTRAINTS); ALTER TABLE other.dup SET ('path' = 'elsewhere');"
        "CREATE FUNCTION twice AS 'support.sql_user_functions.double' LANGUAGE PYTHON;"
        "CREATE TEMPORARY TABLE gone (x INT) WITH ('connector' = 'print')"
    )
    session(tmp_path, script)
    assert names(tmp_path) == ["big", "orders"]
    assert names(tmp_path, "DATABASES") == ["default_database", "other"]
    assert names(tmp_path, "USER FUNCTIONS") == ["twice"]
    again = (
        "USE other; SELECT `default_database`.twice(n) FROM `default_database`.big; DESCRIBE dup; SHOW CREATE TABLE dup"
    )
    query, described, shown = [each for each in session(tmp_path, again)[1] if isinstance(each, RunsQuery | ShownRows)]
    assert str(query.relation.fields[0].type) == "INT"
    assert [row[0] for row in described.rows][:2] == ["id", "it's"]
    text = shown.rows[0][0]
    assert text.startswith("CREATE TABLE `lake`.`other`.`dup` (\n  `id` INT NOT NULL COMMENT 'its number',")
    assert "'path' = 'elsewhere'" in text
    session(
        tmp_path, "DROP VIEW big; DROP FUNCTION twice; ALTER TABLE orders RENAME TO sold; DROP DATABASE other CASCADE"
    )
    assert (names(tmp_path), names(tmp_path, "DATABASES"), names(tmp_path, "USER FUNCTIONS")) == (
        ["sold"],
        ["default_database"],
        [],
    )


def test_a_table_is_read_again_from_the_text_that_shows_it() -> None:
    table = table_in(TABLE)
    text = create_table_text(["orders"], table)
    again = table_in(text)
    assert create_table_text(["orders"], again) == text
    plain = [type(each) for each in table.columns if not isinstance(each, ComputedColumn)]
    assert [each for each in again.columns if type(each) in plain] == [
        each for each in table.columns if type(each) in plain
    ]
    computed = [each for each in again.columns if isinstance(each, ComputedColumn)]
    assert [each.name for each in computed] == ["dbl", "daily", "since"]
    assert "`ts` - INTERVAL '5' SECOND" in text
    assert (again.primary_key, again.partitioned_by, again.options, again.comment) == (
        table.primary_key,
        table.partitioned_by,
        table.options,
        table.comment,
    )


def test_an_expression_that_would_be_read_as_another_is_refused() -> None:
    (column,) = table_in("CREATE TABLE t (v AS JSON_VALUE('{}', '$.a' DEFAULT 1 ON ERROR))").columns
    assert isinstance(column, ComputedColumn)
    with pytest.raises(DefinitionError, match="cannot be kept as a text"):
        expression_text(exp.Add(this=column.expression, expression=MetadataColumn()))


def test_a_script_that_is_only_checked_writes_nothing(tmp_path: Path) -> None:
    trial, _ = session(tmp_path / "lake", f"{TABLE}; DESCRIBE orders", trial=True)
    assert trial.catalogs.find(["orders"])[0].catalog == "lake"
    assert not (tmp_path / "lake").exists()
    live, _ = session(tmp_path / "lake", TABLE)
    list(live.trial().results("DROP TABLE orders"))
    assert names(tmp_path / "lake") == ["orders"]


def test_of_two_that_change_a_version_at_once_one_is_refused(tmp_path: Path) -> None:
    files = [CatalogFiles(str(tmp_path), "default_database") for _ in range(4)]
    barrier, refused = threading.Barrier(len(files)), []

    def change(number: int, catalog: CatalogFiles) -> None:
        def put(document: Any) -> None:
            barrier.wait(10)
            document["databases"][f"d{number}"] = {"tables": {}, "views": {}, "functions": {}}

        try:
            catalog.change(put)
        except DefinitionError as error:
            refused.append(error.what)

    threads = [threading.Thread(target=change, args=each) for each in enumerate(files)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(refused) == 3
    assert all("another session changed the catalog" in each for each in refused)
    assert len(StoredDatabases(files[0])) == 2


def test_old_versions_go_and_other_files_stay(tmp_path: Path) -> None:
    for number in range(8):
        session(tmp_path, f"CREATE DATABASE d{number}")
    (tmp_path / "catalog/notes.txt").write_text("mine")
    session(tmp_path, "CREATE DATABASE last")
    assert sorted(each.name for each in (tmp_path / "catalog").iterdir()) == [
        *(f"{number:010}.json" for number in range(5, 10)),
        "notes.txt",
    ]
    assert len(names(tmp_path, "DATABASES")) == 10


def test_a_document_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog/0000000001.json").write_text(json.dumps({"v": 2}))
    with pytest.raises(TerminalError, match="is of version 2 of the format"):
        session(tmp_path)


MEMORY = "CREATE CATALOG m WITH ('type' = 'generic_in_memory');"


@pytest.mark.parametrize(
    ("script", "says", "next"),
    [
        ("CREATE CATALOG c", "a catalog without a type", "generic_in_memory, filesystem"),
        ("CREATE CATALOG c WITH ('type' = 'hive')", "of the type 'hive'", "generic_in_memory"),
        ("CREATE CATALOG c WITH ('type' = 'filesystem')", "without a path", "give 'path'"),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'paht' = 'x')", "no option 'paht'", "default-database"),
        ("DROP CATALOG c", "there is no catalog c", "SHOW CATALOGS"),
        ("DROP CATALOG default_catalog", "is the current catalog", "USE CATALOG another"),
        ("ALTER CATALOG c SET ('a' = 'b')", "there is no catalog c", "SHOW CATALOGS"),
        (f"{MEMORY} ALTER CATALOG m SET ('paht' = 'b')", "no option 'paht'", "default-database"),
        (f"{MEMORY} ALTER CATALOG m SET ('type' = 'filesystem')", "the type of the catalog m stays", "DROP CATALOG m"),
        (f"{MEMORY} ALTER CATALOG m RESET ('type')", "the type of the catalog m stays", "DROP CATALOG m"),
        (f"{MEMORY} ALTER CATALOG m SET ('default-database' = 'x')", "no database x in m", "CREATE DATABASE m.x"),
        (f"{MEMORY} ALTER CATALOG m SET ()", "name in quotes is missing", "write an option's name"),
        (f"{MEMORY} ALTER CATALOG m RESET", "RESET without its options", "RESET ('key')"),
        (f"{MEMORY} ALTER CATALOG m", "changes nothing", "SET ('key' = 'value')"),
        (f"{MEMORY} ALTER CATALOG m COMMENT 'a' 'b'", "'b' is not possible here", "end the statement"),
        ("SHOW CREATE CATALOG c", "there is no catalog c", "SHOW CATALOGS"),
        ("DESCRIBE CATALOG c", "there is no catalog c", "SHOW CATALOGS"),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory'", "WITH does not end", "write )"),
    ],
)
def test_what_is_wrong_with_a_catalog_is_named(script: str, says: str, next: str) -> None:
    with pytest.raises(SqlError) as refused:
        list(SqlSession().results(script))
    assert says in refused.value.what
    assert next in refused.value.next


def test_a_catalog_is_altered_and_shown(tmp_path: Path) -> None:
    script = f"""
        CREATE CATALOG lake COMMENT 'it''s ours' WITH ('type' = 'filesystem', 'path' = '{tmp_path}/a', 'default-database' = 'd');
        CREATE DATABASE lake.e;
        CREATE TABLE lake.e.t (x INT) WITH ('connector' = 'print');
        ALTER CATALOG lake SET ('default-database' = 'e');
        USE CATALOG lake;
        SHOW CURRENT DATABASE;
        SHOW CREATE CATALOG lake;
        ALTER CATALOG lake COMMENT 'yours';
        DESCRIBE CATALOG EXTENDED lake;
        ALTER CATALOG lake RESET ('default-database');
        DESC CATALOG lake;
        ALTER CATALOG lake SET ('path' = '{tmp_path}/b');
        SHOW DATABASES;
        ALTER CATALOG lake SET ('path' = '{tmp_path}/a');
        SHOW TABLES FROM e;
    """
    held = SqlSession()
    held.check(script)
    assert not (tmp_path / "a").exists()  # a script that is checked writes nothing
    current, created, extended, described, other, tables = [
        list(each.rows) for each in held.results(script) if isinstance(each, ShownRows)
    ]
    assert current == [("e",)]
    assert created == [
        (
            f"CREATE CATALOG `lake`\nCOMMENT 'it''s ours'\nWITH (\n  'type' = 'filesystem',\n  'path' = '{tmp_path}/a',\n"
            "  'default-database' = 'e'\n)",
        )
    ]
    plain = [("name", "lake"), ("type", "filesystem"), ("comment", "yours")]
    assert extended == [*plain, ("option:default-database", "e"), ("option:path", f"{tmp_path}/a")]
    assert described == plain
    assert other == [("default_database",)]
    assert tables == [("t",)]
    assert list(held.catalogs.databases("lake")) == ["d", "e"]


def test_a_catalog_that_is_shown_can_be_created_again() -> None:
    first, second = SqlSession(), SqlSession()
    list(first.results(f"{MEMORY} ALTER CATALOG m COMMENT 'a `quote`'"))
    (shown,) = first.results("SHOW CREATE CATALOG m")
    assert isinstance(shown, ShownRows)
    list(second.results(str(shown.rows[0][0])))
    assert second.catalogs.described_catalog("m") == first.catalogs.described_catalog("m")


def test_catalogs_in_memory_and_a_view_of_another_catalog() -> None:
    script = (
        "CREATE CATALOG IF NOT EXISTS m WITH ('type' = 'generic_in_memory', 'default-database' = 'd'); USE CATALOG m;"
        "CREATE TABLE t (x INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"
        "CREATE VIEW v AS SELECT x FROM t; USE CATALOG default_catalog; SELECT * FROM m.d.v; DROP CATALOG m; SHOW CATALOGS"
    )
    query, shown = [each for each in SqlSession().results(script) if isinstance(each, RunsQuery | ShownRows)]
    assert query.relation.fields[0].name == "x"
    assert list(shown.rows) == [("default_catalog",)]
