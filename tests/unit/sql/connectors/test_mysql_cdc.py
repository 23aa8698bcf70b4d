"""Tables of changes of MariaDB without a server: what their options mean, and changes as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock import MySqlSource
from poundlock.connectors.mysql.source.rows import change_schema
from poundlock.connectors.mysql.types import MySqlColumn
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.cdc.mysql import MySqlCdcTable
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from support.table_formats import definition_of

AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
SERVER = {
    "connector": "mysql-cdc", "hostname": "db.example", "username": "etl", "password": "env:SECRET", "database-name": "shop",
    "table-name": "orders",
}  # fmt: skip
COLUMNS = "id INT, ok BOOLEAN, at_ TIMESTAMP_LTZ(3) METADATA FROM 'op_ts', tab STRING METADATA FROM 'table_name', PRIMARY KEY (id) NOT ENFORCED"


def context(columns: str = COLUMNS, **options: str) -> TableContext:
    given = SERVER | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    written = ", ".join(f"'{name}' = '{value}'" for name, value in given.items() if value)
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ({written})")
    fields = tuple(Field(c.name, f"{c.name}_x", c.type) for c in definition.columns)  # type: ignore[union-attr]
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False)


def source(**options: str) -> MySqlSource:
    made = MySqlCdcTable().source(context(**options)).source
    assert isinstance(made, MySqlSource)
    return made


def test_changes_are_rows_with_their_kinds() -> None:
    program = MySqlCdcTable().source(context()).program
    assert program is not None
    schema = change_schema([MySqlColumn("id", "int", "int(11)"), MySqlColumn("ok", "tinyint", "tinyint(1)")])
    head = {"file": "bin.1", "pos": 4, "number": 1, "gtid": "0-1-1", "table": "shop.orders"}
    changes = [
        {"op": "read", "commit_time": None, "before": None, "after": {"id": 1, "ok": 1}, **head},
        {"op": "update", "commit_time": AT, "before": {"id": 1, "ok": 1}, "after": {"id": 1, "ok": 0}, **head},
        {"op": "delete", "commit_time": AT, "before": {"id": 1, "ok": None}, "after": None, **head},
    ]
    made, _ = program.run(pa.RecordBatch.from_pylist(changes, schema))
    rows = list(zip(*(column.to_pylist() for column in made.columns), strict=True))
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        (1, True, "orders", "+I"), (1, True, "orders", "-U"), (1, False, "orders", "+U"), (1, None, "orders", "-D"),
    ]  # fmt: skip
    assert [row[2] for row in rows][1:] == [AT] * 3


def test_rows_of_several_tables_say_of_which_they_are() -> None:
    program = MySqlCdcTable().source(context("id INT, tab STRING METADATA FROM 'table_name'", table_name="a|b")).program
    assert program is not None
    schema = change_schema([MySqlColumn("id", "int", "int(11)")])
    head = {"op": "read", "file": "bin.1", "pos": 4, "number": None, "gtid": None, "commit_time": None, "before": None}
    changes = [{**head, "table": f"shop.{name}", "after": {"id": 1}} for name in "ab"]
    made, _ = program.run(pa.RecordBatch.from_pylist(changes, schema))
    assert made.columns[1].to_pylist() == ["a", "b"]


def test_options_say_how_it_is_read() -> None:
    plain = source()
    assert (plain.names, plain.start, plain.columns) == (("shop.orders",), "initial", ("id", "ok"))
    assert plain.login.parameters(with_password=False) == {"host": "db.example", "port": 3306, "user": "etl"}
    assert source(scan__startup__mode="snapshot").bounded
    assert source(scan__startup__mode="earliest-offset").start == "earliest"
    placed = source(
        scan__startup__mode="specific-offset",
        scan__startup__specific_offset__file="bin.000003",
        scan__startup__specific_offset__pos="4",
    )
    assert placed.start == "bin.000003:4"
    assert source(scan__incremental__snapshot__chunk__size="100", server_id="1-99").chunk_size == 100


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"table_name": "orders_.*"}, "is a pattern"),
        ({"scan__startup__mode": "timestamp"}, "'scan.startup.mode'"),
        ({"scan__startup__mode": "specific-offset"}, "neither file nor position"),
        ({"scan__startup__specific_offset__file": "bin.1"}, "has no effect"),
        ({"server_time_zone": "Asia/Tokyo"}, "has no effect"),
        ({"server_id": "7"}, "18 readers"),
        ({"scan__incremental__snapshot__enabled": "false"}, "is not there"),
        ({"debezium__snapshot__mode": "never"}, "has no option 'debezium.snapshot.mode'"),
        ({"slot__name": "s"}, "has no option 'slot.name'"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        MySqlCdcTable().source(context(**options))
