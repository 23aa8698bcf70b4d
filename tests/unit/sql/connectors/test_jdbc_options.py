"""The options of jdbc tables: Flink's names, URLs of PostgreSQL as libpq's words, and what is refused."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from poundlock.connectors.jdbc.sink import JdbcSink
from poundlock.connectors.jdbc.source.source import JdbcSource
from poundlock.connectors.postgres.sink.sink import PostgresSink
from poundlock.connectors.postgres.source.source import PostgresSource
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.full_cache import FullReload
from poundlock.sql.connectors.jdbc.options import PartitionOptions, options_of
from poundlock.sql.connectors.jdbc.table import JdbcTable
from poundlock.sql.connectors.jdbc.url import conninfo_of
from poundlock.sql.connectors.table import CacheLimits, TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn
from support.table_formats import definition_of

URL = "jdbc:postgresql://db.example:5433/shop"
SECRET = "Tr0mpete"


def table(options: str = "", columns: str = "id BIGINT, name STRING", **given: Any) -> TableContext:
    more = f", {options}" if options else ""
    url = given.pop("url", URL)
    definition = definition_of(
        f"CREATE TABLE t ({columns}) WITH ('connector'='jdbc', 'url'='{url}', 'table-name'='public.people'{more})"
    )
    fields = tuple(
        Field(c.name, f"{c.name.lower()}_0", c.type)
        for c in definition.columns
        if isinstance(c, PhysicalColumn | ConnectorColumn)
    )
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False, **given)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (URL, "host='db.example' port='5433' dbname='shop'"),
        ("jdbc:postgresql://db/shop", "host='db' port='5432' dbname='shop'"),
        ("jdbc:postgresql://a:1,b:2/x", "host='a,b' port='1,2' dbname='x'"),
        ("jdbc:postgresql://[::1]:9/x", "host='::1' port='9' dbname='x'"),
        ("jdbc:postgresql:shop", "dbname='shop'"),
        ("jdbc:postgresql://h/a%20b?user=o%27x&ssl=true", "host='h' port='5432' dbname='a b' user='o\\'x' sslmode='verify-full'"),
        (
            "jdbc:postgresql://h/x?currentSchema=own&targetServerType=primary&reWriteBatchedInserts=true",
            "host='h' port='5432' dbname='x' options='-c search_path=own' target_session_attrs='primary'",
        ),
    ],
)  # fmt: skip
def test_a_url_is_libpqs_words(url: str, words: str) -> None:
    assert conninfo_of(url, "t", {}) == words


def test_what_a_url_has_that_means_nothing_here_is_refused() -> None:
    with pytest.raises(OptionError, match="the property prepareThreshold of the connection"):
        conninfo_of(f"{URL}?prepareThreshold=5", "t", {})
    with pytest.raises(OptionError, match="is no database"):
        conninfo_of("jdbc:postgresql:/shop/x", "t", {})


def test_a_scan_reads_one_snapshot_with_the_columns_of_the_table() -> None:
    options = f"'username'='etl', 'password'='{SECRET}', 'driver'='org.postgresql.Driver', 'scan.fetch-size'='100', 'scan.auto-commit'='false', 'connection.max-retry-timeout'='30s', 'properties.ApplicationName'='a & b'"
    made = JdbcTable().source(table(options, 'Id BIGINT, `"Name"` STRING'))
    source = made.source
    assert isinstance(source, PostgresSource)
    assert (source.mode, source.table, source.columns) == ("snapshot", "public.people", ("id", "Name"))
    known = source.login.parameters()
    assert (known["user"], known["password"], known["connect_timeout"]) == ("etl", SECRET, "30")
    assert known["application_name"] == "a & b"
    assert SECRET not in repr(source)
    assert not made.is_updating
    assert made.source.bounded


def test_a_scan_is_cut_by_its_partition_column() -> None:
    options = "'scan.partition.column'='id', 'scan.partition.num'='3', 'scan.partition.lower-bound'='0', 'scan.partition.upper-bound'='10'"
    source = JdbcTable().source(table(options)).source
    assert source.ranges == ('"id" >= 0 AND "id" < 3', '"id" >= 3 AND "id" < 7', '"id" >= 7 AND "id" <= 10')
    few = table(options.replace("'3'", "'30'").replace("'10'", "'1'"))
    assert JdbcTable().source(few).source.ranges == ('"id" >= 0 AND "id" < 1', '"id" >= 1 AND "id" <= 1')


def test_rows_are_added_exactly_once_and_replaced_by_key() -> None:
    added = JdbcTable().sink(table("'sink.buffer-flush.max-rows'='10', 'sink.max-retries'='5'"), overwrite=False)
    assert isinstance(added.sink, PostgresSink)
    assert (added.sink.mode, added.takes, added.schema.names) == ("prepare", "append", ["id", "name"])
    twice = JdbcTable().sink(table("'sink.delivery-guarantee'='at-least-once'"), overwrite=False)
    assert twice.sink.mode == "append"
    keyed = "Id BIGINT, name STRING, PRIMARY KEY (Id) NOT ENFORCED"
    upsert = JdbcTable().sink(table(columns=keyed), overwrite=False)
    assert (upsert.sink.key, upsert.sink.delete_when, upsert.takes, upsert.key) == (("id",), None, "upsert", ("id_0",))
    changes = JdbcTable().sink(table(columns=keyed, is_updating=True), overwrite=False)
    assert changes.sink.delete_when == "poundlock_deleted"
    assert changes.schema.names == ["id", "name", "poundlock_deleted"]


def test_other_databases_are_written_by_their_driver() -> None:
    options = "'sink.staging'='/tmp/rows', 'jars'='/a.jar;/b.jar', 'username'='u', 'password'='env:P', 'sink.buffer-flush.max-rows'='7', 'properties.x'='y'"
    keyed = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    sink = JdbcTable().sink(table(options, keyed, url="jdbc:mysql://h/x", is_updating=True), overwrite=False).sink
    assert isinstance(sink, JdbcSink)
    assert (sink.key, sink.delete_when, sink.batch, sink.jars) == (
        ("id",),
        "poundlock_deleted",
        7,
        ("/a.jar", "/b.jar"),
    )
    assert (sink.user, sink.properties, sink.staging) == ("u", {"x": "y"}, "/tmp/rows")


def test_how_a_table_is_looked_up_in() -> None:
    plain = options_of(table())
    assert (plain.cache, plain.lookup_retries) == (CacheLimits(), 3)
    partial = "'lookup.cache'='PARTIAL', 'lookup.partial-cache.max-rows'='100', 'lookup.partial-cache.expire-after-write'='10 min', 'lookup.partial-cache.expire-after-access'='1 s', 'lookup.partial-cache.cache-missing-key'='false', 'lookup.max-retries'='1'"
    made = options_of(table(partial))
    assert (made.cache, made.lookup_retries) == (CacheLimits(100, 600_000, 1_000, False), 1)
    assert options_of(table("'lookup.cache'='PARTIAL'")).cache.max_rows == 1_000_000
    old = "'lookup.cache.max-rows'='5', 'lookup.cache.ttl'='2 s'"
    assert options_of(table(old)).cache == CacheLimits(5, 2_000, None, True)
    full = "'lookup.cache'='FULL', 'lookup.full-cache.periodic-reload.interval'='1 min'"
    assert (options_of(table(full)).cache.max_rows, options_of(table(full)).full_reload) == (0, FullReload(60_000))
    unused = "'lookup.partial-cache.max-rows'='100'"
    assert options_of(table(unused)).cache.max_rows == 0


def test_all_of_scan_partition_is_given_or_none_of_it() -> None:
    whole = "'scan.partition.column'='id', 'scan.partition.num'='2', 'scan.partition.lower-bound'='-5', 'scan.partition.upper-bound'='5'"
    assert options_of(table(whole)).partition == PartitionOptions("id", 2, -5, 5)
    with pytest.raises(OptionError, match=r"no option 'scan\.partition\.num'"):
        options_of(table("'scan.partition.column'='id'"))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ("'url2'='x'", "unknown_option", "url2"),
        ("'driver'='com.mysql.Driver'", "bad_option_value", "not of PostgreSQL"),
        ("'password'='x'", "missing_option", "without 'username'"),
        ("'sink.parallelism'='2'", "unsupported_query", "tasks of the step before"),
        ("'lookup.async'='true'", "unsupported_query", r"'lookup\.async' is not there"),
        ("'lookup.cache'='ALL'", "bad_option_value", r"lookup\.cache"),
        ("'lookup.cache'='FULL'", "missing_option", r"periodic-reload\.interval"),
        ("'lookup.max-retries'='-1'", "bad_option_value", "0 at least"),
        ("'connection.max-retry-timeout'='100 ms'", "bad_option_value", "whole seconds"),
        ("'scan.fetch-size'='many'", "bad_option_value", "scan.fetch-size"),
        ("'sink.delivery-guarantee'='none'", "bad_option_value", "sink.delivery-guarantee"),
        ("'scan.partition.column'='name', 'scan.partition.num'='2', 'scan.partition.lower-bound'='0', 'scan.partition.upper-bound'='5'", "type_mismatch", "is STRING"),
        ("'scan.partition.column'='ids', 'scan.partition.num'='2', 'scan.partition.lower-bound'='0', 'scan.partition.upper-bound'='5'", "unknown_column", "is no column"),
        ("'scan.partition.column'='id', 'scan.partition.num'='2', 'scan.partition.lower-bound'='9', 'scan.partition.upper-bound'='5'", "bad_option_value", "at most the upper"),
    ],
)  # fmt: skip
def test_what_is_refused(options: str, kind: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        JdbcTable().source(table(options))
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    ("url", "is_read", "kind", "words"),
    [
        ("jdbc:mysql://h/x", False, "missing_option", r"sink\.staging"),
        ("postgresql://h/x", True, "bad_option_value", "no URL of JDBC"),
    ],
)
def test_what_urls_are_refused(url: str, is_read: bool, kind: str, words: str) -> None:
    context = table(url=url)
    with pytest.raises(OptionError, match=words) as refused:
        JdbcTable().source(context) if is_read else JdbcTable().sink(context, overwrite=False)
    assert refused.value.kind == kind


def test_other_databases_are_read_through_their_drivers() -> None:
    cut = "'scan.partition.column'='ID', 'scan.partition.num'='3', 'scan.partition.lower-bound'='1', 'scan.partition.upper-bound'='9'"
    more = f"'username'='etl', 'password'='{SECRET}', 'jars'='/a.jar;/b.jar', 'properties.tinyInt1isBit'='false', 'scan.fetch-size'='500'"
    context = table(f"{cut}, {more}", "ID BIGINT, name STRING", url="jdbc:mysql://h/x")
    source = JdbcTable().source(context).source
    assert source == JdbcSource(
        "jdbc:mysql://h/x",
        table="public.people",
        columns=["ID", "name"],
        user="etl",
        password=SECRET,
        properties={"tinyInt1isBit": "false"},
        jars=["/a.jar", "/b.jar"],
        fetch_size=500,
        partition_column="ID",
        partitions=3,
        lower_bound=1,
        upper_bound=9,
    )
    with pytest.raises(OptionError, match="looking rows up in mysql is not there yet"):
        JdbcTable().lookup(context, context.fields[:1])


def test_there_is_no_overwrite_and_no_metadata() -> None:
    with pytest.raises(OptionError, match="INSERT OVERWRITE"):
        JdbcTable().sink(table(), overwrite=True)
    with pytest.raises(OptionError, match="no metadata 'offset'"):
        JdbcTable().source(table(columns="id BIGINT, `offset` BIGINT METADATA"))
