"""A record that has no place in the output, on its way to the dead letters.

The raw bytes and the place in the source travel with it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not be parsed, placed or written.

    Args:
        reason: why, in words for a person.
        value: the record as bytes.
        where: its place in the source, such as topic, partition, offset or file and byte offset.
    """

    reason: str
    value: bytes
    where: Mapping[str, Any]


def as_json(row: Mapping[str, Any]) -> bytes:
    """Return a row as a person can read it, for a dead letter."""
    import msgspec

    try:
        return msgspec.json.encode(row, enc_hook=repr)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return repr(row).encode("utf-8", "backslashreplace")
