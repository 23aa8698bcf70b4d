"""Schemas as a registry has them: a number for ever, a kind, a text, and the texts of those that it refers to. Plain values, which travel to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to.

    Args:
        name: as the other one calls it: the full name of a type of Avro, the path of an import of Protobuf, or a URI of JSON Schema.
        subject, version: where the registry has it; version 0: it is registered there before the one that refers to it.
        uses: the names of those that it refers to itself.
        is_direct: whether the schema itself refers to it, and not only one that it refers to.
    """

    name: str
    subject: str
    version: int
    text: str
    uses: tuple[str, ...] = ()
    is_direct: bool = True


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry. What a number means never changes there.

    Args:
        id: its number, unique in the registry.
        references: all that it refers to, also through others, each behind those that it refers to itself.
        subject, version: that it was asked for by; "" and 0 of one that was asked for by its number.
    """

    id: int
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0


Given = str | RegisteredSchema
"""A schema as a format is given it: its text, or as a registry has it, with what it refers to."""


def text_of(schema: Given) -> str:
    """Return the text of a schema that a format is given."""
    return schema if isinstance(schema, str) else schema.text


def references_of(schema: Given) -> tuple[Reference, ...]:
    """Return what a schema refers to that a format is given."""
    return () if isinstance(schema, str) else schema.references


Pins = Mapping[int, RegisteredSchema]
"""Schemas that are known without asking, by number."""

KEY_BYTES = "$key"
"""The column of a chunk that has the bytes of keys; no column of a user's is called so."""

Registration = tuple[str, SchemaKind, str, tuple[Reference, ...]]
"""What is asked for the number of a schema: subject, kind, text and what it refers to."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a registry answered to one process, for others that it may not answer.

    Args:
        latest: the newest schemas of subjects as they were then.
        numbers: what does not change.
    """

    latest: Mapping[str, RegisteredSchema] = field(default_factory=dict)
    numbers: Mapping[Registration, int] = field(default_factory=dict)
