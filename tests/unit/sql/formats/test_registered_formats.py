"""Formats of a schema registry in SQL: their options, which are Flink's, and the schemas of their rows. tests/services asks a registry."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.formats.schemas.registered import RegistryDecoder, RegistryRecords
from poundlock.sql.types import STRING, SqlType

COLUMNS = (
    FormatColumn("id", "c0", SqlType("INT", is_nullable=False)),
    FormatColumn("at", "c1", SqlType("TIMESTAMP", (3,))),
)
CONTEXT = FormatContext("t", COLUMNS, ZoneInfo("UTC"), "orders")
URL = {"avro-confluent.url": "http://localhost:8081"}


def made(side: Any, context: FormatContext = CONTEXT, **more: str) -> Any:
    options = TableOptions(
        "t", {"format": "avro-confluent", **URL, **{f"avro-confluent.{n}": v for n, v in more.items()}}
    )
    result = side(options, context)
    options.finish("kafka")
    return result


def test_rows_have_the_schema_that_flink_gives_them() -> None:
    encoder = made(encoder_of)
    assert isinstance(encoder, RegistryRecords)
    assert json.loads(encoder.format.schema) == {  # type: ignore[attr-defined]
        "type": "record", "name": "org.apache.flink.avro.generated.record", "fields": [
            {"name": "id", "type": "int"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        ],
    }  # fmt: skip
    assert encoder.format.subject_of("orders", is_key=False) == "orders-value"


def test_a_provider_of_tokens_is_named_as_confluents_client_has_it() -> None:
    properties = {
        "issuer.endpoint.url": "https://login.example.com/token", "client.id": "etl", "client.secret": "env:NAME", "scope": "schemas",
        "logical.cluster": "lsrc-1", "identity.pool.id": "pool-1",
    }  # fmt: skip
    given = {f"properties.bearer.auth.{name}": value for name, value in properties.items()}
    registry = made(decoder_of, **given, **{"bearer-auth.credentials-source": "OAUTHBEARER"}).format.registry
    names = ("token_url", "client_id", "client_secret", "scope", "logical_cluster", "identity_pool")
    assert [getattr(registry, name) for name in names] == list(properties.values())


def test_options_are_those_of_flink() -> None:
    given = {
        "subject": "s", "basic-auth.credentials-source": "USER_INFO", "basic-auth.user-info": "etl:env:NAME",
        "properties.auto.register.schemas": "false",
    }  # fmt: skip
    writing = made(encoder_of, **given).format
    assert (writing.subject, writing.auto_register, writing.registry.username) == ("s", False, "etl")
    reading = made(decoder_of, **given, **{"on-incompatible": "bad-record", "ignore-parse-errors": "true"})
    assert isinstance(reading, RegistryDecoder)
    assert (reading.format.on_incompatible, reading.is_lenient, reading.format.auto_register) == (
        "bad_record",
        True,
        True,
    )
    key = made(encoder_of, FormatContext("t", COLUMNS, ZoneInfo("UTC"), "orders", is_key=True)).format
    assert key.subject_of("orders", is_key=True) == "orders-key"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"basic-auth.user-info": "nobody"}, "is no user and password"),
        ({"basic-auth.credentials-source": "USER_INFO"}, "needs a login"),
        ({"bearer-auth.token": "x"}, "a login by token needs 'STATIC_TOKEN'"),
        ({"bearer-auth.credentials-source": "SASL_INHERIT"}, "a login by token needs 'STATIC_TOKEN'"),
        ({"bearer-auth.credentials-source": "OAUTHBEARER"}, "needs the property bearer.auth.issuer.endpoint.url"),
        ({"properties.bearer.auth.scope": "x"}, "means nothing without a login by 'OAUTHBEARER'"),
        ({"properties.bearer.auth.logical.cluster": "x"}, "logical_cluster means nothing without a token"),
        ({"url": "localhost"}, "no address of a registry"),
        ({"schema": "{"}, "the Avro schema cannot be read"),
        ({"properties.some.other": "1"}, "has no option 'avro-confluent.properties.some.other'"),
    ],
)
def test_options_that_cannot_be_are_refused(more: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        made(encoder_of, **more)


def test_a_type_that_a_format_has_not_is_refused() -> None:
    nanos = FormatContext("t", (FormatColumn("at", "c0", SqlType("TIMESTAMP", (9,))),), ZoneInfo("UTC"), "orders")
    with pytest.raises(OptionError, match="Avro has no TIMESTAMP"):
        made(encoder_of, nanos)
    dated = FormatContext("t", (FormatColumn("d", "c0", SqlType("DATE")),), ZoneInfo("UTC"), "orders")
    options = TableOptions("t", {"format": "protobuf-confluent", "protobuf-confluent.url": "http://localhost:8081"})
    with pytest.raises(OptionError, match="has no counterpart in Protobuf"):
        encoder_of(options, dated)


def test_records_of_no_topic_need_a_subject() -> None:
    with pytest.raises(OptionError, match="need a subject"):
        made(encoder_of, FormatContext("t", (FormatColumn("s", "c0", STRING),), ZoneInfo("UTC")))
