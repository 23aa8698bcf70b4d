"""Tables of changes of PostgreSQL without a server: what their options mean, and changes as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock import PostgresSource
from poundlock.connectors.postgres.source.cdc_rows import change_schema
from poundlock.connectors.postgres.types import Column
from poundlock.errors import TerminalError
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.cdc.postgres import PostgresCdcTable
from poundlock.sql.connectors.cdc.rows import holds
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING, SqlType
from support.table_formats import definition_of

AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
SERVER = {
    "connector": "postgres-cdc", "hostname": "db.example", "username": "etl", "password": "env:SECRET", "database-name": "shop",
    "schema-name": "public", "table-name": "Orders", "slot.name": "orders_job",
}  # fmt: skip
KEYED = "id INT, n INT, PRIMARY KEY (id) NOT ENFORCED"


def context(columns: str, **options: str) -> TableContext:
    given = SERVER | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    written = ", ".join(f"'{name}' = '{value}'" for name, value in given.items() if value)
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ({written})")
    fields = tuple(Field(c.name, f"{c.name}_x", c.type) for c in definition.columns)  # type: ignore[union-attr]
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False)


def rows(columns: str, *changes: tuple[str, Any, Any], **options: str) -> list[tuple[Any, ...]]:
    program = PostgresCdcTable().source(context(columns, **options)).program
    assert program is not None
    schema = change_schema([Column("id", 23), Column("n", 23)])
    given = [
        {"op": op, "lsn": 1, "number": 1, "xid": 1, "commit_time": None if op == "read" else AT, "before": before, "after": after}
        for op, before, after in changes
    ]  # fmt: skip
    made, _ = program.run(pa.RecordBatch.from_pylist(given, schema))
    return list(zip(*(column.to_pylist() for column in made.columns), strict=True))


def row(id: int | None, n: int | None) -> dict[str, int | None]:
    return {"id": id, "n": n}


def test_changes_with_the_rows_before_them() -> None:
    changes = [
        ("read", None, row(1, 5)), ("insert", None, row(2, 6)), ("update", row(1, 5), row(1, 7)), ("delete", row(2, 6), None),
    ]  # fmt: skip
    columns = "id BIGINT, at_ TIMESTAMP_LTZ(3) METADATA FROM 'op_ts', n INT, db STRING METADATA FROM 'database_name'"
    then, now = datetime(1970, 1, 1, tzinfo=UTC), AT
    assert rows(columns, *changes) == [
        (1, then, 5, "shop", "+I"), (2, now, 6, "shop", "+I"), (1, now, 5, "shop", "-U"), (1, now, 7, "shop", "+U"), (2, now, 6, "shop", "-D"),
    ]  # fmt: skip


def test_an_update_of_the_key_is_a_row_that_goes_and_one_that_comes() -> None:
    changes = [("insert", None, row(1, 5)), ("update", row(1, 5), row(3, 5)), ("update", row(3, 5), row(3, 6))]
    assert rows(KEYED, *changes) == [
        (1, 5, "+I"), (1, 5, "-D"), (3, 5, "+I"), (3, 5, "-U"), (3, 6, "+U"),
    ]  # fmt: skip


def test_changes_with_the_keys_alone() -> None:
    changes = [
        ("insert", None, row(1, 5)), ("update", None, row(1, 7)), ("update", row(1, None), row(2, 7)), ("delete", row(2, None), None),
    ]  # fmt: skip
    assert rows(KEYED, *changes, changelog_mode="upsert") == [
        (1, 5, "+I"), (1, 7, "+U"), (1, None, "-D"), (2, 7, "+U"), (2, None, "-D"),
    ]  # fmt: skip


def test_a_truncate_fails_the_job_unless_it_is_to_be_passed_over() -> None:
    changes = [("insert", None, row(1, 5)), ("truncate", None, None)]
    with pytest.raises(TerminalError, match="t was truncated"):
        rows("id INT, n INT", *changes)
    assert rows("id INT, n INT", *changes, debezium__skipped__operations="t") == [(1, 5, "+I")]


def test_options_become_those_of_the_source() -> None:
    source = PostgresCdcTable().source(context(KEYED, port="5433", debezium__publication__name="pub")).source
    assert (source.mode, source.slot, source.publication, source.initial, source.before) == (
        "cdc",
        "orders_job",
        "pub",
        "snapshot",
        "full",
    )
    assert (source.dsn, source.table, source.columns) == (
        "postgresql://etl@db.example:5433/shop",
        '"public"."Orders"',
        ("id", "n"),
    )
    assert "SECRET" not in repr(source)
    source = (
        PostgresCdcTable().source(context(KEYED, scan__startup__mode="latest-offset", changelog_mode="upsert")).source
    )
    assert (source.initial, source.before, source.publication) == ("none", "key", "dbz_publication")


def test_patterns_of_schema_and_table_mean_several_tables() -> None:
    columns = "id INT, n INT, s STRING METADATA FROM 'schema_name', tab STRING METADATA FROM 'table_name'"
    options = {
        "schema_name": "shop|public",
        "table_name": "orders_[0-9]+",
        "scan__incremental__snapshot__chunk__size": "100",
    }
    made = PostgresCdcTable().source(context(columns, **options))
    source, program = made.source, made.program
    assert isinstance(source, PostgresSource)
    assert program is not None
    assert (source.table, source.tables, source.chunk_size) == (None, (r"(?:shop|public)\.(?:orders_[0-9]+)",), 100)
    change = {
        "op": "update", "lsn": 1, "number": 1, "xid": 1, "commit_time": AT, "table": "shop.orders_7", "before": row(1, 5), "after": row(1, 6),
    }  # fmt: skip
    given = pa.RecordBatch.from_pylist([change], change_schema([Column("id", 23), Column("n", 23)], has_table=True))
    rows_of, _ = program.run(given)
    assert list(zip(*(column.to_pylist() for column in rows_of.columns), strict=True)) == [
        (1, 5, "shop", "orders_7", "-U"), (1, 6, "shop", "orders_7", "+U"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        ("id INT", {"slot__name": ""}, "no option 'slot.name'"),
        ("id INT", {"hostname": ""}, "no option 'hostname'"),
        ("id INT", {"decoding__plugin__name": "wal2json"}, "'wal2json', whose changes cannot be read"),
        ("id INT", {"changelog_mode": "upsert"}, "has no primary key"),
        ("id INT", {"scan__startup__mode": "committed-offset"}, "'committed-offset' cannot be"),
        ("id INT", {"slot__name": "Orders"}, "no name for a replication slot"),
        ("id INT", {"debezium__skipped__operations": "c"}, "'c' cannot be"),
        ("id INT", {"scan__snapshot__fetch__size": "5"}, "no option 'scan.snapshot.fetch.size'"),
        ("id INT, x STRING METADATA", {}, "no metadata 'x'"),
        ("id INT", {"table_name": "t_.*", "scan__startup__mode": "snapshot"}, "reads one table, and its name is a pattern"),
        ("id INT", {"table_name": "t_(.*"}, "no regular expression"),
        ("id INT", {"scan__incremental__snapshot__chunk__size": "9", "scan__startup__mode": "latest-offset"}, "has no effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(columns: str, options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what) as error:
        PostgresCdcTable().source(context(columns, **options))
    assert error.value.next


def test_it_is_no_sink() -> None:
    with pytest.raises(OptionError, match="no sink"):
        PostgresCdcTable().sink(context(KEYED), overwrite=False)


def test_which_types_hold_values_of_the_servers() -> None:
    decimal = SqlType("DECIMAL", (10, 2))
    assert holds(SqlType("BIGINT"), SqlType("INT"))
    assert not holds(SqlType("INT"), SqlType("BIGINT"))
    assert not holds(SqlType("DOUBLE"), SqlType("BIGINT"))
    assert holds(SqlType("DECIMAL", (12, 3)), decimal)
    assert not holds(SqlType("DECIMAL", (10, 3)), decimal)
    assert holds(SqlType("DECIMAL", (10, 2)), STRING), "numeric without a precision is text"
    assert holds(SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (6,)))
    assert holds(SqlType("ARRAY", of=(SqlType("BIGINT"),)), SqlType("ARRAY", of=(SqlType("INT"),)))
