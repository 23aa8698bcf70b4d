"""Tables of Kafka without a broker: what their options mean, rows of records, and records of rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.kafka.source.reader import TYPES
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.kafka.metadata import HEADERS, as_map
from poundlock.sql.connectors.kafka.table import KafkaTable
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn
from support.table_formats import definition_of

AT = datetime(2026, 1, 5, 10, 0, 0, 123_000, UTC)
GROUP = ", 'properties.group.id'='g'"
JSON = f"'format'='json', 'scan.startup.mode'='earliest-offset'{GROUP}"
UPSERT = "'connector'='upsert-kafka', 'key.format'='json', 'value.format'='json'"


def context(columns: str, options: str, *, zone: str = "UTC", written: bool = False) -> TableContext:
    kafka = "" if "'connector'" in options else "'connector'='kafka', "
    common = f"{kafka}'topic'='t', 'properties.bootstrap.servers'='localhost:9092', "
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ({common}{options})")
    fields = tuple(
        Field(c.name, f"{c.name}_{place}", c.type)
        for place, c in enumerate(definition.columns)
        if isinstance(c, PhysicalColumn) or (isinstance(c, ConnectorColumn) and not (written and c.is_virtual))
    )
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo(zone), False)


def table(options: str) -> KafkaTable:
    return KafkaTable(is_upsert="upsert-kafka" in options)


def source(columns: str, options: str, **more: Any) -> Any:
    return table(options).source(context(columns, options, **more))


def sink(columns: str, options: str, **more: Any) -> Any:
    return table(options).sink(context(columns, options, written=True, **more), overwrite=False)


def records(*given: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([r.get(n) for r in given], kind) for n, kind in TYPES.items()], [*TYPES]
    )


def rows(columns: str, options: str, *given: dict[str, Any], **more: Any) -> list[tuple[Any, ...]]:
    made, _ = source(columns, options, **more).program.run(records(*given))
    return list(zip(*(column.to_pylist() for column in made.columns), strict=True))


def written(columns: str, options: str, *given: tuple[Any, ...], kinds: list[str] | None = None, **more: Any) -> Any:
    of = context(columns, options, written=True, **more)
    made = table(options).sink(of, overwrite=False)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[n] for row in given], f.type.arrow) for n, f in enumerate(of.fields)],
        [f.column for f in of.fields],
    )
    if kinds is not None:
        batch = batch.append_column(ROW_KIND, pa.array(kinds))
    out, places = made.program.run(batch)
    assert out.schema == made.schema
    return out.to_pylist(), None if places is None else places.tolist()


# --- records to rows -------------------------------------------------------------------------------------------------


def test_columns_of_value_key_and_record() -> None:
    columns = (
        "k_id INT, name STRING, seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', place BIGINT METADATA FROM 'offset' VIRTUAL, "
        "`topic` STRING METADATA, part INT METADATA FROM 'partition', how STRING METADATA FROM 'timestamp-type', headers MAP<STRING, BYTES> METADATA"
    )
    options = (
        "'key.format'='json', 'key.fields'='k_id', 'key.fields-prefix'='k_', 'value.format'='json', 'value.fields-include'='EXCEPT_KEY', "
        f"'scan.startup.mode'='earliest-offset'{GROUP}"
    )
    record = {
        "key": b'{"id": 7}', "value": b'{"name": "ann"}', "topic": "t", "partition": 2, "offset": 5, "timestamp": AT,
        "timestamp_type": "CreateTime", "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}],
    }  # fmt: skip
    (row,) = rows(columns, options, record)
    assert row == (7, "ann", AT, 5, "t", 2, "CreateTime", [("b", None), ("a", b"2")])


def test_times_of_records_in_the_zone_of_the_session() -> None:
    options = f"'format'='json', 'scan.startup.mode'='earliest-offset'{GROUP}"
    (row,) = rows(
        "n INT, seen TIMESTAMP(3) METADATA FROM 'timestamp'",
        options,
        {"value": b'{"n": 1}', "timestamp": AT},
        zone="Asia/Shanghai",
    )
    assert row == (1, AT.replace(hour=18, tzinfo=None))


CHANGES = f"'scan.startup.mode'='earliest-offset'{GROUP}"
SOURCE = (
    "seen TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL, made TIMESTAMP(3) METADATA FROM 'value.source.timestamp' VIRTUAL, "
    "db STRING METADATA FROM 'value.source.database' VIRTUAL, `schema` STRING METADATA FROM 'value.source.schema' VIRTUAL, "
    "tab STRING METADATA FROM 'value.source.table' VIRTUAL"
)


def debezium(op: str, before: str, after: str, source: str, rest: str = "") -> dict[str, Any]:
    return {"value": f'{{"before":{before},"after":{after},"source":{source},"op":"{op}"{rest}}}'.encode()}


@pytest.mark.parametrize("all_of_it", [False, True])
def test_what_a_change_of_debezium_has_beside_its_rows(all_of_it: bool) -> None:
    more = ", whole MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL" if all_of_it else ""
    of_postgres = '{"version":"2.7","ts_ms":1700000000123,"db":"shop","schema":"public","table":"orders","snapshot":false,"lsn":24023128}'
    made = rows(
        f"id INT, {SOURCE}{more}, place BIGINT METADATA FROM 'offset' VIRTUAL", f"'format'='debezium-json', {CHANGES}",
        debezium("c", "null", '{"id":1}', of_postgres, ',"ts_ms":1700000000500') | {"offset": 4},
        {"value": b"", "offset": 5},
        debezium("u", '{"id":1}', '{"id":2}', '{"ts_ms":1700000001000,"db":"shop","collection":"carts"}') | {"offset": 6},
        debezium("d", '{"id":2}', "null", "null", ',"ts_ms":null') | {"offset": 7},
        zone="Asia/Shanghai",
    )  # fmt: skip

    def at(ms: int, zone: Any = UTC) -> datetime:
        return datetime.fromtimestamp(ms / 1000, zone)

    in_shanghai = ZoneInfo("Asia/Shanghai")
    first = (at(1700000000500), at(1700000000123, in_shanghai).replace(tzinfo=None), "shop", "public", "orders")
    second = (None, at(1700000001000, in_shanghai).replace(tzinfo=None), "shop", None, "carts")
    whole: list[Any] = [
        [("version", "2.7"), ("ts_ms", "1700000000123"), ("db", "shop"), ("schema", "public"), ("table", "orders"), ("snapshot", "false"), ("lsn", "24023128")],
        *[[("ts_ms", "1700000001000"), ("db", "shop"), ("collection", "carts")]] * 2,
        None,
    ]  # fmt: skip
    expected = [(1, *first), (1, *second), (2, *second), (2, None, None, None, None, None)]
    of_all = [(*row, each) if all_of_it else row for row, each in zip(expected, whole, strict=True)]
    kinds, places = ("+I", "-U", "+U", "-D"), (4, 6, 6, 7)
    assert made == [(*row, place, kind) for row, place, kind in zip(of_all, places, kinds, strict=True)]


def test_the_schema_beside_a_change_of_debezium() -> None:
    schema = '{"type":"struct","optional":false}'
    record = debezium("c", "null", '{"id":1}', '{"table":"orders"}')["value"].decode()
    (row,) = rows(
        "id INT, s STRING METADATA FROM 'value.schema' VIRTUAL, tab STRING METADATA FROM 'value.source.table' VIRTUAL",
        f"'value.format'='debezium-json', 'value.debezium-json.schema-include'='true', {CHANGES}",
        {"value": f'{{"schema":{schema},"payload":{record}}}'.encode()},
    )
    assert row == (1, schema, "orders", "+I")
    (row,) = rows(
        "id INT, s STRING METADATA FROM 'value.schema' VIRTUAL", f"'format'='debezium-json', {CHANGES}", {"value": record.encode()}
    )  # fmt: skip
    assert row == (1, None, "+I")


def test_what_a_change_of_canal_has_beside_its_rows() -> None:
    record = (
        '{"data":[{"id":"1"},{"id":"2"}],"old":[{"id":"0"},{}],"type":"UPDATE","database":"shop","table":"orders",'
        '"sqlType":{"id":4,"name":12},"pkNames":["id"],"ts":1700000000500,"es":1700000000000}'
    )
    made = rows(
        "id INT, db STRING METADATA FROM 'value.database' VIRTUAL, tab STRING METADATA FROM 'value.table' VIRTUAL, "
        "kinds MAP<STRING, INT> METADATA FROM 'value.sql-type' VIRTUAL, names ARRAY<STRING> METADATA FROM 'value.pk-names' VIRTUAL, "
        "seen TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL, made TIMESTAMP_LTZ(3) METADATA FROM 'value.event-timestamp' VIRTUAL",
        f"'format'='canal-json', 'canal-json.table.include'='orders', {CHANGES}",
        {"value": record.replace("orders", "others").encode()},
        {"value": record.encode()},
    )
    beside = ("shop", "orders", [("id", 4), ("name", 12)], ["id"], datetime.fromtimestamp(1700000000.5, UTC), datetime.fromtimestamp(1700000000, UTC))  # fmt: skip
    assert made == [(number, *beside, kind) for number, kind in ((0, "-U"), (1, "+U"), (2, "-U"), (2, "+U"))]


def test_what_a_change_of_maxwell_has_beside_its_rows() -> None:
    record = b'{"database":"shop","table":"orders","type":"insert","ts":1700000000,"data":{"id":1},"primary_key_columns":["id"]}'
    made = rows(
        "id INT, db STRING METADATA FROM 'value.database' VIRTUAL, tab STRING METADATA FROM 'value.table' VIRTUAL, "
        "names ARRAY<STRING> METADATA FROM 'value.primary-key-columns' VIRTUAL, seen TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL",
        f"'format'='maxwell-json', {CHANGES}",
        {"value": record},
        {"value": b'{"type":"delete","data":{"id":1}}'},
    )
    seen = datetime.fromtimestamp(1700000000, UTC)
    assert made == [(1, "shop", "orders", ["id"], seen, "+I"), (1, None, None, None, None, "-D")]


def test_what_key_and_value_both_have_is_read_of_the_value() -> None:
    options = f"'key.format'='json', 'key.fields'='id', {JSON}"
    assert rows("id INT, n INT", options, {"key": b'{"id": 1}', "value": b'{"id": 2, "n": 3}'}) == [(2, 3)]


def test_a_record_without_value_or_key_is_no_row() -> None:
    options = f"'key.format'='raw', 'key.fields'='k', 'value.fields-include'='EXCEPT_KEY', {JSON}"
    both = {"key": b"a", "value": b'{"n": 1}'}
    assert rows("k STRING, n INT", options, both, {"key": b"b"}) == [("a", 1)]
    options = f"'key.format'='json', 'key.fields'='k', 'value.fields-include'='EXCEPT_KEY', {JSON}"
    program = source("k STRING, n INT", options).program
    _, places = program.run(records({"value": b'{"n": 1}'}, {"key": b'{"k": "a"}', "value": b'{"n": 2}'}))
    assert places.tolist() == [1]
    assert program.leaves_out


def test_upserts_and_tombstones() -> None:
    made = source("id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", UPSERT)
    assert made.is_updating
    out, places = made.program.run(
        records(
            {"key": b'{"id": 1}', "value": b'{"id": 1, "n": 5}'},
            {"key": b'{"id": 2}'},
            {"key": b'{"id": 3}', "value": b'{"id": 3, "n": 6}'},
            {"key": None, "value": b'{"id": 4, "n": 6}'},
        )
    )
    assert list(zip(*(column.to_pylist() for column in out.columns), strict=True)) == [
        (1, 5, "+U"),
        (2, None, "-D"),
        (3, 6, "+U"),
    ]
    assert places.tolist() == [0, 1, 2]
    only_gone = [{"key": b'{"id": 2}'}, {"key": b'{"id": 1}'}]
    assert rows("id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", UPSERT, *only_gone) == [
        (2, None, "-D"),
        (1, None, "-D"),
    ]


def test_upserts_whose_value_has_no_key_in_it() -> None:
    options = f"{UPSERT}, 'value.fields-include'='EXCEPT_KEY', 'key.fields-prefix'='k_', 'value.json.ignore-parse-errors'='true'"
    given = [
        {"key": b'{"id": 1}', "value": b'{"n": 5}'},
        {"key": b'{"id": 1}', "value": b"broken"},
        {"key": b'{"id": 2}'},
    ]
    assert rows("k_id INT, n INT, PRIMARY KEY (k_id) NOT ENFORCED", options, *given) == [(1, 5, "+U"), (2, None, "-D")]


def test_changes_of_databases() -> None:
    options = f"'format'='debezium-json', 'scan.startup.mode'='earliest-offset'{GROUP}"
    given = {"value": b'{"before": {"id": 1, "n": 2}, "after": {"id": 1, "n": 3}, "op": "u"}', "offset": 9}
    columns = "id INT, n INT, o BIGINT METADATA FROM 'offset', PRIMARY KEY (id) NOT ENFORCED"
    assert rows(columns, options, given) == [(1, 2, 9, "-U"), (1, 3, 9, "+U")]


def test_headers_as_maps() -> None:
    headers = pa.array([None, [], [{"key": "a", "value": b"1"}], [{"key": "b", "value": b""}] * 2], TYPES["headers"])
    made = as_map(headers)
    assert made.type == HEADERS.arrow
    assert made.to_pylist() == [[], [], [("a", b"1")], [("b", b"")]]
    assert as_map(headers.slice(0, 0)).to_pylist() == []


# --- rows to records -------------------------------------------------------------------------------------------------


def test_a_record_has_key_value_time_and_headers() -> None:
    columns = "k_id INT, n INT, seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA, o BIGINT METADATA FROM 'offset' VIRTUAL"
    options = (
        "'key.format'='json', 'key.fields'='k_id', 'key.fields-prefix'='k_', 'value.fields-include'='EXCEPT_KEY', "
        "'value.format'='json', 'value.json.encode.ignore-null-fields'='true'"
    )
    out, places = written(columns, options, (1, 2, AT, [("a", b"1")]), (3, None, None, None))
    assert places is None
    assert out == [
        {"key": b'{"id":1}', "value": b'{"n":2}', "timestamp": AT, "headers": [("a", b"1")]},
        {"key": b'{"id":3}', "value": b"{}", "timestamp": None, "headers": None},
    ]


def test_a_row_that_is_taken_away_is_a_record_without_value() -> None:
    given = [(1, 5), (1, 5), (1, 6), (2, 7)]
    out, places = written(
        "id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", UPSERT, *given, kinds=["+I", "-U", "+U", "-D"]
    )
    assert out == [
        {"key": b'{"id":1}', "value": b'{"id":1,"n":5}'},
        {"key": b'{"id":1}', "value": b'{"id":1,"n":6}'},
        {"key": b'{"id":2}', "value": None},
    ]
    assert places == [0, 2, 3]


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ("'scan.startup.mode'='earliest-offset'", StartingOffsets.earliest(), None),
        ("'scan.startup.mode'='latest-offset', 'scan.bounded.mode'='latest-offset'", StartingOffsets.latest(), StartingOffsets.latest()),
        (
            "'scan.startup.mode'='timestamp', 'scan.startup.timestamp-millis'='5', 'scan.bounded.mode'='timestamp', 'scan.bounded.timestamp-millis'='9'",
            StartingOffsets.timestamp(5),
            StartingOffsets.timestamp(9),
        ),
        (
            "'scan.startup.mode'='specific-offsets', 'scan.startup.specific-offsets'='partition:0,offset:42;partition:1,offset:300'",
            StartingOffsets.offsets({("t", 0): 42, ("t", 1): 300}),
            None,
        ),
        ("'properties.group.id'='g'", StartingOffsets.committed("g", otherwise="fail"), None),
        (
            "'properties.group.id'='g', 'properties.auto.offset.reset'='latest', 'scan.bounded.mode'='group-offsets'",
            StartingOffsets.committed("g", otherwise="latest"),
            StartingOffsets.committed("g", otherwise="fail"),
        ),
        ("'properties.auto.offset.reset'='earliest'", StartingOffsets.earliest(), None),
    ],
)  # fmt: skip
def test_where_a_table_begins_and_ends(options: str, start: StartingOffsets, end: StartingOffsets | None) -> None:
    made = source("n INT", f"'format'='json', {options}").source
    assert (made.start, made.end) == (start, end)


def test_upserts_are_read_from_the_beginning() -> None:
    made = source("id INT, PRIMARY KEY (id) NOT ENFORCED", f"{UPSERT}, 'scan.bounded.mode'='latest-offset'").source
    assert (made.start, made.end) == (StartingOffsets.earliest(), StartingOffsets.latest())


def test_settings_of_clients() -> None:
    login = (
        "'properties.security.protocol'='SASL_PLAINTEXT', 'properties.sasl.mechanism'='SCRAM-SHA-512', "
        """'properties.sasl.jaas.config'='org.apache.kafka.common.security.scram.ScramLoginModule required username="etl" password="env:SECRET";'"""
    )
    tuning = "'properties.fetch.min.bytes'='5', 'properties.linger.ms'='7', 'properties.compression.type'='lz4', 'properties.client.id'='c'"
    options = f"{JSON}, {login}, {tuning}, 'properties.isolation.level'='read_uncommitted', 'sink.delivery-guarantee'='exactly-once', 'sink.transactional-id-prefix'='p', 'properties.transaction.timeout.ms'='60000'"
    read, made = source("n INT", options).source, sink("n INT", options).sink
    assert (read.security.mechanism, read.security.username, read.security.password) == (
        "SCRAM-SHA-512",
        "etl",
        "env:SECRET",
    )
    assert (read.group_id, read.isolation) == ("g", "read_uncommitted")
    assert read.options == {"kafka.fetch.min.bytes": "5", "kafka.client.id": "c"}
    assert made.client_options == {"linger.ms": "7", "client.id": "c"}
    assert (made.compression, made.guarantee, made.transactional_id_prefix) == ("lz4", "exactly-once", "p")
    assert made.transaction_timeout.total_seconds() == 60
    assert "SECRET" not in repr(read) + repr(made)


@pytest.mark.parametrize(
    ("columns", "options", "what", "kind"),
    [
        ("n INT", "'format'='json'", "neither where it begins nor a group", "missing_option"),
        ("n INT", f"{JSON}, 'scan.bounded.mode'='timestamp'", "'scan.bounded.timestamp-millis'", "missing_option"),
        ("n INT", f"'format'='json', 'scan.startup.mode'='specific-offsets'{GROUP}", "no 'scan.startup.specific-offsets'", "missing_option"),
        ("n INT", f"'format'='json', 'scan.startup.mode'='specific-offsets', 'scan.startup.specific-offsets'='0:5'{GROUP}", "'0:5' cannot be", "bad_option_value"),
        ("n INT", f"'format'='json', 'scan.startup.mode'='somewhere'{GROUP}", "'somewhere' cannot be", "bad_option_value"),
        ("n INT", f"{JSON}, 'value.format'='json'", "say the same", "bad_option_value"),
        ("n INT", f"{JSON}, 'value.json.ignore-parse-errors'='true'", "no option 'value.json.ignore-parse-errors'", "unknown_option"),
        ("n INT", f"{JSON}, 'properties.fetch.min.byte'='1'", "no option 'properties.fetch.min.byte'", "unknown_option"),
        ("n INT", f"{JSON}, 'key.fields'='n'", "no 'key.format'", "missing_option"),
        ("n INT", f"{JSON}, 'key.format'='json'", "no 'key.fields'", "missing_option"),
        ("n INT", f"{JSON}, 'key.format'='json', 'key.fields'='m'", "names m, which is no column", "unknown_column"),
        ("n INT", f"{JSON}, 'key.format'='debezium-json', 'key.fields'='n', 'value.fields-include'='EXCEPT_KEY'", "a key is no change", "bad_option_value"),
        ("n INT, m INT", f"{JSON}, 'key.format'='json', 'key.fields'='n', 'key.fields-prefix'='k_'", "does not begin with 'k_'", "bad_option_value"),
        ("k_n INT, m INT", f"{JSON}, 'key.format'='json', 'key.fields'='k_n', 'key.fields-prefix'='k_'", "none of the value", "bad_option_value"),
        ("n INT, PRIMARY KEY (n) NOT ENFORCED", JSON, "has a primary key", "primary_key"),
        ("n INT", UPSERT, "has no primary key", "primary_key"),
        ("n INT, PRIMARY KEY (n) NOT ENFORCED", f"{UPSERT}, 'scan.startup.mode'='earliest-offset'", "no option 'scan.startup.mode'", "unknown_option"),
        ("n INT, PRIMARY KEY (n) NOT ENFORCED", "'connector'='upsert-kafka', 'format'='json', 'key.format'='json'", "no option 'value.format'", "missing_option"),
        ("n INT, PRIMARY KEY (n) NOT ENFORCED", "'connector'='upsert-kafka', 'key.format'='json', 'value.format'='debezium-json'", "cannot be an upsert", "bad_option_value"),
        ("n INT, o BIGINT METADATA FROM 'offsett'", JSON, "no metadata 'offsett'", "unknown_column"),
        ("n INT, o STRING METADATA FROM 'value.table'", JSON, "no metadata 'value.table'", "unknown_column"),
        ("n INT, o STRING METADATA FROM 'value.table'", JSON.replace("'json'", "'debezium-json'"), "no metadata 'value.table'", "unknown_column"),
        ("n INT, o INT METADATA FROM 'value.pk-names'", JSON.replace("'json'", "'canal-json'"), "pk-names of a record ARRAY", "type_mismatch"),
        ("n INT, o DATE METADATA FROM 'offset'", JSON, "offset of a record BIGINT", "type_mismatch"),
        ("n INT", f"{JSON}, 'properties.ssl.truststore.location'='ca.jks'", "keystore of Java", "bad_option_value"),
        ("n INT", f"{JSON}, 'properties.security.protocol'='SASL_SSL'", "needs a mechanism", "bad_option_value"),
        ("n INT", f"{JSON}, 'properties.sasl.mechanism'='PLAIN'", "names no username", "bad_option_value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(columns: str, options: str, what: str, kind: str) -> None:
    with pytest.raises(OptionError, match=what) as error:
        source(columns, options)
    assert error.value.kind == kind
    assert error.value.next


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        ("n INT, o BIGINT METADATA FROM 'offset'", "'format'='json'", "cannot be written"),
        ("n INT, o STRING METADATA FROM 'value.table'", "'format'='canal-json'", "cannot be written"),
        ("n INT", "'format'='json', 'sink.transactional-id-prefix'='p'", "means nothing to at-least-once"),
        ("n INT", "'format'='json', 'sink.delivery-guarantee'='exactly-once', 'sink.transactional-id-prefix'='a b'", "cannot begin a transactional id"),
        ("n INT", "'format'='json', 'sink.partitioner'='fixed'", "'fixed' cannot be"),
        ("n INT", "'format'='json', 'sink.parallelism'='2'", "no option 'sink.parallelism'"),
        ("n INT", "'format'='json', 'key.fields'='n'", "no 'key.format'"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(columns: str, options: str, what: str) -> None:
    with pytest.raises(OptionError, match=what):
        sink(columns, options)
