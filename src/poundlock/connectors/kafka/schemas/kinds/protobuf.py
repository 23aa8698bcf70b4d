"""Values of Protobuf by schemas of a registry. Between the five bytes and the message stands which message of the file it is."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from poundlock.connectors.kafka.schemas.codec import Incompatible, SchemaReader, head_of
from poundlock.connectors.kafka.schemas.encoder import EncodedValues, SchemaWriter
from poundlock.connectors.kafka.schemas.framing import SIZE
from poundlock.connectors.kafka.schemas.registered import Reference, RegisteredSchema
from poundlock.errors import DefinitionError
from poundlock.formats.encode import values
from poundlock.formats.protobuf.compatibility import why_unreadable
from poundlock.formats.protobuf.decode import columns_of_messages
from poundlock.formats.protobuf.descriptors import class_of, pool_of, set_of_text
from poundlock.formats.protobuf.encode import MessageBuilder
from poundlock.formats.protobuf.projection import Unfitting, declared_columns

_MOST_INDEXES = 64  # messages within messages


class ProtobufReader(SchemaReader):
    """Reads what one schema of Protobuf wrote.

    Args:
        columns: that are read, by name where no message is given.
        message: the one to read by; None: that which each value is.
        name: what that is called; None: any.
    """

    def __init__(
        self, written: RegisteredSchema, columns: pa.Schema, message: Descriptor | None, name: str | None = None
    ) -> None:
        try:
            files, file = set_of_text(written.text, {each.name: each.text for each in written.references})
        except DefinitionError as error:
            if error.kind == "missing_package":
                raise
            raise Incompatible(error.what) from None
        self._in_order, self._name = _messages(files, file), name
        self._columns, self._message = columns, message
        self._parsers: dict[tuple[int, ...], Any] = {}
        self._read_by: Descriptor | None = message

    def read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        messages = []
        bad: dict[int, str] = {}
        for place, value in enumerate(values):
            try:
                indexes, begin = indexes_in(value)
                messages.append(self._parser(indexes)(value[begin:]))
            except (DecodeError, ValueError, IndexError) as error:
                bad[place] = f"not a message of its schema: {head_of(error)}"
        if self._message is not None:
            return columns_of_messages(messages, self._message), bad
        if self._read_by is None:
            return pa.RecordBatch.from_pylist([], self._columns), bad
        try:
            return declared_columns(messages, self._read_by, self._columns), bad
        except Unfitting as error:
            raise Incompatible(str(error)) from None

    def _parser(self, indexes: tuple[int, ...]) -> Any:
        """Return what reads a message of the schema's file. Raises Incompatible where it cannot be read."""
        known = self._parsers.get(indexes)
        if known is None:
            written = message_at(self._in_order, indexes)
            read_by = self._read_by = self._read_by or written
            expected = self._name or read_by.full_name
            if written.full_name != expected:
                raise Incompatible(f"it is a message {written.full_name}, and {expected} is expected")
            why = None if written is read_by else why_unreadable(written, read_by)
            if why is not None:
                raise Incompatible(why)
            known = self._parsers[indexes] = class_of(read_by).FromString
        return known


def _messages(files: bytes, name: str) -> list[Descriptor]:
    """Return the messages of a file in the order in which they stand there."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file: Any = pool_of(files).FindFileByName(name)
    proto = next(each for each in FileDescriptorSet.FromString(files).file if each.name == name)
    return [file.message_types_by_name[each.name] for each in proto.message_type]


def message_at(messages: Sequence[Descriptor], indexes: Sequence[int]) -> Descriptor:
    """Return the message that indexes name. Raises ValueError where there is none."""
    for index in indexes[:-1]:
        messages = list(_at(messages, index).nested_types)
    return _at(messages, indexes[-1])


def _at(messages: Sequence[Descriptor], index: int) -> Descriptor:
    if not 0 <= index < len(messages):
        raise ValueError(f"its schema has no message {index}")
    return messages[index]


def indexes_in(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message a value is, and where it begins.

    Raises:
        IndexError, ValueError: the value ends before, or no such list stands there.
    """
    count, at = _varint(value, SIZE)
    if count == 0:  # the first message of the file, which almost all are
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and where the next byte is."""
    number, shift = 0, 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


class ProtobufWriter(SchemaWriter):
    """Writes messages.

    Args:
        framed: whether before each stands which message of the file it is.
    """

    def __init__(self, message: Descriptor, *, framed: bool = True) -> None:
        self._message, self._maker = message, MessageBuilder(message)
        self._indexes = b"".join(_zigzag(number) for number in _numbers(message)) if framed else b""
        self._is_checked = False

    def encode(self, rows: pa.RecordBatch, head: bytes) -> EncodedValues:
        names = rows.schema.names
        if not self._is_checked:
            strange = [name for name in names if name not in self._message.fields_by_name]
            if strange:
                raise DefinitionError(
                    f"message {self._message.full_name} has no field for the column {strange[0]!r}",
                    next="select what the message has, or change the message",
                )
            self._is_checked = True
        before, encode = head + self._indexes, self._maker.encode
        pieces: list[bytes] = []
        ends = np.zeros(rows.num_rows + 1, np.int64)
        bad: dict[int, str] = {}
        for place, row in enumerate(zip(*map(values, rows.columns), strict=True)):
            try:
                pieces.append(before + encode(dict(zip(names, row, strict=True))))
            except (TypeError, ValueError, OverflowError) as error:
                bad[place] = f"cannot be written as Protobuf: {head_of(error)}"
                pieces.append(b"")
        np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=ends[1:])
        return EncodedValues(b"".join(pieces), ends, bad)


def file_with_imports(file: FileDescriptor) -> tuple[str, tuple[Reference, ...]]:
    """Return a file in base64, as Confluent's client for Python registers it, and the files that it imports, each under its path as subject."""
    made: dict[str, Reference] = {}

    def add(each: FileDescriptor, is_direct: bool) -> tuple[str, ...]:
        uses = tuple(of.name for of in each.dependencies if not of.name.startswith(_OF_GOOGLE))
        for of in each.dependencies:
            if of.name in uses and of.name not in made:
                inner = add(of, False)
                made[of.name] = Reference(of.name, of.name, 0, _base64(of), inner, is_direct=False)
            if of.name in uses and is_direct:
                made[of.name] = replace(made[of.name], is_direct=True)
        return uses

    add(file, True)
    return _base64(file), tuple(made.values())


_OF_GOOGLE = "google/protobuf/"  # every registry has these


def _base64(file: FileDescriptor) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return base64.standard_b64encode(proto.SerializeToString(deterministic=True)).decode()


def _numbers(message: Descriptor) -> Iterator[int]:
    """Yield what stands before a message: how many indexes, and those; of the first message of a file one zero."""
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

    indexes: list[int] = []
    each = message
    while each is not None:
        outer: Any = each.containing_type
        proto: Any = FileDescriptorProto() if outer is None else DescriptorProto()
        (each.file if outer is None else outer).CopyToProto(proto)
        names = [of.name for of in (proto.message_type if outer is None else proto.nested_type)]
        indexes.insert(0, names.index(each.name))
        each = outer
    yield from (0,) if indexes == [0] else (len(indexes), *indexes)


def _zigzag(number: int) -> bytes:
    number, made = number << 1, b""
    while number >= 0x80:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])
