"""The options of a jdbc table, by Flink's names: all of them are read by whoever reads or writes the table, so that none is unknown there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from poundlock.connectors.postgres.connection import PostgresLogin
from poundlock.sql.connectors.full_cache import FullReload, full_reload_of
from poundlock.sql.connectors.jdbc.url import conninfo_of, is_postgres
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import CacheLimits, TableContext
from poundlock.sql.errors import OptionError
from poundlock.values import duration

_DRIVER = "org.postgresql.Driver"
_GUARANTEES = ("exactly-once", "at-least-once")
_LEGACY = {
    "lookup.cache.max-rows": "lookup.partial-cache.max-rows",
    "lookup.cache.ttl": "lookup.partial-cache.expire-after-write",
    "lookup.cache.caching-missing-key": "lookup.partial-cache.cache-missing-key",
}
"""Names of before Flink 1.16, which it still takes."""


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """By which column, from where to where, and into how many pieces a table is cut."""

    column: str
    pieces: int
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class JdbcOptions:
    """What the options of a table say.

    Args:
        url: of JDBC; the table's name as the server has it.
        login: to a server of PostgreSQL; None for other databases.
        partition: how a scan is cut; None where it is not.
        fetch_size: rows that a scan by a JDBC driver fetches at a time; 0 = as many as the source does by itself.
        cache: of what is looked up; `lookup_retries`: how often a query that failed is asked again.
        full_reload: when a table that is kept whole is read again; None where it is not.
        guarantee: of a sink without a key.
        rows_per_statement: of sinks that write by statements.
        staging: a folder for rows on their way to other databases.
        jars: of the driver of another database.
    """

    url: str
    table: str
    user: str | None
    password: str | None
    driver: str | None
    properties: Mapping[str, str]
    login: PostgresLogin | None
    partition: PartitionOptions | None
    fetch_size: int
    cache: CacheLimits
    full_reload: FullReload | None
    lookup_retries: int
    guarantee: str
    rows_per_statement: int
    staging: str | None
    jars: tuple[str, ...]


def options_of(table: TableContext) -> JdbcOptions:
    """Return the options of a table.

    Raises:
        OptionError: one is missing, not known, or cannot be what it is.
    """
    options = TableOptions(table.name.name, table.definition.options)
    options.required("connector")
    url, name = options.required("url"), options.required("table-name")
    if not url.startswith("jdbc:"):
        raise OptionError(
            f"{options.table}: 'url' = {url!r} is no URL of JDBC",
            next="write 'url' = 'jdbc:postgresql://host:5432/database'",
            kind="bad_option_value",
        )
    user, password, driver = options.text("username"), options.text("password"), options.text("driver")
    if password is not None and user is None:
        raise OptionError(
            f"{options.table} has 'password' without 'username'", next="add 'username' = '…'", kind="missing_option"
        )
    properties = options.below("properties.")
    timeout = _seconds(options, "connection.max-retry-timeout")
    cache, is_full = _cache(options)
    made = JdbcOptions(
        url=url,
        table=name,
        user=user,
        password=password,
        driver=driver,
        properties=properties,
        login=_login(options, url, user, password, properties, timeout) if is_postgres(url) else None,
        partition=_partition(options),
        fetch_size=_least(options, "scan.fetch-size", 0, 0),  # COPY of PostgreSQL gives rows as they come
        cache=cache,
        full_reload=full_reload_of(options, is_full=is_full, zone=table.zone.key),
        lookup_retries=_least(options, "lookup.max-retries", 3, 0),
        guarantee=options.one_of("sink.delivery-guarantee", _GUARANTEES, "exactly-once"),
        rows_per_statement=_least(options, "sink.buffer-flush.max-rows", 100, 0) or 200,
        staging=options.text("sink.staging"),
        jars=tuple(each.strip() for each in (options.text("jars") or "").split(";") if each.strip()),
    )
    _without_effect(options)
    options.finish("jdbc")
    if made.login is not None and driver not in (None, _DRIVER):
        raise OptionError(
            f"{options.table}: 'driver' = {driver!r} is not of PostgreSQL, of which the URL is",
            next="leave 'driver' out",
            kind="bad_option_value",
        )
    return made


def _without_effect(options: TableOptions) -> None:
    """Read what is done in any case, and refuse what cannot be done."""
    options.flag("scan.auto-commit", True)  # a query that reads is a transaction, which is ended behind it
    options.span("sink.buffer-flush.interval")  # rows are written as they come, and are there at each checkpoint
    _least(options, "sink.max-retries", 3, 0)  # the job's restart strategy says it
    if options.text("sink.parallelism") is not None:
        raise OptionError(
            f"{options.table}: 'sink.parallelism' cannot be set for one sink: the tasks of the step before it write",
            next="SET 'parallelism.default' = '…' for the job",
            kind="unsupported_query",
        )
    if options.flag("lookup.async"):
        raise OptionError(
            f"{options.table}: 'lookup.async' is not there: the keys of a batch are looked up by one query",
            next="leave it out",
            kind="unsupported_query",
        )


def _login(
    options: TableOptions,
    url: str,
    user: str | None,
    password: str | None,
    properties: Mapping[str, str],
    timeout: int | None,
) -> PostgresLogin:
    more = "&".join(f"{quote(name)}={quote(value)}" for name, value in properties.items())
    whole = url if not more else f"{url}{'&' if '?' in url else '?'}{more}"
    words = {"user": user, "connect_timeout": None if timeout is None else str(timeout)}
    return PostgresLogin(conninfo_of(whole, options.table, words), password)


def _seconds(options: TableOptions, name: str) -> int | None:
    text = options.span(name)
    if text is None:
        return None
    seconds = duration(text).total_seconds()
    if seconds < 1 or seconds != int(seconds):
        raise _bad(options, name, "whole seconds, one at least", "60 s")
    return int(seconds)


def _partition(options: TableOptions) -> PartitionOptions | None:
    names = ("column", "num", "lower-bound", "upper-bound")
    column = options.text("scan.partition.column")
    numbers = [options.whole(f"scan.partition.{name}") for name in names[1:]]
    given = [column, *numbers]
    if all(each is None for each in given):
        return None
    for name, each in zip(names, given, strict=True):
        if each is None:
            raise OptionError(
                f"{options.table} has no option 'scan.partition.{name}', and others of 'scan.partition' are there",
                next="give column, num, lower-bound and upper-bound, or none of them",
                kind="missing_option",
            )
    pieces, lower, upper = (int(each or 0) for each in numbers)
    if lower > upper:
        raise _bad(options, "scan.partition.lower-bound", "at most the upper one", str(upper))
    if pieces < 1:
        raise _bad(options, "scan.partition.num", "one at least", "4")
    assert column is not None
    return PartitionOptions(column, min(pieces, upper - lower + 1), lower, upper)


def _cache(options: TableOptions) -> tuple[CacheLimits, bool]:
    """Return how long answers are kept, and whether the whole table is."""
    given = dict(options.given)
    for old, new in _LEGACY.items():
        if options.text(old) is not None:
            given.setdefault(new, given[old])
    renamed = TableOptions(options.table, given)
    old_cache = all(options.text(name) is not None for name in ("lookup.cache.max-rows", "lookup.cache.ttl"))
    cache = renamed.one_of("lookup.cache", ("none", "partial", "full"), "partial" if old_cache else "none")
    options.text("lookup.cache")
    most = _least(renamed, "lookup.partial-cache.max-rows", 1_000_000, 1)
    after_write, after_access = (
        _milliseconds(renamed, f"lookup.partial-cache.expire-after-{name}") for name in ("write", "access")
    )
    missing = renamed.flag("lookup.partial-cache.cache-missing-key", True)
    for name in ("max-rows", "expire-after-write", "expire-after-access", "cache-missing-key"):
        options.text(f"lookup.partial-cache.{name}")
    return CacheLimits(most if cache == "partial" else 0, after_write, after_access, missing), cache == "full"


def _milliseconds(options: TableOptions, name: str) -> int | None:
    text = options.span(name)
    return None if text is None else int(duration(text) / timedelta(milliseconds=1))


def _least(options: TableOptions, name: str, default: int, least: int) -> int:
    value = options.whole(name, default)
    assert value is not None
    if value < least:
        raise _bad(options, name, f"{least} at least", str(max(default, least)))
    return value


def _bad(options: TableOptions, name: str, what: str, such: str) -> OptionError:
    return OptionError(
        f"{options.table}: {name!r} = {options.text(name)!r} has to be {what}",
        next=f"write such as '{name}' = '{such}'",
        kind="bad_option_value",
    )
