"""Descriptors of messages: where they come from, and classes made of them in a pool of their own, so that versions of one message do not meet.

What travels is a FileDescriptorSet as bytes, each file behind those that it imports.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from poundlock.errors import DefinitionError, required

SCHEMA_FILE = "schema.proto"
"""What the file of a text is called that names none."""

_KNOWN: Mapping[str, FileDescriptor] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
    )
}  # fmt: skip
_COMPILE_S = 60


def set_of_class(message: Any) -> bytes:
    """Return the descriptor set of a generated class."""
    return _serialized(_with_imports(message.DESCRIPTOR.file, {}))


def set_of_bytes(data: bytes, what: str) -> bytes:
    """Return a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it. Raises DefinitionError where it is none."""
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except DecodeError as error:
        raise DefinitionError(f"{what} is no descriptor set: {error}", next=_NEXT) from None
    if not files:
        raise DefinitionError(f"{what} has no file", next=_NEXT)
    return data


_NEXT = "write one with protoc --include_imports --descriptor_set_out=orders.desc orders.proto"


def set_of_text(text: str, references: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """Return the descriptor set of the text of a schema, and the name of its file in it.

    Args:
        text: of a .proto file, or a FileDescriptorProto in base64, which Confluent's client for Python registers.
        references: the texts that it imports, by the path of the import, each behind those that it imports itself.

    Raises:
        DefinitionError: it does not compile, or the compiler is not installed.
    """
    given = references or {}
    files = {name: file_of_base64(each, name) for name, each in given.items()}
    main = file_of_base64(text, "")
    if main is None:
        return _compiled(text, given), SCHEMA_FILE
    made: dict[str, Any] = {}
    for name, of in files.items():
        if of is None:
            for each in descriptor_pb2.FileDescriptorSet.FromString(_compiled(given[name], given, name)).file:
                made.setdefault(each.name, each)
        else:
            made[name] = of
    return _serialized(_with_known({**made, main.name: main})), main.name


def file_of_base64(text: str, name: str) -> Any:
    """Return the FileDescriptorProto that a text is in base64; None where it is none.

    Args:
        name: what it is called; "": as it says itself.
    """
    try:
        made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    made.name = name or made.name or SCHEMA_FILE
    return made


def _with_known(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return files with those of Google's that they import before them."""
    before: dict[str, Any] = {}
    for file in files.values():
        for name in file.dependency:
            if name not in files and name in _KNOWN:
                _with_imports(_KNOWN[name], before)
    return {**before, **files}


def _with_imports(file: FileDescriptor, made: dict[str, Any]) -> dict[str, Any]:
    """Return the files that one needs and it itself, by name."""
    for each in file.dependencies:
        if each.name not in made:
            _with_imports(each, made)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    made[file.name] = proto
    return made


def _serialized(files: Mapping[str, Any]) -> bytes:
    return bytes(descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString(deterministic=True))


def _compiled(text: str, references: Mapping[str, str], name: str = SCHEMA_FILE) -> bytes:
    """Return what protoc makes of a text; raises DefinitionError with what it says."""
    tools = Path(required("grpc_tools", "the text of a Protobuf schema", "protobuf", "grpcio-tools").__file__).parent
    with tempfile.TemporaryDirectory(prefix="poundlock-proto-") as folder:
        for path, each in {**references, name: text}.items():
            place = Path(folder) / path
            if not place.resolve().is_relative_to(Path(folder).resolve()):
                raise DefinitionError(f"a Protobuf schema imports {path!r}", next="name imports below a folder")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(each)
        made = Path(folder) / "descriptor.set"
        arguments = [f"-I{folder}", f"-I{tools / '_proto'}", "--include_imports", f"--descriptor_set_out={made}", name]
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", *arguments],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_COMPILE_S, check=False,
        )  # fmt: skip
        if done.returncode or not made.exists():
            why = " ".join(done.stderr.replace(folder, "").split())[:300]
            raise DefinitionError(f"a Protobuf schema does not compile: {why}", next="correct its text")
        return made.read_bytes()


@lru_cache(256)
def pool_of(files: bytes) -> DescriptorPool:
    """Return a pool with the files of a descriptor set. Raises DefinitionError where one is missing."""
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise DefinitionError(f"a descriptor set is not whole: {error}", next=_NEXT) from None
    return pool


def messages_in(files: bytes, file: str | None = None) -> Iterator[Descriptor]:
    """Yield the messages of a file, with those within them; of all but Google's files where none is named."""
    pool = pool_of(files)
    for each in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        if each.name == file or (file is None and each.name not in _KNOWN):
            yield from _within(pool.FindFileByName(each.name).message_types_by_name.values())


def _within(messages: Any) -> Iterator[Descriptor]:
    for each in messages:
        if not each.GetOptions().map_entry:
            yield each
            yield from _within(each.nested_types)


def message_in(files: bytes, name: str) -> Descriptor:
    """Return a message by its full name. Raises DefinitionError where there is none."""
    try:
        return pool_of(files).FindMessageTypeByName(name)
    except KeyError:
        known = ", ".join(each.full_name for each in messages_in(files))
        raise DefinitionError(f"there is no message {name!r} of Protobuf", next=f"use one of {known}") from None


def class_of(descriptor: Descriptor) -> Any:
    """Return the class of a message."""
    return GetMessageClass(descriptor)
