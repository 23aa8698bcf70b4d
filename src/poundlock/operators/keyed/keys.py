"""Which key group a key belongs to, and which of several instances has a group.

Both are fixed for all time: state on disk is found again by them. Python's own hash() differs between processes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import encode_key

_NAN = math.nan


def group_of(key: Any, groups: int) -> int:
    """Return the key group, 0 … groups - 1, of a key: a number, a text, bytes, None, a date …, or a tuple of them."""
    # The low bits of a CRC are as even as its input; the multiplication spreads them before the top is taken.
    return ((zlib.crc32(encode_key(key)) * 0x9E3779B1 & 0xFFFFFFFF) * groups) >> 32


def instance_of(group: int, groups: int, instances: int) -> int:
    """Return which of several instances has a group: ranges that follow each other, as even as can be."""
    return group * instances // groups


def groups_of_instance(instance: int, groups: int, instances: int) -> range:
    """Return the groups of an instance."""
    if not 0 < instances <= groups:
        raise DefinitionError(
            f"{instances} instances of {groups} key groups", next=f"run 1 to {groups} instances; a group is never split"
        )
    return range(-(-instance * groups // instances), -(-(instance + 1) * groups // instances))


def normal(keys: Iterable[Any]) -> list[Any]:
    """Return keys with NaN and minus zero made one value each, as SQL groups them; for columns of floating point numbers."""
    return [_NAN if key != key else key + 0.0 if type(key) is float else key for key in keys]
