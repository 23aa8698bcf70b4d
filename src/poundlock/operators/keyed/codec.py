"""Single values to bytes and back: msgpack, with tags for what msgpack does not know. Whole columns: `columns.msgpack`.

What comes back equals what went in, types included; anything that could not is refused with what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec

from poundlock.errors import DefinitionError, TerminalError

_Ext = msgspec.msgpack.Ext
_encode = msgspec.msgpack.Encoder().encode

_DEEPEST = 100  # levels of values within values: what is written must be readable from any depth of Python's stack
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
TUPLE, _SET, _FROZENSET, _DECIMAL, _DATE, _DATETIME, _TIME, _TIMEDELTA, _INT, _DICT = range(1, 11)
UTC_MICROS, LOCAL_MICROS = 11, 12
"""Timestamps as microseconds since 1970, 64 bits: what columns write, with the zone UTC or none."""
_EPOCH = {UTC_MICROS: datetime(1970, 1, 1, tzinfo=UTC), LOCAL_MICROS: datetime(1970, 1, 1)}


def _from_ext(code: int, data: memoryview) -> Any:
    if code in (TUPLE, _SET, _FROZENSET, _DICT):
        items = _decode(data)
        if code == _DICT:
            return dict(zip(map(canonical_key, items[0]), items[1], strict=True))
        return (tuple if code == TUPLE else set if code == _SET else frozenset)(items)
    if code in _EPOCH:
        try:
            return _EPOCH[code] + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
        except OverflowError:
            raise TerminalError(
                "state holds a time before the year 1 or behind the year 9999, which Python has not",
                next="leave such rows out before the step: where(\"ts < timestamp'9999-01-01'\")",
            ) from None
    read = _READ.get(code)
    if read is None:
        raise TerminalError(
            f"state has a value of the unknown kind {code}", next="use the version of poundlock that wrote it"
        )
    return read(str(data, "utf-8"))


_READ: Mapping[int, Callable[[str], Any]] = {
    _DECIMAL: Decimal,
    _INT: int,
    _TIMEDELTA: lambda text: timedelta(microseconds=int(text)),
    _DATE: date.fromisoformat,
    _DATETIME: datetime.fromisoformat,
    _TIME: time.fromisoformat,
}
_decode = msgspec.msgpack.Decoder(ext_hook=_from_ext).decode


def decode(data: bytes | memoryview) -> Any:
    """Return the value that `encode` made bytes of."""
    return _decode(data)


def decode_all(data: bytes | memoryview, count: int) -> list[Any]:
    """Return the values that stand one behind the other in some bytes."""
    values: list[Any] = _decode(b"\xdd" + count.to_bytes(4, "big") + data)  # they are what a list holds
    return values


def decode_each(values: Iterable[bytes]) -> list[Any]:
    """Return the values that `encode` made bytes of."""
    return list(map(_decode, values))


def encode(value: Any) -> bytes:
    """Return a value as bytes. The value must have been through `pack`, or be of types that msgpack knows.

    Raises:
        DefinitionError: a text cannot be written as UTF-8.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"state holds a text that is not valid Unicode: {error.object[:40]!r}",
            next='clean it first, such as text.encode("utf-8", "replace").decode()',
        ) from None


def encode_key(key: Any) -> bytes:
    """Return the bytes a key is known by; equal keys of one type have equal bytes."""
    return encode(pack(key + 0.0 if type(key) is float else key))  # there is one zero


def encode_each(values: list[Any]) -> list[bytes]:
    """Return each value as bytes of its own, as `encode(pack(value))` gives them; raises as they do."""
    try:
        return list(map(_encode, values if _plain(values) else map(pack, values)))
    except UnicodeEncodeError:
        return [encode(pack(value)) for value in values]  # says which text it is


def encode_keys(keys: list[Any]) -> list[bytes]:
    """Return the bytes each key is distinguished by, as `encode_key` gives them."""
    kinds = set(map(type, keys))
    if kinds == {str} or (kinds == {int} and _small(keys, kinds)):
        return encode_each(keys)
    return list(map(encode_key, keys))


def normal(keys: Iterable[Any]) -> list[Any]:
    """Return keys with NaN and minus zero made one value each, as SQL groups them; for columns of floating point numbers."""
    return [math.nan if key != key else key + 0.0 if type(key) is float else key for key in keys]


def normal_key(key: Any) -> Any:
    """Return one key as `normal` makes it, a tuple part by part."""
    return tuple(normal(key)) if type(key) is tuple else normal([key])[0]


def canonical_key(key: Any) -> Any:
    """Return a key that was read from bytes so that a table has it again: NaN equals nothing but the one object that stands for it."""
    if type(key) is tuple:
        return tuple([canonical_key(part) for part in key])
    return math.nan if type(key) is float and key != key else key


def pack(value: Any, levels: int = _DEEPEST) -> Any:
    """Return a value in the types that msgpack knows; `unpack` and reading turn it back.

    Args:
        levels: how many lists, tuples, sets or dicts may stand within one another.

    Raises:
        DefinitionError: it is, or holds, something that state cannot keep, or it is nested too deep.
    """
    kind = type(value)
    if kind in _SCALARS and (kind is not int or value.bit_length() <= 14_000):  # Python makes no text of longer ones
        return value if kind is not int or -(1 << 63) <= value < (1 << 64) else _Ext(_INT, str(value).encode())
    if kind in _CONTAINERS:
        return _pack_all(value, kind, _one_less(levels))
    if kind is Decimal:
        return _Ext(_DECIMAL, str(value).encode())
    if kind is timedelta:
        return _Ext(_TIMEDELTA, str(value // timedelta(microseconds=1)).encode())
    if code := {datetime: _DATETIME, date: _DATE, time: _TIME}.get(kind):
        return _Ext(code, value.isoformat().encode())
    shown = f"{value.bit_length():,} bits" if kind is int else str(value)[:60]
    raise DefinitionError(
        f"state cannot keep a {kind.__module__}.{kind.__qualname__}: {shown}".replace("builtins.", ""),
        next="keep numbers of up to 4,000 digits, texts, bytes, None, Decimal, dates and times, or lists, tuples, sets and dicts of them",
    )


def _pack_all(value: Any, kind: type, levels: int) -> Any:
    if kind is list:
        return value if _plain(value, levels) else [pack(item, levels) for item in value]
    if kind is tuple:
        return _Ext(TUPLE, encode([pack(item, levels) for item in value]))
    if kind is not dict:
        # A set has no order, and the same state must give the same bytes on every run.
        return _Ext(_SET if kind is set else _FROZENSET, encode(sorted((pack(v, levels) for v in value), key=_encode)))
    if not _SCALARS.issuperset(map(type, value)) or not _fits(value):
        return _Ext(_DICT, encode([[pack(key, levels) for key in value], [pack(v, levels) for v in value.values()]]))
    return value if _plain(value.values(), levels) else {key: pack(item, levels) for key, item in value.items()}


def _one_less(levels: int) -> int:
    if levels == 0:
        raise DefinitionError(
            f"state holds a value that is nested more than {_DEEPEST} levels deep, or that holds itself",
            next="keep a flat value, such as a list of records",
        )
    return levels - 1


def _fits(values: Iterable[Any]) -> bool:
    return all(type(value) is not int or -(1 << 63) <= value < (1 << 64) for value in values)


def _plain(values: Iterable[Any], levels: int = _DEEPEST) -> bool:
    """Return whether msgpack can write all values as they are. Looks at a level at a time, at the speed of C."""
    values = list(values)
    kinds = set(map(type, values))
    if int in kinds and not _small(values, kinds):
        return False
    rest = kinds - _SCALARS
    if not rest:
        return True
    if not rest <= {list, dict}:
        return False
    levels = _one_less(levels)
    if list in rest and not _plain(chain.from_iterable(v for v in values if type(v) is list), levels):
        return False
    dicts = [v for v in values if type(v) is dict]
    keys = list(chain.from_iterable(dicts))
    return (
        _SCALARS.issuperset(map(type, keys))
        and _fits(keys)
        and _plain(chain.from_iterable(v.values() for v in dicts), levels)
    )


def _small(values: list[Any], kinds: set[type]) -> bool:
    numbers = values if kinds == {int} else [v for v in values if type(v) is int]
    return min(numbers) >= -(1 << 63) and max(numbers) < (1 << 64)
