"""Python keys as columns of numbers and bytes, so that their hashes are those of the Arrow columns they came from.

A kind is what keeps 1, "1" and b"1" apart; its number is part of every hash and never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import encode_key

_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_MICRO = timedelta(microseconds=1)
_LOW = (1 << 64) - 1


class KeyKind(Enum):
    """What sort of value a key is; part of its hash."""

    NULL = 0x4E55
    BOOL = 0x424F
    INT = 0x494E
    FLOAT = 0x464C
    TEXT = 0x5445
    BYTES = 0x4259
    DECIMAL = 0x4445
    DATE = 0x4441
    TIMESTAMP = 0x5453
    DURATION = 0x4455
    TIME = 0x5449
    COMPOSITE = 0x434F
    OTHER = 0x4F54


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """Keys of one kind.

    Args:
        kind: of all of them.
        places: where they stand among all keys; None: they are all of them.
        words: their values in 64 bits, for kinds that fit.
        high_words: the upper 64 bits of decimals.
        data: the bytes of texts, bytes and others, back to back; None for other kinds.
        ends: in `data`: zero, then the end of each.
        parts: of composite keys of one length: the values of each part.
    """

    kind: KeyKind
    places: npt.NDArray[np.int64] | None
    words: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    high_words: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    data: bytes | None = None
    ends: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    parts: Sequence[Sequence[Any]] = ()


def columns_of_keys(keys: Sequence[Any]) -> list[KeyColumn]:
    """Return keys by kind.

    Raises:
        DefinitionError: a key is of a type that state cannot keep.
    """
    kinds = set(map(_shape, keys)) if tuple in set(map(type, keys)) else set(map(type, keys))
    if len(kinds) == 1:
        return _columns(keys, next(iter(kinds)), None)
    by_kind: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        by_kind.setdefault(_shape(key), []).append(place)
    return [
        column
        for kind, places in by_kind.items()
        for column in _columns([keys[place] for place in places], kind, np.array(places, np.int64))
    ]


def _shape(key: Any) -> Any:
    return (tuple, len(key)) if type(key) is tuple else type(key)


def _columns(keys: Sequence[Any], kind: Any, places: npt.NDArray[np.int64] | None) -> list[KeyColumn]:
    if kind is str:
        return [_texts(keys, places)]
    if kind is int:
        return _integers(keys, places)
    if type(kind) is tuple and kind[1]:
        return [KeyColumn(kind=KeyKind.COMPOSITE, places=places, parts=list(zip(*keys, strict=True)))]
    if kind is bytes:
        return [_bytes(KeyKind.BYTES, keys, places)]
    if kind is float:
        values = np.array(keys, np.float64) + 0.0
        values[values != values] = np.nan
        return [KeyColumn(kind=KeyKind.FLOAT, places=places, words=values.view(np.uint64))]
    if kind is Decimal:
        return _decimals(keys, places)
    words = _words(keys, kind)
    if words is None:
        return [_bytes(KeyKind.OTHER, list(map(encode_key, keys)), places)]
    return [KeyColumn(kind=words[0], places=places, words=np.array(words[1], np.int64).view(np.uint64))]


def _words(keys: Sequence[Any], kind: Any) -> tuple[KeyKind, list[int]] | None:
    """Return kind and value of keys that are a whole number of something."""
    if kind is type(None):
        return KeyKind.NULL, [0] * len(keys)
    if kind is bool:
        return KeyKind.BOOL, list(map(int, keys))
    if kind is date:
        return KeyKind.DATE, [key.toordinal() - _FIRST_DAY for key in keys]
    if kind is datetime:
        return KeyKind.TIMESTAMP, [(key - (_EPOCH if key.tzinfo is None else _EPOCH_UTC)) // _MICRO for key in keys]
    if kind is timedelta:
        return KeyKind.DURATION, [key // _MICRO for key in keys]
    if kind is time:
        whole = [(key.hour * 60 + key.minute) * 60 + key.second for key in keys]
        return KeyKind.TIME, [seconds * 1_000_000 + key.microsecond for seconds, key in zip(whole, keys, strict=True)]
    return None


def _texts(keys: Sequence[str], places: npt.NDArray[np.int64] | None) -> KeyColumn:
    whole = "".join(keys)
    if whole.isascii():
        return KeyColumn(kind=KeyKind.TEXT, places=places, data=whole.encode(), ends=_ends(keys))
    try:
        return _bytes(KeyKind.TEXT, [key.encode() for key in keys], places)
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"a key is a text that is not valid Unicode: {error.object[:40]!r}",
            next='clean it first, such as text.encode("utf-8", "replace").decode()',
        ) from None


def _bytes(kind: KeyKind, keys: Sequence[bytes], places: npt.NDArray[np.int64] | None) -> KeyColumn:
    return KeyColumn(kind=kind, places=places, data=b"".join(keys), ends=_ends(keys))


def _ends(keys: Sequence[bytes] | Sequence[str]) -> npt.NDArray[np.int64]:
    ends = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)), out=ends[1:])
    return ends


def _integers(keys: Sequence[int], places: npt.NDArray[np.int64] | None) -> list[KeyColumn]:
    try:
        return [KeyColumn(kind=KeyKind.INT, places=places, words=np.array(keys, np.int64).view(np.uint64))]
    except OverflowError:
        pass
    where = np.arange(len(keys)) if places is None else places
    fits = np.array([-(1 << 63) <= key < 1 << 64 for key in keys])
    small = [key & _LOW for key, fit in zip(keys, fits.tolist(), strict=True) if fit]
    large = [str(key).encode() for key, fit in zip(keys, fits.tolist(), strict=True) if not fit]
    return [
        KeyColumn(kind=KeyKind.INT, places=where[fits], words=np.array(small, np.uint64)),
        _bytes(KeyKind.INT, large, where[~fits]),
    ]


def _decimals(keys: Sequence[Decimal], places: npt.NDArray[np.int64] | None) -> list[KeyColumn]:
    if not all(key.is_finite() for key in keys):
        return [_bytes(KeyKind.OTHER, list(map(encode_key, keys)), places)]
    whole = [_unscaled(key) for key in keys]
    low = np.array([number & _LOW for number in whole], np.uint64)
    high = np.array([number >> 64 & _LOW for number in whole], np.uint64)
    return [KeyColumn(kind=KeyKind.DECIMAL, places=places, words=low, high_words=high)]


def _unscaled(key: Decimal) -> int:
    """Return a decimal's digits as a whole number: what Arrow keeps in a column of one scale."""
    sign, digits, _ = key.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number
