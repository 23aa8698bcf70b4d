"""What a schema that a sink registers refers to: which of the given ones, by its text, and which of those refer to each other.

Of Avro these are named types, of Protobuf imports, of JSON Schema `$ref`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import urldefrag, urljoin

from poundlock.connectors.kafka.schemas.registered import Given, Reference, RegisteredSchema, SchemaKind
from poundlock.errors import DefinitionError

_OWN_TYPES = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum", "array", "map", "fixed", "error")
)  # fmt: skip
_NAMED = ("record", "enum", "fixed", "error")
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_IMPORT = re.compile(r'(?:^|;|\})\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"', re.DOTALL)


def referred(kind: SchemaKind, text: str, given: Mapping[str, Given], what: str) -> tuple[Reference, ...]:
    """Return all that a schema refers to, each behind those that it refers to itself.

    Args:
        given: by what the schema calls it, the text of each, which is registered under that as its subject; or what a registry has, by subject.
        what: the format, for errors.

    Raises:
        DefinitionError: nothing refers to one of them, they refer to each other in a circle, or a text cannot be read.
    """
    texts = {name: each if isinstance(each, str) else each.text for name, each in given.items()}
    known = {name: _OFFERS[kind](name, each) for name, each in texts.items()}

    def uses(of: str, own: str | None) -> tuple[str, ...]:
        wanted = _WANTS[kind](of)
        return tuple(name for name, offers in known.items() if name != own and offers & wanted)

    direct = uses(text, None)
    inner = {name: uses(each, name) if isinstance(given[name], str) else () for name, each in texts.items()}
    reached, ahead = set[str](), list(direct)
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += inner[name]
    unused = [name for name in given if name not in reached]
    if unused:
        raise DefinitionError(f"{what}: nothing refers to {unused[0]!r}", next="leave it out of references=…")
    try:
        ordered = [name for name in TopologicalSorter(inner).static_order() if name in reached]
    except CycleError as error:
        circle = " and ".join(map(repr, dict.fromkeys(error.args[1])))
        raise DefinitionError(f"{what}: {circle} refer to each other", next="put both into one schema") from None
    made: dict[str, Reference] = {}
    for name in ordered:
        for each in _reference(name, given[name], inner[name], is_direct=name in direct, what=what):
            made.setdefault(each.name, each)
    return tuple(made.values())


def _reference(name: str, given: Given, uses: tuple[str, ...], *, is_direct: bool, what: str) -> Iterator[Reference]:
    if isinstance(given, str):
        yield Reference(name, name, 0, given, uses, is_direct)
        return
    if not given.version:
        raise DefinitionError(
            f"{what}: it is not known under which subject {name!r} is registered", next="give registry.latest(…)"
        )
    for each in given.references:
        yield Reference(each.name, each.subject, each.version, each.text, each.uses, False)
    of = tuple(each.name for each in given.references if each.is_direct)
    yield Reference(name, given.subject, given.version, given.text, of, is_direct)


# --- Avro -------------------------------------------------------------------------------------------------------------


def _avro_names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the full names that a schema defines, and those that it uses."""
    defined: set[str] = set()
    used: set[str] = set()

    def full(name: str, space: str) -> str:
        return name if "." in name or not space else f"{space}.{name}"

    def walk(schema: Any, space: str) -> None:
        if isinstance(schema, str):
            if schema not in _OWN_TYPES:
                used.add(full(schema, space))
        elif isinstance(schema, list):
            for each in schema:
                walk(each, space)
        elif isinstance(schema, Mapping):
            kind = schema.get("type")
            if kind in _NAMED:
                name = full(str(schema.get("name")), str(schema.get("namespace", space)))
                defined.add(name)
                for field in schema.get("fields", ()):
                    walk(field["type"], name.rpartition(".")[0])
            elif kind in ("array", "map"):
                walk(schema["items" if kind == "array" else "values"], space)
            else:
                walk(kind, space)

    walk(_json(text, "Avro"), "")
    return frozenset(defined), frozenset(used - defined)


def _json(text: str, kind: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip().isalpha():
            return text.strip()
        raise DefinitionError(f"a schema of {kind} cannot be read: {error}", next="give its JSON text") from None


# --- Protobuf ---------------------------------------------------------------------------------------------------------


def _imports(text: str) -> frozenset[str]:
    """Return the paths that a file imports."""
    from poundlock.formats.protobuf.descriptors import file_of_base64

    file = file_of_base64(text, "")
    if file is not None:
        return frozenset(file.dependency)
    plain = _TOKEN.sub(lambda token: token[0] if token[0].startswith('"') else " ", text)
    return frozenset(_IMPORT.findall(plain))


# --- JSON Schema ------------------------------------------------------------------------------------------------------


def _refs(text: str) -> frozenset[str]:
    """Return the addresses that a schema refers to, as they are written and as they are below its own."""
    used: set[str] = set()

    def walk(schema: Any, base: str) -> None:
        if isinstance(schema, list):
            for each in schema:
                walk(each, base)
        elif isinstance(schema, Mapping):
            base = urljoin(base, schema["$id"]) if isinstance(schema.get("$id"), str) else base
            ref = schema.get("$ref")
            if isinstance(ref, str):
                place = urldefrag(ref)[0]
                used.update(each for each in (place, urljoin(base, place)) if each)
            for each in schema.values():
                walk(each, base)

    walk(_json(text, "JSON"), "")
    return frozenset(used)


def _addresses(name: str, text: str) -> frozenset[str]:
    own = _json(text, "JSON")
    address = own.get("$id") if isinstance(own, Mapping) else None
    return frozenset((name, address)) if isinstance(address, str) else frozenset((name,))


_OFFERS: Mapping[SchemaKind, Callable[[str, str], frozenset[str]]] = {
    "AVRO": lambda name, text: _avro_names(text)[0],
    "PROTOBUF": lambda name, text: frozenset((name,)),
    "JSON": _addresses,
}
"""By kind: what a schema of some name can be referred to by."""
_WANTS: Mapping[SchemaKind, Callable[[str], frozenset[str]]] = {
    "AVRO": lambda text: _avro_names(text)[1],
    "PROTOBUF": _imports,
    "JSON": _refs,
}
"""By kind: what a schema refers to."""


def check_given(given: Mapping[str, Given], kind: SchemaKind, what: str) -> None:
    """Raise DefinitionError where references are none, or of another kind."""
    for name, each in given.items():
        if not isinstance(name, str) or not isinstance(each, str | RegisteredSchema):
            raise DefinitionError(
                f"{what}: references are texts, or what registry.latest(…) returns, by what the schema calls them",
                next='write references={"shop.Money": money}',
            )
        if isinstance(each, RegisteredSchema) and each.kind != kind:
            raise DefinitionError(f"{what}: {name!r} is a schema of {each.kind}", next=f"give one of {kind}")
