"""What a sink of OpenSearch may say, when it is written down, and what is asked of its cluster before anything starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from poundlock.arguments import FLAG, MAPPING, NAMES, TEXT, WHOLE, check_choices, check_kind
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.opensearch.document_ids import check_types
from poundlock.errors import DefinitionError, required
from poundlock.values import duration

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.opensearch.sink import OpenSearchSink


_log = logging.getLogger(__name__)
_SHORT_GC_S = 600.0
_UNITS_S = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_strict: dict[
    tuple[tuple[str, ...], str], frozenset[str]
] = {}  # columns of indices that take no others, as preflight saw them


def check_sink(sink: OpenSearchSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    owner = type(sink).__name__
    required("urllib3", f"a sink of {sink.title}", "opensearch")
    check_kind(owner, NAMES, {"hosts": sink.hosts})
    check_kind(owner, NAMES, {"key": sink.key, "columns": sink.columns}, optional=True)
    check_kind(owner, TEXT, {"index": sink.index, "key_delimiter": sink.key_delimiter})
    texts = {name: getattr(sink, name) for name in ("document", "delete_when", "user", "password", "ca")}
    check_kind(owner, TEXT, texts, optional=True)
    check_kind(owner, MAPPING, {"headers": sink.headers})
    check_kind(owner, FLAG, {"allow_insecure": sink.allow_insecure})
    check_kind(owner, WHOLE, {"requests": sink.requests})
    check_kind(owner, WHOLE, {"bulk_actions": sink.bulk_actions}, optional=True)
    for host in sink.hosts:
        url = urlsplit(host)
        if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
            raise DefinitionError(
                f"{owner}: hosts= has {url.hostname or host!r}, which is no URL of a node without a user in it",
                next='write hosts=["http://localhost:9200"], and the user as user=, password="env:NAME"',
            )
    if not sink.hosts:
        raise DefinitionError(f"{owner} has no hosts", next='write hosts="http://localhost:9200"')
    _check_way(sink, owner)
    if sink.password is not None and sink.user is None:
        raise DefinitionError(f"{owner}: password= without user= has no effect", next="add user=")
    if sink.ca is not None and sink.allow_insecure:
        raise DefinitionError(f"{owner}: ca= has no effect with allow_insecure=True", next="leave one of them out")
    if not 1 <= sink.requests <= 64:
        raise DefinitionError(f"{owner}: requests={sink.requests} is not from 1 to 64", next="write requests=2")
    for name in ("timeout", "retry_for"):
        if duration(getattr(sink, name)).total_seconds() <= 0:
            raise DefinitionError(f"{owner}: {name} must be longer than 0", next=f'write {name}="60 s"')
    if sink.bulk_bytes < 1 or (sink.bulk_actions is not None and sink.bulk_actions < 1):
        raise DefinitionError(
            f"{owner}: bulk_size={sink.bulk_size!r} and bulk_actions={sink.bulk_actions!r} hold nothing",
            next='write bulk_size="5 MB", and leave bulk_actions out',
        )


def _check_way(sink: OpenSearchSink, owner: str) -> None:
    if sink.guarantee is None:
        raise DefinitionError(
            f"{owner} without key= adds every row, and adds it once more when a checkpoint is repeated",
            next='name the columns of the id, key=["id"], or say so: guarantee="at-least-once"',
        )
    check_choices(sink, {"guarantee": ("effectively-once", "at-least-once")})
    if (sink.guarantee == "effectively-once") is not bool(sink.key):
        raise DefinitionError(
            f"{owner}: guarantee={sink.guarantee!r} with key={None if sink.key is None else list(sink.key)!r}",
            next='write key=["id"] and no guarantee, or guarantee="at-least-once" and no key',
        )
    if sink.delete_when is not None and (not sink.key or sink.delete_when in (*sink.key, *(sink.columns or ()))):
        raise DefinitionError(
            f"{owner}: delete_when={sink.delete_when!r} needs a key, and is no column that is written",
            next='name the key: key=["id"], and a column of its own in delete_when=',
        )
    if sink.document is not None and sink.columns is not None:
        raise DefinitionError(
            f"{owner}: columns= has no effect, because document={sink.document!r} is the whole document",
            next="leave one of them out",
        )
    if sink.key and len(sink.key) > 1 and (not sink.key_delimiter or "%" in sink.key_delimiter):
        raise DefinitionError(
            f"{owner}: with key_delimiter={sink.key_delimiter!r} two keys could make one id",
            next='write key_delimiter="_"',
        )
    if sink.name.uses_now and sink.key:
        raise DefinitionError(
            f"{owner}: index={sink.index!r} depends on when a row is written, so a row would not replace the one of its key",
            next='take the time from a column: index="orders-{day|yyyy-MM}"',
        )


def check_columns(sink: OpenSearchSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have what is needed, and the index takes them."""
    need_columns(name, sink.needed, columns)
    known = _strict.get((tuple(sink.hosts), sink.index))
    if known is None or sink.document is not None:
        return
    written = [column for column in (sink.columns or columns) if column != sink.delete_when]
    if missing := [column for column in written if column not in known]:
        raise DefinitionError(
            f"sink {name!r}: the rows have a column {missing[0]!r}, and index {sink.index}, whose mapping is strict, has"
            f" {', '.join(sorted(known))}",
            next="add the field to its mapping, or leave the column out with columns=[…]",
            participant=name,
        )


def check_schema(sink: OpenSearchSink, name: str, schema: pa.Schema) -> None:
    """Raise DefinitionError unless columns of these types make ids and names of indices."""
    check_types(name, sink.key or (), schema)
    sink.name.check(name, schema)
    for column, wanted in (
        (sink.delete_when, ("bool",)),
        (sink.document, ("string", "large_string", "binary", "large_binary")),
    ):
        if column is not None and column in schema.names and str(schema.field(column).type) not in wanted:
            raise DefinitionError(
                f"sink {name!r}: column {column!r} is {schema.field(column).type}",
                next="make it a boolean column" if column == sink.delete_when else "make it a column of JSON text",
                participant=name,
            )


def preflight(sink: OpenSearchSink) -> None:
    """Raise unless the sink can work; see OpenSearchSink.preflight."""
    where = sink.login.name
    with closing(sink.login.open()) as server:
        root = server.json("GET", "/") or {}
        _check_version(sink, root.get("version"), where)
        index = sink.name.fixed
        if index is None:
            return
        resolved = server.json("GET", f"/_resolve/index/{index}") or {}
        if resolved.get("data_streams") and sink.key:
            raise DefinitionError(
                f"{index} at {where} is a data stream, which only takes documents to be added",
                next='write guarantee="at-least-once" and no key, or name an index',
            )
        if resolved.get("indices") or resolved.get("aliases"):
            _check_settings(sink, index, server.json("GET", f"/{index}/_settings?flat_settings=true") or {}, where)
            _check_alias(index, server.json("GET", f"/_alias/{index}") or {}, where)
            _note_mapping(sink, server.json("GET", f"/{index}/_mapping") or {})


def _check_version(sink: OpenSearchSink, version: Any, where: str) -> None:
    if not isinstance(version, Mapping) or "number" not in version:
        raise DefinitionError(
            f"what answers at {where} is no {sink.title}", next="check hosts=, and what stands before the cluster"
        )
    major, minor = (int(part) for part in str(version["number"]).split(".")[:2])
    if version.get("distribution") != "opensearch" and (major, minor) < (7, 10):
        raise DefinitionError(
            f"Elasticsearch at {where} is {version['number']}, and 7.10 is the oldest whose requests are known here",
            next="write to a newer cluster",
        )


def _check_settings(sink: OpenSearchSink, index: str, settings: Mapping[str, Any], where: str) -> None:
    for name, each in settings.items():
        given = each.get("settings", {})
        if given.get("index.translog.durability") == "async":
            raise DefinitionError(
                f"index {name} at {where} answers before documents are on disk: index.translog.durability is async",
                next=f'PUT /{name}/_settings {{"index.translog.durability": "request"}}',
            )
        kept = given.get("index.gc_deletes", "60s")
        if sink.delete_when is not None and _seconds(kept) < _SHORT_GC_S:
            _log.warning(
                "Index %s forgets the version of a deleted document after %s: a task that was given up and writes later than that"
                ' brings it back. PUT /%s/_settings {"index.gc_deletes": "1h"}',
                name,
                kept,
                name,
            )


def _check_alias(index: str, aliases: Mapping[str, Any], where: str) -> None:
    behind = {name: each["aliases"][index] for name, each in aliases.items() if index in each.get("aliases", {})}
    if len(behind) > 1 and not any(each.get("is_write_index") for each in behind.values()):
        raise DefinitionError(
            f"alias {index} at {where} stands for {', '.join(sorted(behind))}, and none of them is its write index",
            next="name one of them, or POST /_aliases with is_write_index",
        )


def _note_mapping(sink: OpenSearchSink, mappings: Mapping[str, Any]) -> None:
    known = [each.get("mappings", {}) for each in mappings.values()]
    strict = [each for each in known if each.get("dynamic") in ("strict", "STRICT")]
    place = (tuple(sink.hosts), sink.index)
    _strict.pop(place, None)
    if len(strict) == len(known) == 1:
        _strict[place] = frozenset(strict[0].get("properties", {}))


def _seconds(text: str) -> float:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(digits) * _UNITS_S.get(text[len(digits) :], 1.0)
