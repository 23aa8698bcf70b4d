"""What a MongoSink may say, when it is written down, and what is asked of its cluster before anything starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from poundlock.arguments import NAMES, TEXT, WHOLE, check_choices, check_kind
from poundlock.connectors.column_checks import need_columns, wrong_key
from poundlock.connectors.mongodb.bson_columns import fits, is_name
from poundlock.connectors.mongodb.login import load_client
from poundlock.connectors.mongodb.statements import DELETED, ID
from poundlock.errors import DefinitionError
from poundlock.values import duration

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.mongodb.sink import MongoSink


_log = logging.getLogger(__name__)
_MOST_BULK = 40 * 1024 * 1024  # a message has 48 MB at most
_MOST_ACTIONS = 100_000  # of one request, as servers have it
_NO_EFFECT = ("w", "journal", "wtimeoutms", "retrywrites", "readpreference", "authmechanismproperties")
_NOBODY = {ID: "poundlock: no document has this id"}
_known: dict[
    tuple[str, str, str], frozenset[str]
] = {}  # fields of collections that take no others, as preflight saw them


def check_sink(sink: MongoSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    load_client()
    texts = {name: getattr(sink, name) for name in ("uri", "database", "collection", "version_field")}
    check_kind("MongoSink", TEXT, texts)
    check_kind("MongoSink", NAMES, {"key": sink.key, "columns": sink.columns}, optional=True)
    texts = {name: getattr(sink, name) for name in ("delete_when", "user", "password", "ca")}
    check_kind("MongoSink", TEXT, texts, optional=True)
    check_kind("MongoSink", WHOLE, {"requests": sink.requests, "bulk_actions": sink.bulk_actions})
    check_choices(sink, {"update": ("replace", "set"), "deletes": ("remove", "mark")})
    _check_place(sink)
    _check_way(sink)
    if sink.password is not None and sink.user is None:
        raise DefinitionError("MongoSink: password= without user= has no effect", next="add user=")
    if not 1 <= sink.requests <= 64:
        raise DefinitionError(f"requests={sink.requests} is not from 1 to 64", next="write requests=2")
    for name in ("timeout", "retry_for"):
        if duration(getattr(sink, name)).total_seconds() <= 0:
            raise DefinitionError(f"{name} must be longer than 0", next=f'write {name}="60 s"')
    if not 1 <= sink.bulk_bytes <= _MOST_BULK:
        raise DefinitionError(
            f"bulk_size={sink.bulk_size!r} is not from 1 byte to 40 MB", next='write bulk_size="5 MB"'
        )
    if not 1 <= sink.bulk_actions <= _MOST_ACTIONS:
        raise DefinitionError(
            f"bulk_actions={sink.bulk_actions} is not from 1 to {_MOST_ACTIONS:,}", next="write bulk_actions=10_000"
        )


def _check_place(sink: MongoSink) -> None:
    url = urlsplit(sink.uri)
    if url.scheme not in ("mongodb", "mongodb+srv") or not url.netloc:
        raise DefinitionError(
            f"uri={sink.uri.rpartition('@')[2]!r} is no address of MongoDB", next='write uri="mongodb://host:27017"'
        )
    if "@" in url.netloc:
        raise DefinitionError(
            "uri= has a user in it, and would be shown with the password",
            next='write them as user=, password="env:NAME"',
        )
    if url.path.strip("/"):
        raise DefinitionError(
            f"uri= names a database {url.path.strip('/')!r}, and database={sink.database!r} is what is written to",
            next="leave it out of uri=; ?authSource= says where the user is known",
        )
    options = {name.lower() for name in parse_qs(url.query, keep_blank_values=True)}
    if without := sorted(options.intersection(_NO_EFFECT)):
        raise DefinitionError(
            f"uri= says {without[0]}, which has no effect: a majority of the nodes has to have every document, on disk",
            next="leave it out",
        )
    if not sink.database or any(character in sink.database for character in '/\\. "$\0'):
        raise DefinitionError(f"database={sink.database!r} is no name of a database", next='write database="shop"')
    if (
        not sink.collection
        or "$" in sink.collection
        or "\0" in sink.collection
        or sink.collection.startswith("system.")
    ):
        raise DefinitionError(
            f"collection={sink.collection!r} is no name of a collection", next='write collection="orders"'
        )


def _check_way(sink: MongoSink) -> None:
    if sink.guarantee is None:
        raise DefinitionError(
            "MongoSink without key= adds every row, and adds it once more when a checkpoint is repeated",
            next='name the columns of the id, key=["id"], or say so: guarantee="at-least-once"',
        )
    check_choices(sink, {"guarantee": ("effectively-once", "at-least-once")})
    if (sink.guarantee == "effectively-once") is not bool(sink.key):
        raise DefinitionError(
            f"guarantee={sink.guarantee!r} with key={None if sink.key is None else list(sink.key)!r}",
            next='write key=["id"] and no guarantee, or guarantee="at-least-once" and no key',
        )
    if wrong := wrong_key(sink.key, None, sink.delete_when):
        raise DefinitionError(f"MongoSink: {wrong[0]}", next=wrong[1])
    if sink.key and len(set(sink.key)) < len(sink.key):
        raise DefinitionError(f"key={list(sink.key)!r} names a column twice", next='write key=["id"]')
    if sink.deletes == "mark" and sink.delete_when is None:
        raise DefinitionError('deletes="mark" without delete_when= has no effect', next="add delete_when=")
    if not sink.key and sink.update == "set":
        raise DefinitionError('update="set" without key= has no effect', next="add key=")
    if not is_name(sink.version_field) or sink.version_field in (ID, DELETED):
        raise DefinitionError(
            f"version_field={sink.version_field!r} cannot be the name of that field",
            next='write version_field="_version"',
        )


def check_columns(sink: MongoSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have what is needed, and the collection takes them."""
    need_columns(name, sink.needed, columns)
    written = sink.written(columns)
    taken = (ID, DELETED, sink.version_field) if sink.key else (ID,)
    for column in written:
        if column in taken or not is_name(column):
            why = "which the sink itself writes" if column in taken else "which cannot be the name of a field"
            raise DefinitionError(
                f"sink {name!r}: the rows have a column {column!r}, {why}",
                next='give it another name before the sink, or key=["_id"]' if column == ID else "give it another name",
                participant=name,
            )
    known = _known.get((sink.uri, sink.database, sink.collection))
    own = [sink.version_field, *([DELETED] if sink.deletes == "mark" else [])] if sink.key else []
    if known is not None and (missing := [each for each in (*written, *own) if each not in known]):
        raise DefinitionError(
            f"sink {name!r}: the validator of {sink.database}.{sink.collection} has no field {missing[0]!r}, and takes no others:"
            f" {', '.join(sorted(known))}",
            next="add it to the validator, or leave a column out with columns=[…]",
            participant=name,
        )


def check_schema(sink: MongoSink, name: str, schema: pa.Schema) -> None:
    """Raise DefinitionError unless BSON has types for these columns, and those of the key make an `_id`."""
    import pyarrow as pa

    for column in (*sink.written(schema.names), *(sink.key or ())):
        kind = schema.field(column).type
        if not fits(kind):
            raise DefinitionError(
                f"sink {name!r}: column {column!r} is {kind}, and BSON has no type for it",
                next=f'cast it before the sink, such as .with_column("{column}", "cast({column} as string)")',
                participant=name,
            )
        if column in (sink.key or ()) and (
            pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
        ):
            raise DefinitionError(
                f"sink {name!r}: key column {column!r} is {kind}, which makes no _id that only one row has",
                next="name columns of text, whole numbers, decimals, bytes, truth values or times in key=",
                participant=name,
            )
    flag = sink.delete_when
    if flag is not None and flag in schema.names and not pa.types.is_boolean(schema.field(flag).type):
        raise DefinitionError(
            f"sink {name!r}: delete_when={flag!r} is {schema.field(flag).type}",
            next="make it a boolean column",
            participant=name,
        )


def preflight(sink: MongoSink) -> None:
    """Raise unless the sink can work; see MongoSink.preflight."""
    login = sink.login
    login.close()
    where = f"{sink.database}.{sink.collection} at {login.name}"
    with login.errors("asking what it is"):
        client = login.client()
        database = client[sink.database]
        if not client.is_primary:
            raise DefinitionError(
                f"{login.name} is not the primary of its replica set, and takes no writes",
                next="name the set, or more of its nodes: mongodb://a,b,c/?replicaSet=NAME",
            )
        described = list(database.list_collections(filter={"name": sink.collection}))
    if described:
        _check_collection(sink, described[0], where)
    # These ask for the right to do it, and find nothing to do.
    with login.errors(f"trying whether {where} can be written to"):
        collection = database[sink.collection]
        collection.update_one(_NOBODY, {"$set": {sink.version_field: 0}})
        if sink.delete_when is not None and sink.deletes == "remove":
            collection.delete_one(_NOBODY)
    if sink.delete_when is not None:
        _note_deletions(sink, database, where)


def _check_collection(sink: MongoSink, described: Mapping[str, Any], where: str) -> None:
    options = described.get("options", {})
    kind = described.get("type", "collection")
    if kind != "collection":
        raise DefinitionError(f"{where} is a {kind}, in which no document can be replaced", next="name a collection")
    if options.get("capped") and sink.key:
        raise DefinitionError(
            f"{where} is capped: its documents cannot be deleted, and are pushed out by newer ones",
            next='name another collection, or write guarantee="at-least-once" and no key',
        )
    locale = options.get("collation", {}).get("locale", "simple")
    if sink.key and locale != "simple":
        raise DefinitionError(
            f"{where} has a collation of its own ({locale}), by which different keys can be the same _id",
            next="name a collection without one; queries and indices can have one",
        )
    schema = options.get("validator", {}).get("$jsonSchema", {})
    place = (sink.uri, sink.database, sink.collection)
    _known.pop(place, None)
    if schema.get("additionalProperties") is False:
        _known[place] = frozenset(schema.get("properties", {}))


def _note_deletions(sink: MongoSink, database: Any, where: str) -> None:
    if sink.deletes == "remove":
        return _log.warning(
            'In %s a deleted document leaves nothing behind: a task that was given up and writes later brings it back. deletes="mark"'
            " leaves a mark instead",
            where,
        )
    with sink.login.errors("looking for indices"):
        indices = database[sink.collection].index_information()
    if not any(dict(each["key"]).keys() == {DELETED} and "expireAfterSeconds" in each for each in indices.values()):
        _log.warning(
            "No index of %s removes documents that are marked as deleted: db.%s.createIndex({%s: 1}, {expireAfterSeconds: 3600})",
            where,
            sink.collection,
            DELETED,
        )
    return None
