"""'properties.…' of tables of Kafka: settings of Java's clients, each of which is mapped to one of ours, or refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.errors import DefinitionError
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512")
_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CONSUMER = (
    "fetch.min.bytes", "fetch.max.wait.ms", "fetch.max.bytes", "max.partition.fetch.bytes", "request.timeout.ms", "default.api.timeout.ms",
    "retry.backoff.ms", "retry.backoff.max.ms", "socket.connection.setup.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "client.id", "check.crcs",
)  # fmt: skip
"""Settings of a consumer that the reader has under the same names."""
_PRODUCER: Mapping[str, str] = {
    "batch.size": "batch.size", "linger.ms": "linger.ms", "max.request.size": "message.max.bytes", "request.timeout.ms": "request.timeout.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection", "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms", "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes", "send.buffer.bytes": "socket.send.buffer.bytes", "client.id": "client.id",
}  # fmt: skip
"""Settings of a producer, and what the writer calls them."""
_OF_SOURCE = ("group.id", "isolation.level", "auto.offset.reset")
_OF_SINK = ("transaction.timeout.ms", "compression.type")


def connection(options: TableOptions) -> dict[str, Any]:
    """Return the servers, and how to log in.

    Raises:
        OptionError: an option is missing, or cannot be.
    """
    servers = options.required("properties.bootstrap.servers")
    protocol = options.one_of("properties.security.protocol", _PROTOCOLS, "plaintext").upper()
    mechanism = options.one_of("properties.sasl.mechanism", _MECHANISMS, "").upper() or None
    login = dict(_JAAS.findall(options.text("properties.sasl.jaas.config") or ""))
    if mechanism is not None and not login.keys() >= {"username", "password"}:
        raise OptionError(
            f"{options.table}: 'properties.sasl.jaas.config' names no username and password",
            next="""write 'properties.sasl.jaas.config' = '… required username="etl" password="env:KAFKA_PASSWORD";'""",
            kind="bad_option_value",
        )
    checks = options.text("properties.ssl.endpoint.identification.algorithm", "https") != ""
    try:
        security = KafkaSecurity(
            protocol=protocol,  # type: ignore[arg-type]
            mechanism=mechanism,  # type: ignore[arg-type]
            username=login.get("username"),
            password=login.get("password"),
            ca=options.text("properties.ssl.ca.location") or _store(options, "truststore"),
            certificate=(keys := _store(options, "keystore")),
            key=keys,
            key_password=options.text("properties.ssl.key.password"),
            check_hostname=checks,
        )
    except DefinitionError as error:
        raise OptionError(
            f"{options.table}: {error.what}",
            next="mend 'properties.security.protocol', 'properties.sasl.…' and 'properties.ssl.…'",
            kind="bad_option_value",
        ) from None
    return {"bootstrap_servers": servers, "security": security}


def _store(options: TableOptions, name: str) -> str | None:
    """Return the file of a store of keys or certificates, which has to be PEM; None where none is named."""
    kind = options.text(f"properties.ssl.{name}.type", "JKS")
    place = options.text(f"properties.ssl.{name}.location")
    if place is not None and str(kind).upper() != "PEM":
        raise OptionError(
            f"{options.table}: 'properties.ssl.{name}.location' is a keystore of Java's, which cannot be read here",
            next=f"give a PEM file, and 'properties.ssl.{name}.type' = 'PEM'",
            kind="bad_option_value",
        )
    return place


def consumer(options: TableOptions) -> dict[str, Any]:
    """Return what a source is given; settings of the producer are those of a table that is written to, too."""
    _skip(options, (*_OF_SINK, *(name for name in _PRODUCER if name not in _CONSUMER)))
    given = {name: options.text(f"properties.{name}") for name in _CONSUMER}
    isolation = options.one_of("properties.isolation.level", ("read_committed", "read_uncommitted"), "read_committed")
    return {
        "group_id": options.text("properties.group.id"),
        "isolation": isolation,
        "options": {f"kafka.{name}": value for name, value in given.items() if value is not None},
    }


def producer(options: TableOptions, *, is_exactly_once: bool) -> dict[str, Any]:
    """Return what a sink is given; settings of the consumer are those of a table that is read, too.

    Raises:
        OptionError: one cannot be.
    """
    _skip(options, (*_OF_SOURCE, *(name for name in _CONSUMER if name not in _PRODUCER)))
    given = {name: options.text(f"properties.{name}") for name in _PRODUCER}
    timeout = options.whole("properties.transaction.timeout.ms")
    more = {"transaction_timeout": f"{timeout} ms"} if timeout is not None and is_exactly_once else {}
    return {
        "compression": options.one_of("properties.compression.type", ("none", "gzip", "snappy", "lz4", "zstd"), "none"),
        "client_options": {_PRODUCER[name]: value for name, value in given.items() if value is not None},
        **more,
    }


def _skip(options: TableOptions, names: tuple[str, ...]) -> None:
    """Read settings of the other client: a table has one list of them for both."""
    for name in names:
        options.text(f"properties.{name}")
