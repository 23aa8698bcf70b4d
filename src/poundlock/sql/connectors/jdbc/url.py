"""URLs of JDBC as libpq's words: a server of PostgreSQL is reached by its own protocol, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from poundlock.errors import did_you_mean
from poundlock.sql.errors import OptionError

_POSTGRES = re.compile(r"jdbc:postgresql:(?://(?P<hosts>[^/?]*)/?)?(?P<database>[^?]*)(?:\?(?P<properties>.*))?")
_WORDS: Mapping[str, str] = {
    "user": "user", "password": "password", "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert",
    "sslkey": "sslkey", "ApplicationName": "application_name", "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout", "options": "options",
}  # fmt: skip
"""Properties of the PostgreSQL driver of Java that libpq has too."""
_OTHERS = ("currentSchema", "ssl", "targetServerType", "reWriteBatchedInserts")
_SERVERS = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "preferSecondary": "prefer-standby",
}


def is_postgres(url: str) -> bool:
    """Return whether a URL is of a database of PostgreSQL."""
    return url.startswith("jdbc:postgresql:")


def conninfo_of(url: str, table: str, given: Mapping[str, str | None]) -> str:
    """Return the words of libpq for a URL of PostgreSQL.

    Args:
        table: for errors.
        given: further words, which count before those of the URL; those that are None are left out.

    Raises:
        OptionError: it is no such URL, or a property in it has no meaning here.
    """
    match = _POSTGRES.fullmatch(url)
    if match is None or (match["hosts"] is None and "/" in match["database"]):
        raise OptionError(
            f"{table}: 'url' = {url.partition('?')[0]!r} is no database of PostgreSQL",
            next="write 'url' = 'jdbc:postgresql://host:5432/database'",
            kind="bad_option_value",
        )
    words = dict(_addresses(match["hosts"]))
    if match["database"].strip("/"):
        words["dbname"] = unquote(match["database"].strip("/"))
    for part in (match["properties"] or "").split("&"):
        if part:
            name, _, value = part.partition("=")
            words |= dict(_property(table, unquote(name), unquote(value)))
    words |= {name: value for name, value in given.items() if value is not None}
    return " ".join(f"{name}={_quoted(value)}" for name, value in words.items())


def _addresses(hosts: str | None) -> Iterable[tuple[str, str]]:
    if not hosts:
        return
    pairs = [_address(each) for each in hosts.split(",")]
    yield "host", ",".join(host for host, _ in pairs)
    yield "port", ",".join(port for _, port in pairs)


def _address(text: str) -> tuple[str, str]:
    if text.startswith("["):  # an address of IPv6
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":") or "5432"
    host, _, port = text.partition(":")
    return host or "localhost", port or "5432"


def _property(table: str, name: str, value: str) -> Iterable[tuple[str, str]]:
    if name in _WORDS:
        yield _WORDS[name], value
    elif name == "currentSchema":
        yield "options", f"-c search_path={value}"
    elif name == "ssl":
        if value.lower() in ("", "true"):
            yield "sslmode", "verify-full"
    elif name == "targetServerType" and value in _SERVERS:
        yield "target_session_attrs", _SERVERS[value]
    elif name != "reWriteBatchedInserts":  # COPY writes many rows at once in any case
        known = (*_WORDS, *_OTHERS)
        raise OptionError(
            f"{table}: the property {name} of the connection has no meaning here",
            next=did_you_mean(name, known, f"use one of {', '.join(sorted(known))}"),
            kind="unknown_option",
        )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
