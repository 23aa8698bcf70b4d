"""The iceberg connector: Flink's options, the types with which a table is made, and what is refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.connectors import ReaderContext
from poundlock.sql.connectors.iceberg.options import options_of
from poundlock.sql.connectors.iceberg.table import IcebergTable
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.storage import LocalStorage
from support.iceberg_tables import SinkSteps
from support.sql_tables import table_context

COLUMNS = "id BIGINT NOT NULL, word STRING"


def table(options: str = "", columns: str = COLUMNS, more: str = "", **given: Any) -> TableContext:
    catalog = given.pop("catalog", "'catalog-type'='rest', 'uri'='http://h:1'")
    added = f", {options}" if options else ""
    made = table_context(
        f"CREATE TABLE t ({columns}) {more} WITH ('connector'='iceberg', 'catalog-name'='c', {catalog}{added})"
    )
    return replace(made, **given)


def test_a_table_is_read_once_or_as_it_grows() -> None:
    once = IcebergTable().source(table("'catalog-database'='db', 'catalog-table'='events', 's3.endpoint'='http://s3'"))
    source = once.source
    assert (source.table, source.mode, source.columns) == ("db.events", "snapshot", ("id", "word"))
    assert source.catalog == {"name": "c", "type": "rest", "uri": "http://h:1", "s3.endpoint": "http://s3"}
    streaming = "'streaming'='true', 'monitor-interval'='5 s', 'starting-strategy'='INCREMENTAL_FROM_SNAPSHOT_ID', 'start-snapshot-id'='7'"
    source = IcebergTable().source(table(streaming)).source
    assert (source.mode, source.starting_strategy, source.start_snapshot_id) == (
        "incremental",
        "incremental_from_snapshot_id",
        7,
    )
    assert (source.table, source.poll_ms) == ("default.t", 5_000)
    default = IcebergTable().source(table("'streaming'='true'")).source
    assert default.starting_strategy == "incremental_from_latest_snapshot"
    then = IcebergTable().source(table("'as-of-timestamp'='1000'")).source
    assert then.as_of == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)


def test_rows_are_added_or_written_by_key() -> None:
    added = IcebergTable().sink(
        table("'target-file-size-bytes'='1000', 'format-version'='2'", more="PARTITIONED BY (word)"), overwrite=False
    )
    assert (added.takes, added.sink.key, added.sink.partition_by, added.sink.target_bytes) == (
        "append",
        None,
        ("word",),
        1000,
    )
    assert added.sink.create == pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
    keyed = f"{COLUMNS}, PRIMARY KEY (id) NOT ENFORCED"
    assert IcebergTable().sink(table(columns=keyed), overwrite=False).takes == "append"
    upsert = IcebergTable().sink(table("'write.upsert.enabled'='true'", keyed), overwrite=False)
    assert (upsert.takes, upsert.sink.key, upsert.sink.delete_when) == ("upsert", ("id",), None)
    changes = IcebergTable().sink(table(columns=keyed, is_updating=True), overwrite=False)
    assert (changes.sink.delete_when, changes.schema.names) == (
        "poundlock_deleted",
        ["id", "word", "poundlock_deleted"],
    )


def test_types_that_a_table_is_made_with() -> None:
    columns = "a TINYINT, b SMALLINT, c TIME, d TIMESTAMP(3), e TIMESTAMP_LTZ(6), f ARRAY<SMALLINT>, g DECIMAL(10, 2), h ROW<x TINYINT>"
    made = IcebergTable().sink(table(columns=columns), overwrite=False).sink.create
    assert [str(each.type) for each in made][:5] == [
        "int32",
        "int32",
        "time64[us]",
        "timestamp[us]",
        "timestamp[us, tz=UTC]",
    ]
    assert made.field("f").type.value_type == pa.int32()
    assert made.field("h").type.field(0).type == pa.int32()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("'strange'='1'", "iceberg has no option 'strange'"),
        ("'starting-strategy'='TABLE_SCAN_THEN_INCREMENTAL'", "'streaming' is false"),
        ("'streaming'='true', 'start-snapshot-id'='7'", "go together"),
        ("'write-format'='orc'", "cannot be"),
        ("'write.upsert.enabled'='true'", "needs a key"),
    ],
)
def test_options_that_cannot_be(options: str, why: str) -> None:
    def read_and_write() -> None:
        IcebergTable().source(table(options))
        IcebergTable().sink(table(options), overwrite=False)

    with pytest.raises(OptionError, match=why):
        read_and_write()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="'catalog-type' = None"):
        options_of(table(catalog="'uri'='x'"))
    with pytest.raises(OptionError, match="'catalog-type' = 'hadoop'"):
        options_of(table(catalog="'catalog-type'='hadoop'"))
    with pytest.raises(OptionError, match="no INSERT OVERWRITE"):
        IcebergTable().sink(table(), overwrite=True)
    with pytest.raises(OptionError, match="six digits"):
        IcebergTable().sink(table(columns="ts TIMESTAMP(9)"), overwrite=False)
    with pytest.raises(OptionError, match="no metadata columns"):
        IcebergTable().source(table(columns="id BIGINT, x STRING METADATA"))


def test_rows_come_back_as_they_were_declared(tmp_path: Path) -> None:
    place = f"'catalog-type'='sql', 'uri'='sqlite:///{tmp_path}/c.db', 'warehouse'='file://{tmp_path}/w', 'catalog-database'='db'"
    made = table(columns="a TINYINT, c TIME, f ARRAY<SMALLINT>, h ROW<x TINYINT>, e TIMESTAMP(3)", catalog=place)
    sink = IcebergTable().sink(made, overwrite=False)
    row = {"a": 1, "c": dt.time(1, 2, 3), "f": [1, None], "h": {"x": 5}, "e": dt.datetime(2024, 1, 1, 0, 0, 0, 5000)}
    given = pa.RecordBatch.from_pylist(
        [{f.column: row[f.name] for f in made.fields}],
        pa.schema([pa.field(f.column, f.type.arrow) for f in made.fields]),
    )
    written, _ = sink.program.run(given)
    SinkSteps(sink.sink).take(0, written)
    read = IcebergTable().source(made)
    enumerator = read.source.enumerator(LocalStorage(str(tmp_path)))
    (split,) = enumerator.splits({}, enumerator.latest(enumerator.initial()))
    (chunk,) = read.source.reader(ReaderContext(lambda reject: None)).read(split)
    assert read.program is not None
    rows, _ = read.program.run(chunk.batch)
    assert rows.schema == given.schema
    assert rows.to_pylist() == given.to_pylist()
