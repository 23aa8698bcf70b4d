"""Values to bytes and back: msgpack, with tags for what msgpack does not know. The only module that knows how.

What comes back equals what went in, types included; anything that could not is refused with what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Literal

import msgspec

from poundlock.errors import DefinitionError, TerminalError

FORMAT = 1  # of a blob; raised when older versions could not read it
_Ext = msgspec.msgpack.Ext
_encode = msgspec.msgpack.Encoder().encode

_DEEPEST = 100  # levels of values within values: what is written must be readable from any depth of Python's stack
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_TUPLE, _SET, _FROZENSET, _DECIMAL, _DATE, _DATETIME, _TIME, _TIMEDELTA, _INT, _DICT = range(1, 11)


def _from_ext(code: int, data: memoryview) -> Any:
    if code in (_TUPLE, _SET, _FROZENSET, _DICT):
        items = _decode(data)
        if code == _DICT:
            return dict(zip(*items, strict=True))
        return (tuple if code == _TUPLE else set if code == _SET else frozenset)(items)
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
    """Return the bytes a key is told by; equal keys of one type have equal bytes."""
    kind = type(key)
    if kind is str or kind is int:
        return encode(pack(key))
    return encode(pack(key + 0.0 if kind is float else key))  # there is one zero


def encode_each(values: list[Any]) -> list[bytes]:
    """Return each value as bytes of its own, as `encode(pack(value))` gives them; raises as they do."""
    try:
        return list(map(_encode, values if _plain(values) else map(pack, values)))
    except UnicodeEncodeError:
        return [encode(pack(value)) for value in values]  # says which text it is


def encode_keys(keys: list[Any]) -> list[bytes]:
    """Return the bytes each key is told apart by, as `encode_key` gives them."""
    kinds = set(map(type, keys))
    if kinds == {str} or (kinds == {int} and _small(keys, kinds)):
        return encode_each(keys)
    return list(map(encode_key, keys))


def canonical_key(key: Any) -> Any:
    """Return a key that was read from bytes so that it is found again: NaN equals nothing but the one object that stands for it."""
    if type(key) is tuple:
        return tuple([canonical_key(part) for part in key])
    return math.nan if key != key else key


def pack(value: Any, levels: int = _DEEPEST) -> Any:
    """Return a value in the types that msgpack knows; `unpack` and reading turn it back.

    Args:
        value: what state is to keep.
        levels: how many lists, tuples, sets or dicts may stand within one another.

    Raises:
        DefinitionError: it is, or holds, something that state cannot keep, or it is nested too deep.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value if kind is not int or -(1 << 63) <= value < (1 << 64) else _Ext(_INT, str(value).encode())
    if kind in _CONTAINERS:
        return _pack_all(value, kind, _one_less(levels))
    if kind is Decimal:
        return _Ext(_DECIMAL, str(value).encode())
    if kind is timedelta:
        return _Ext(_TIMEDELTA, str(value // timedelta(microseconds=1)).encode())
    for known, code in ((datetime, _DATETIME), (date, _DATE), (time, _TIME)):
        if kind is known:
            return _Ext(code, value.isoformat().encode())
    raise DefinitionError(
        f"state cannot keep a {kind.__module__}.{kind.__qualname__}: {str(value)[:60]}".replace("builtins.", ""),
        next="keep numbers, texts, bytes, None, Decimal, dates and times, or lists, tuples, sets and dicts of them",
    )


def _pack_all(value: Any, kind: type, levels: int) -> Any:
    if kind is list:
        return value if _plain(value, levels) else [pack(item, levels) for item in value]
    if kind is tuple:
        return _Ext(_TUPLE, encode([pack(item, levels) for item in value]))
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


def pack_column(values: list[Any]) -> list[Any]:
    """Return a list of values as [kind, content]: "v" values, "t" tuples of one length, column by column."""
    kinds = set(map(type, values))
    if kinds == {tuple} and len(set(map(len, values))) == 1 and values[0]:
        return ["t", [pack_column(list(column)) for column in zip(*values, strict=True)]]
    return ["v", values if _plain(values) else [pack(value) for value in values]]


def unpack_column(column: list[Any]) -> list[Any]:
    """Return what `pack_column` was given."""
    kind, content = column
    return list(zip(*map(unpack_column, content), strict=True)) if kind == "t" else content


def unpack_keys(column: list[Any]) -> list[Any]:
    """Return keys that `pack_column` was given. NaN equals nothing: it is found again as the one object that stands for it."""
    kind, content = column
    if kind == "t":
        return list(zip(*map(unpack_keys, content), strict=True))
    return [math.nan if key != key else key for key in content] if float in set(map(type, content)) else content


def pack_table(table: Mapping[Any, Any]) -> list[Any]:
    """Return a table, of any keys, as two columns: a hundred thousand entries cost a few calls."""
    return [pack_column(list(table)), pack_column(list(table.values()))]


def unpack_table(packed: list[Any]) -> dict[Any, Any]:
    """Return what `pack_table` was given."""
    keys, values = packed
    return dict(zip(unpack_keys(keys), unpack_column(values), strict=True))


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a key group's blob without reading its state. Times in ms; None: there is no such timer."""

    format: int
    group: int
    watermark: int
    processing_time: int
    next_event_timer: int | None
    next_processing_timer: int | None
    timer_entries: Literal["keys", "windows", "keys and windows"]


class Blob(msgspec.Struct, array_like=True):
    """One key group as bytes: its head, its tables by name and namespace, its timers. What is not looked at is not decoded."""

    head: Head
    tables: list[tuple[str, dict[str, Any], list[tuple[Any, memoryview]]]]
    event_timers: memoryview
    processing_timers: memoryview


_head = msgspec.msgpack.Decoder(tuple[Head, msgspec.Raw, msgspec.Raw, msgspec.Raw]).decode
_blob = msgspec.msgpack.Decoder(Blob, ext_hook=_from_ext).decode


def read_head(data: bytes) -> Head:
    """Return the head of a blob.

    Raises:
        TerminalError: it is no blob, or of a newer format.
    """
    try:
        head = _head(data)[0]
    except msgspec.MsgspecError as error:
        raise TerminalError(
            f"the state of a key group cannot be read: {error}", next="restore the job from a checkpoint or savepoint"
        ) from None
    if head.format > FORMAT:
        raise TerminalError(
            f"the state of key group {head.group} has format {head.format}; this version reads up to {FORMAT}",
            next="run the version of poundlock that wrote it, or a newer one",
        )
    return head


def read_blob(data: bytes) -> Blob:
    """Return a blob with its tables and timers still as bytes; raises as `read_head`."""
    read_head(data)
    return _blob(data)
