"""The options of an iceberg table, by Flink's names: all of them are read by whoever reads or writes the table, so that none is unknown there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError

_TYPES = ("rest", "sql", "glue", "hive", "dynamodb", "in-memory")
_STRATEGIES = (
    "incremental_from_latest_snapshot",
    "table_scan_then_incremental",
    "incremental_from_earliest_snapshot",
    "incremental_from_snapshot_id",
    "incremental_from_snapshot_timestamp",
)
"""Flink's, its default first."""
_CATALOG = ("uri", "warehouse", "token", "credential", "scope", "oauth2-server-uri", "prefix", "py-io-impl")
_CATALOG_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "client.", "glue.", "rest.", "header.")


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """What the options of a table say.

    Args:
        catalog: properties of the catalog.
        table: "namespace.name".
        streaming: whether further snapshots are read as they come.
        tag: that is read.
        branch: that is read or written.
        is_upsert: whether rows are written by the primary key though all of them are new.
        properties: of a table that is made.
    """

    catalog: Mapping[str, str]
    table: str
    streaming: bool
    monitor_interval: str
    starting_strategy: str
    start_snapshot_id: int | None
    start_timestamp: datetime | None
    end_snapshot_id: int | None
    snapshot_id: int | None
    as_of: datetime | None
    tag: str | None
    branch: str | None
    is_upsert: bool
    target_file_size: int | None
    properties: Mapping[str, str]


def options_of(table: TableContext) -> IcebergOptions:
    """Return the options of a table.

    Raises:
        OptionError: one is missing, not known, or cannot be what it is.
    """
    options = TableOptions(table.name.name, table.definition.options)
    options.required("connector")
    streaming = options.flag("streaming")
    version = options.text("format-version")
    made = IcebergOptions(
        catalog=_catalog(options),
        table=f"{options.text('catalog-database', 'default')}.{options.text('catalog-table', table.name.name)}",
        streaming=streaming,
        monitor_interval=options.span("monitor-interval") or "60 s",
        starting_strategy=options.one_of("starting-strategy", _STRATEGIES, _STRATEGIES[0]),
        start_snapshot_id=options.whole("start-snapshot-id"),
        start_timestamp=_time(options, "start-snapshot-timestamp"),
        end_snapshot_id=options.whole("end-snapshot-id"),
        snapshot_id=options.whole("snapshot-id"),
        as_of=_time(options, "as-of-timestamp"),
        tag=options.text("tag"),
        branch=options.text("branch"),
        is_upsert=options.flag("write.upsert.enabled"),
        target_file_size=options.whole("target-file-size-bytes"),
        properties={} if version is None else {"format-version": version},
    )
    options.one_of("write-format", ("parquet",), "parquet")
    options.finish("iceberg")
    if not streaming:
        for name in (
            "starting-strategy",
            "start-snapshot-id",
            "start-snapshot-timestamp",
            "end-snapshot-id",
            "monitor-interval",
        ):
            if options.text(name) is not None:
                raise OptionError(
                    f"{options.table}: {name!r} has no effect, because 'streaming' is false",
                    next="add 'streaming' = 'true', or leave it out",
                    kind="bad_option_value",
                )
    return made


def _catalog(options: TableOptions) -> dict[str, str]:
    name, kind = options.required("catalog-name"), options.text("catalog-type")
    if kind is None or kind not in _TYPES:
        raise OptionError(
            f"{options.table}: 'catalog-type' = {kind!r} is none of {', '.join(_TYPES)}",
            next="write such as 'catalog-type' = 'rest'",
            kind="missing_option" if kind is None else "bad_option_value",
        )
    given = {each: value for each in _CATALOG if (value := options.text(each)) is not None}
    for prefix in _CATALOG_PREFIXES:
        given |= {prefix + each: value for each, value in options.below(prefix).items()}
    return {"name": name, "type": kind, **given}


def _time(options: TableOptions, name: str) -> datetime | None:
    milliseconds = options.whole(name)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
