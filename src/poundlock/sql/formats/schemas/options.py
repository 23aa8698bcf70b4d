"""The options of formats whose values name their schema in a registry, by Flink's names, as the formats that Python code is given."""

from __future__ import annotations

from typing import Any

from poundlock.connectors.kafka.schemas.avro_confluent import AvroConfluent
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.json_schema_confluent import JsonSchemaConfluent
from poundlock.connectors.kafka.schemas.protobuf_confluent import ProtobufConfluent
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.errors import DefinitionError
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError

_PROPERTIES = "properties."
_STRATEGIES = {
    "io.confluent.kafka.serializers.subject.TopicNameStrategy": "topic",
    "io.confluent.kafka.serializers.subject.RecordNameStrategy": "record",
    "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy": "topic-record",
}


def registry_format(
    options: TableOptions, word: str, *, is_key: bool, is_read: bool, made_schema: str | None = None
) -> RegistryFormat:
    """Return a format as options say.

    Args:
        word: the format; its options begin with it.
        is_read: whether it is for reading; options of writing are looked at, too, since a table may be both.
        made_schema: what is written by, of Avro, where no option gives a schema.

    Raises:
        OptionError: an option is missing, or cannot be.
    """
    table = options.table
    given = _common(options.under(f"{word}."), is_key=is_key)
    own = options.under(f"{word}.")
    schema = own.text("schema")
    try:
        if word == "protobuf-confluent":
            message = own.text("message-name")
            more: dict[str, Any] = {"schema": None if is_read else schema, "message": message}
            return ProtobufConfluent(**_for(given, is_read), **more)
        if word == "json-schema-confluent":
            validate = own.flag("validate", True)
            return JsonSchemaConfluent(**_for(given, is_read), schema=None if is_read else schema, validate=validate)
        if is_read:
            return AvroConfluent(**_for(given, is_read))
        return AvroConfluent(**_for(given, is_read), schema=schema or (None if given["use_latest"] else made_schema))
    except DefinitionError as error:
        if isinstance(error, OptionError) or error.kind == "missing_package":
            raise
        raise OptionError(f"{table}: {error.what}", next=str(error.next), kind="bad_option_value") from None


def _for(given: dict[str, Any], is_read: bool) -> dict[str, Any]:
    """Return what a format is given that reads, or that writes."""
    skipped = {"auto_register", "use_latest"} if is_read else {"on_incompatible"}
    return {name: value for name, value in given.items() if name not in skipped}


def _common(options: TableOptions, *, is_key: bool) -> dict[str, Any]:
    """Return what all formats have in common."""
    properties = options.under(_PROPERTIES)
    part = "key" if is_key else "value"
    strategy = properties.read(f"{part}.subject.name.strategy", _strategy, None, next(iter(_STRATEGIES)))
    given = {
        "registry": _registry(options),
        "subject": options.text("subject"),
        "auto_register": properties.flag("auto.register.schemas", True),
        "use_latest": properties.flag("use.latest.version", False),
        "on_incompatible": options.one_of("on-incompatible", ("fail", "bad-record"), "fail").replace("-", "_"),
    }
    return given | ({} if strategy is None else {"subject_name_strategy": strategy})


def _strategy(text: str) -> str | None:
    known = _STRATEGIES.get(text)
    if known is None:
        raise ValueError(text)
    return known


def _registry(options: TableOptions) -> SchemaRegistry:
    user, password = _login(options)
    keys = options.text("ssl.keystore.location")
    try:
        return SchemaRegistry(
            options.required("url"),
            username=user,
            password=password,
            **_token(options),
            ca=options.text("ssl.truststore.location"),
            certificate=keys,
            key=keys,
            key_password=options.text("ssl.keystore.password"),
        )
    except OptionError:
        raise
    except DefinitionError as error:
        raise OptionError(f"{options.table}: {error.what}", next=str(error.next), kind="bad_option_value") from None


def _login(options: TableOptions) -> tuple[str | None, str | None]:
    source = options.one_of("basic-auth.credentials-source", ("user_info",), "user_info")
    written = options.text("basic-auth.user-info")
    if written is None:
        if options.text("basic-auth.credentials-source") is not None:
            raise OptionError(
                f"{options.table}: {options.prefix + 'basic-auth.credentials-source'!r} = {source!r} needs a login",
                next=f"add '{options.prefix}basic-auth.user-info' = 'user:env:NAME'",
                kind="missing_option",
            )
        return None, None
    user, colon, password = written.partition(":")
    if not colon:
        raise OptionError(
            f"{options.table}: {options.prefix + 'basic-auth.user-info'!r} is no user and password",
            next="write 'user:password', or 'user:env:NAME'",
            kind="bad_option_value",
        )
    return user, password


def _token(options: TableOptions) -> dict[str, Any]:
    """Return what is given of a login by token: the token, or who asks for one, by the names of Confluent's client."""
    source = options.text("bearer-auth.credentials-source")
    token = options.text("bearer-auth.token")
    properties = options.under(_PROPERTIES)
    asked = {name: properties.text(f"bearer.auth.{word}") for name, word in _OF_PROVIDER.items()}
    beside = {name: properties.text(f"bearer.auth.{word}") for name, word in _BESIDE.items()}
    written = (source or "").upper()
    if written not in ("", "STATIC_TOKEN", "OAUTHBEARER") or (written == "STATIC_TOKEN") is not (token is not None):
        raise OptionError(
            f"{options.table}: a login by token needs 'STATIC_TOKEN' as its source, and the token",
            next=f"write '{options.prefix}bearer-auth.credentials-source' = 'STATIC_TOKEN', and '{options.prefix}bearer-auth.token' = 'env:NAME'",
            kind="bad_option_value",
        )
    needed = next((word for name, word in _OF_PROVIDER.items() if asked[name] is None and name != "scope"), None)
    if written == "OAUTHBEARER" and needed is not None:
        raise OptionError(
            f"{options.table}: a login by 'OAUTHBEARER' needs the property bearer.auth.{needed}",
            next=f"add '{properties.prefix}bearer.auth.{needed}' = '…'",
            kind="missing_option",
        )
    strange = next((word for name, word in _OF_PROVIDER.items() if asked[name] is not None), None)
    if written != "OAUTHBEARER" and strange is not None:
        raise OptionError(
            f"{options.table}: the property bearer.auth.{strange} means nothing without a login by 'OAUTHBEARER'",
            next=f"add '{options.prefix}bearer-auth.credentials-source' = 'OAUTHBEARER'",
            kind="bad_option_value",
        )
    return {"token": token, **asked, **beside}


_OF_PROVIDER = {
    "token_url": "issuer.endpoint.url",
    "client_id": "client.id",
    "client_secret": "client.secret",
    "scope": "scope",
}
_BESIDE = {"logical_cluster": "logical.cluster", "identity_pool": "identity.pool.id"}
