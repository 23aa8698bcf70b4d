"""The options of opensearch and elasticsearch tables: Flink's names, documents of rows, and what is refused."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.opensearch.sink import ElasticsearchSink, OpenSearchSink
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.jdbc.columns import DELETED
from poundlock.sql.connectors.opensearch import DOCUMENT
from poundlock.sql.connectors.registry import CONNECTORS
from poundlock.sql.connectors.table import TableContext, TableSink
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import PhysicalColumn
from support.table_formats import definition_of

COLUMNS = "id BIGINT, born DATE, name STRING, at_ TIMESTAMP(3), PRIMARY KEY (id, name) NOT ENFORCED"


def sink_of(
    options: str = "", columns: str = COLUMNS, connector: str = "opensearch-2", *, is_updating: bool = False
) -> TableSink:
    given = {"hosts": "http://a:9200;http://b:9200", "index": "people"}
    written = "".join(f", '{name}'='{value}'" for name, value in given.items() if f"'{name}'" not in options)
    more = f", {options}" if options else ""
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ('connector'='{connector}'{written}{more})")
    fields = tuple(
        Field(c.name, f"{c.name.lower()}_0", c.type) for c in definition.columns if isinstance(c, PhysicalColumn)
    )
    table = TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False, is_updating=is_updating)
    return CONNECTORS[connector]().sink(table, overwrite=False)


def test_options_go_by_flinks_names() -> None:
    made = sink_of(
        "'document-id.key-delimiter'='$', 'username'='u', 'password'='env:P', 'sink.bulk-flush.max-actions'='7',"
        " 'sink.bulk-flush.max-size'='1mb', 'sink.bulk-flush.interval'='1s', 'connection.path-prefix'='/es/', 'allow-insecure'='true',"
        " 'socket.timeout'='5s', 'sink.delivery-guarantee'='at-least-once', 'format'='json'"
    )
    sink = made.sink
    assert isinstance(sink, OpenSearchSink)
    assert sink.hosts == ("http://a:9200/es", "http://b:9200/es")
    assert (sink.key, sink.key_delimiter, sink.bulk_bytes, sink.bulk_actions) == (("id", "name"), "$", 1 << 20, 7)
    assert (sink.user, sink.password, sink.allow_insecure, sink.guarantee) == ("u", "env:P", True, "effectively-once")
    assert made.takes == "upsert"
    assert made.key == ("id_0", "name_0")


def test_without_a_key_rows_are_added() -> None:
    made = sink_of(columns="id BIGINT", connector="elasticsearch-7")
    assert isinstance(made.sink, ElasticsearchSink)
    assert (made.takes, made.sink.guarantee, made.schema.names) == ("append", "at-least-once", [DOCUMENT])


def test_rows_are_documents_with_what_names_them_beside() -> None:
    made = sink_of("'index'='people-{born|yyyy}'", is_updating=True)
    day = pa.array([20_000] * 4, pa.int32()).cast(pa.date32())
    rows = pa.record_batch(
        {
            "id_0": pa.array([1, 1, 2, 3]), "born_0": day, "name_0": pa.array(["a", "a", "b", "c"]),
            "at__0": pa.array([0] * 4, pa.int64()).cast(pa.timestamp("ms")), ROW_KIND: pa.array(["-U", "+U", "-D", "+I"]),
        }
    )  # fmt: skip
    written, places = made.program.run(rows)
    assert places is not None
    assert places.tolist() == [1, 2, 3]
    assert written.schema.equals(made.schema)
    assert written.column(DELETED).to_pylist() == [False, True, False]
    assert json.loads(written.column(DOCUMENT)[0].as_py()) == {
        "id": 1, "born": "2024-10-04", "name": "a", "at_": "1970-01-01 00:00:00"
    }  # fmt: skip
    assert written.column("name").to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("'hosts'='a:9200'", "no URL of a node"),
        ("'sink.bulk-flush.max-rows'='1'", "has no option 'sink.bulk-flush.max-rows'"),
        ("'sink.bulk-flush.backoff.strategy'='CONSTANT'", "'CONSTANT' cannot be"),
        ("'sink.delivery-guarantee'='none'", "'none' cannot be"),
        ("'sink.parallelism'='2'", "cannot be set for one sink"),
        ("'format'='csv'", "'csv' cannot be"),
        ("'index'='p-{now()|yyyy}'", "depends on when a row is written"),
        ("'index'='p-{nope}'", "names a column 'nope'"),
        ("'index'='p-{name|yyyy}'", "needs a date or time"),
        ("'document-id.key-delimiter'=''", "two keys could make one id"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: str, words: str) -> None:
    with pytest.raises(OptionError, match=words.replace("(", "\\(").replace(")", "\\)")):
        sink_of(options)
