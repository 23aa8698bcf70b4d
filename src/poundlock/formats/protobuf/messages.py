"""Messages of Protobuf as they are, one a value, without a schema's number: which message that is, and its codec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from poundlock.errors import DefinitionError
from poundlock.formats.decode import Parsed, Want
from poundlock.formats.protobuf.decode import columns_of_messages
from poundlock.formats.protobuf.descriptors import class_of, message_in, messages_in, set_of_bytes, set_of_class
from poundlock.formats.protobuf.fields import columns_of


def given_message(
    owner: str, message: str | None, descriptor_set: bytes | str | None, message_class: Any
) -> tuple[bytes, str]:
    """Return a descriptor set, and the full name of a message in it, as a user gives them.

    Args:
        owner: who is given them, for errors.
        message: its full name; None: the first one of the last file, which is the one that imports the others.
        descriptor_set: as bytes, or the path of its file.
        message_class: a generated class, instead.

    Raises:
        DefinitionError: there is no such message, or neither or both are given.
    """
    if (descriptor_set is None) is (message_class is None):
        raise DefinitionError(
            f"{owner} needs a descriptor set or a generated class, and not both",
            next='give descriptor_set="orders.desc", as protoc --include_imports --descriptor_set_out writes it',
        )
    if message_class is not None:
        name = str(message_class.DESCRIPTOR.full_name)
        if message not in (None, name):
            raise DefinitionError(f"{owner}: the class is of {name!r}", next="leave message out")
        return set_of_class(message_class), name
    files = _set(descriptor_set)
    name = message or first_message(files)
    message_in(files, name)
    return files, name


def _set(given: bytes | str | None) -> bytes:
    if not isinstance(given, str):
        return set_of_bytes(given or b"", "descriptor_set")
    try:
        return set_of_bytes(Path(given).read_bytes(), given)
    except OSError as error:
        raise DefinitionError(
            f"cannot read {given}: {error.strerror}", next="give the path of a descriptor set"
        ) from error


def first_message(files: bytes) -> str:
    """Return the first message of the last file of a set. Raises DefinitionError where there is none."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    for each in messages_in(files, FileDescriptorSet.FromString(files).file[-1].name):
        return str(each.full_name)
    raise DefinitionError("the schema of Protobuf has no message", next="give another one")


@dataclass(frozen=True)
class ProtobufCodec:
    """One message a value. What a message has that its descriptor does not name is left out, by the rules of Protobuf.

    Raises:
        DefinitionError: as `given_message` does.
    """

    message: str | None = None
    descriptor_set: bytes | str | None = field(default=None, repr=False)
    message_class: Any = None

    def __post_init__(self) -> None:
        files, name = given_message('format "protobuf"', self.message, self.descriptor_set, self.message_class)
        object.__setattr__(self, "descriptor_set", files)  # bytes travel to tasks, and a class need not
        object.__setattr__(self, "message", name)
        object.__setattr__(self, "message_class", None)
        self.schema()

    @property
    def descriptor(self) -> Descriptor:
        """The message."""
        files: Any = self.descriptor_set
        return message_in(files, str(self.message))

    def schema(self) -> pa.Schema:
        return columns_of(self.descriptor)

    def parse_lines(self, lines: Any, want: Want) -> Parsed | None:
        return None

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        messages, bad = parsed_messages(values, self.descriptor)
        return Parsed(columns_of_messages(messages, self.descriptor), bad)


def parsed_messages(values: Sequence[bytes], of: Descriptor) -> tuple[list[Any], dict[int, str]]:
    """Return values as messages, and why others are none."""
    parse, messages = class_of(of).FromString, []
    bad: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            messages.append(parse(value))
        except DecodeError as error:
            bad[place] = f"not a message {of.full_name}: {error}"
    return messages, bad
