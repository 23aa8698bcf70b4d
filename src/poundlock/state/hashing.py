"""A stable 64-bit hash of keys, a column or a list at a time, and the key groups that are ranges of it.

State on disk is looked up by these values: they never change. An Arrow column and the Python values in it have the same hashes;
that of null is 0, so that what has no key is in the first group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import flags_in, numbers_in
from poundlock.formats.words import words_in
from poundlock.operators.keyed.codec import encode_key
from poundlock.state.runs.columns import Hashes

DEFAULT_MAX_PARALLELISM = 128
MAX_PARALLELISM = 32_768

_K1, _K2, _K3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S29, _S32 = np.uint64(29), np.uint64(32)
_MASK = np.array([0, *((1 << 8 * i) - 1 for i in range(1, 9))], np.uint64)
_AT_ONCE = 1 << 14
_LONG = 256  # bytes; a longer key is hashed by its digest, so that one of a megabyte does not cost 100,000 steps
_EPOCH_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_MICRO = timedelta(microseconds=1)
_LOW = (1 << 64) - 1


class KeyKind(Enum):
    """What sort of value a key is: what keeps 1, "1" and b"1" apart. Its number is part of every hash and never changes."""

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


def key_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return the hash of each row's key.

    Args:
        columns: the columns that are the key, of one length; several are a composite key, a tuple in Python.

    Raises:
        DefinitionError: there is no column, or one is of a type that cannot be a key.
    """
    if not columns:
        raise DefinitionError("a key of no column", next="give the columns that are the key")
    hashes = [_column_hashes(column) for column in columns]
    return hashes[0] if len(hashes) == 1 else combined_hashes(hashes)


def hashes_of(keys: Sequence[Any]) -> Hashes:
    """Return the hash of each of some Python keys; a tuple is a composite key.

    Raises:
        DefinitionError: a key is of a type that state cannot keep.
    """
    kinds = set(map(_shape, keys)) if tuple in set(map(type, keys)) else set(map(type, keys))
    if len(kinds) == 1:
        return _of_kind(keys, next(iter(kinds)))
    by_kind: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        by_kind.setdefault(_shape(key), []).append(place)
    out = np.empty(len(keys), np.uint64)
    for kind, places in by_kind.items():
        out[places] = _of_kind([keys[place] for place in places], kind)
    return out


def groups_of(hashes: Hashes, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group, 0 … max_parallelism - 1, of each hash. Groups are ranges: what is sorted by hash is sorted by group."""
    return ((hashes >> _S32) * np.uint64(max_parallelism) >> _S32).astype(np.int32)


def first_hash(group: int, max_parallelism: int) -> int:
    """Return the least hash of a key group; that of the group behind the last one is 2**64."""
    return -(-(group << 32) // max_parallelism) << 32


def groups_of_task(task: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Return the first key group of a task, and the one behind its last.

    Raises:
        DefinitionError: there are more tasks than groups, or more groups than there may be.
    """
    if not 0 < max_parallelism <= MAX_PARALLELISM:
        raise DefinitionError(
            f"max parallelism {max_parallelism}",
            next=f"give 1 to {MAX_PARALLELISM}; {DEFAULT_MAX_PARALLELISM} is usual",
        )
    if not 0 < parallelism <= max_parallelism:
        raise DefinitionError(
            f"{parallelism} tasks share {max_parallelism} key groups",
            next=f"set the parallelism to 1 … {max_parallelism}; a key group is never split",
        )
    return -(-task * max_parallelism // parallelism), -(-(task + 1) * max_parallelism // parallelism)


# --- values to hashes ---------------------------------------------------------------------------------------------------


def _mixed(words: Hashes, kind: KeyKind) -> Hashes:
    """Return the hashes of 64-bit values of a kind."""
    h = (words ^ np.uint64(kind.value)) * _K1
    h ^= h >> _S32
    h *= _K2
    h ^= h >> _S29
    h *= _K3
    return h ^ (h >> _S32)


def hashes_of_numbers(numbers: npt.NDArray[np.int64], kind: KeyKind) -> Hashes:
    """Return the hashes of numbers of a kind."""
    return _mixed(numbers.view(np.uint64), kind)


def combined_hashes(hashes: Sequence[Hashes]) -> Hashes:
    """Return the hashes of composite keys whose parts have these."""
    h = np.full(len(hashes[0]), len(hashes), np.uint64)
    for part in hashes:
        h = _mixed(h * _K3 ^ part, KeyKind.COMPOSITE)
    return h


def _wide(low: Hashes, high: Hashes, kind: KeyKind) -> Hashes:
    """Return the hashes of 128-bit values."""
    return _mixed(_mixed(low, kind) ^ high, kind)


def hashes_of_bytes(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], length: npt.NDArray[np.int64], kind: KeyKind
) -> Hashes:
    """Return the hashes of byte strings, eight bytes of all of them at a time.

    Args:
        data: their bytes; what lies in it before, between and behind them is not looked at.
        start: where each begins.
        length: how many bytes each has.
    """
    h = np.empty(len(length), np.uint64)
    late = np.flatnonzero(start + length > len(data) - 8)
    if len(late):  # those near the end of the buffer have one of their own, with eight bytes behind it
        first = int(start[late].min())
        rest = np.concatenate([data[first:], np.zeros(8, np.uint8)])
        # Mostly they are the last ones.
        ahead = slice(0, late[0]) if late[0] == len(length) - len(late) else np.setdiff1d(np.arange(len(length)), late)
        h[late] = hashes_of_bytes(rest, start[late] - first, length[late], kind)
        h[ahead] = hashes_of_bytes(data, start[ahead], length[ahead], kind)
        return h
    words = words_in(data)
    for first in range(0, len(length), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        h[some] = _of_some(words, start[some], length[some], kind)
    for place in np.flatnonzero(length > _LONG).tolist():
        digest = hashlib.blake2b(data[start[place] : start[place] + length[place]].tobytes(), digest_size=8).digest()
        h[place] = _mixed(np.frombuffer(digest, "<u8"), kind)[0]
    return h


def _of_some(words: Hashes, start: npt.NDArray[np.int64], length: npt.NDArray[np.int64], kind: KeyKind) -> Hashes:
    """Return the hashes of byte strings, few enough that what is made on the way stays in the processor's cache; those of long ones are any."""
    h = length.astype(np.uint64) * _K1 ^ np.uint64(kind.value)
    shortest, longest = int(length.min()), int(length.max())
    live = np.arange(len(length))
    for at in range(0, min(longest, _LONG), 8):
        if at < shortest:
            word = words[at:][start]
            if at + 8 > shortest:
                word &= _MASK[shortest - at] if shortest == longest else _MASK[np.minimum(length - at, 8)]
            h ^= word
            h *= _K2
            h ^= np.right_shift(h, _S29, out=word)
            continue
        live = live[length[live] > at]
        x = (h[live] ^ (words[start[live] + at] & _MASK[np.minimum(length[live] - at, 8)])) * _K2
        h[live] = x ^ (x >> _S29)
    return _mixed(h, kind)


# --- Python values ------------------------------------------------------------------------------------------------------


def _shape(key: Any) -> Any:
    return (tuple, len(key)) if type(key) is tuple else type(key)


def _of_kind(keys: Sequence[Any], kind: Any) -> Hashes:
    """Return the hashes of keys of one shape."""
    if kind is str:
        return _of_texts(keys)
    if kind is int:
        return _of_integers(keys)
    if type(kind) is tuple and kind[1]:
        return combined_hashes([hashes_of(part) for part in zip(*keys, strict=True)])
    if kind is bytes:
        return _of_strings(keys, KeyKind.BYTES)
    if kind is float:
        return _mixed(float_words(np.array(keys, np.float64)), KeyKind.FLOAT)
    if kind is Decimal and all(key.is_finite() for key in keys):
        whole = [_unscaled(key) for key in keys]
        low = np.array([number & _LOW for number in whole], np.uint64)
        return _wide(low, np.array([number >> 64 & _LOW for number in whole], np.uint64), KeyKind.DECIMAL)
    if kind is type(None):
        return np.zeros(len(keys), np.uint64)
    words = _words(keys, kind)
    if words is None:
        return _of_strings(list(map(encode_key, keys)), KeyKind.OTHER)
    return _mixed(np.array(words[1], np.int64).view(np.uint64), words[0])


def _words(keys: Sequence[Any], kind: Any) -> tuple[KeyKind, list[int]] | None:
    """Return kind and value of keys that are a whole number of something."""
    if kind is bool:
        return KeyKind.BOOL, list(map(int, keys))
    if kind is date:
        return KeyKind.DATE, [key.toordinal() - _FIRST_DAY for key in keys]
    if kind is datetime:
        return KeyKind.TIMESTAMP, [(key - (_EPOCH if key.tzinfo is None else _EPOCH_UTC)) // _MICRO for key in keys]
    if kind is timedelta:
        return KeyKind.DURATION, [key // _MICRO for key in keys]
    if kind is time:
        whole = [((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond for key in keys]
        return KeyKind.TIME, whole
    return None


def _of_texts(keys: Sequence[str]) -> Hashes:
    whole = "".join(keys)
    if whole.isascii():
        ends = _ends(keys)
        return hashes_of_bytes(np.frombuffer(whole.encode(), np.uint8), ends[:-1], np.diff(ends), KeyKind.TEXT)
    try:
        return _of_strings([key.encode() for key in keys], KeyKind.TEXT)
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"a key is a text that is not valid Unicode: {error.object[:40]!r}",
            next='clean it first, such as text.encode("utf-8", "replace").decode()',
        ) from None


def _of_strings(keys: Sequence[bytes], kind: KeyKind) -> Hashes:
    ends = _ends(keys)
    return hashes_of_bytes(np.frombuffer(b"".join(keys), np.uint8), ends[:-1], np.diff(ends), kind)


def _ends(keys: Sequence[bytes] | Sequence[str]) -> npt.NDArray[np.int64]:
    ends = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)), out=ends[1:])
    return ends


def _of_integers(keys: Sequence[int]) -> Hashes:
    try:
        return _mixed(np.array(keys, np.int64).view(np.uint64), KeyKind.INT)
    except OverflowError:
        pass
    fits = np.array([-(1 << 63) <= key < 1 << 64 for key in keys])
    out = np.empty(len(keys), np.uint64)
    out[fits] = _mixed(np.array([key & _LOW for key in np.array(keys, object)[fits]], np.uint64), KeyKind.INT)
    out[~fits] = _of_strings([str(key).encode() for key in np.array(keys, object)[~fits]], KeyKind.INT)
    return out


def _unscaled(key: Decimal) -> int:
    """Return a decimal's digits as a whole number: what Arrow keeps in a column of one scale."""
    sign, digits, _ = key.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number


# --- Arrow columns ------------------------------------------------------------------------------------------------------


def _column_hashes(column: pa.Array) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    if pa.types.is_dictionary(column.type):
        return _dictionary_hashes(column)
    out = _valid_hashes(column)
    if column.null_count:
        out[flags_in(column.is_null())] = 0
    return out


def _dictionary_hashes(column: pa.DictionaryArray) -> Hashes:
    # One more hash stands behind those of the dictionary: that of null.
    of_value: Hashes = np.append(_column_hashes(column.dictionary), np.zeros(1, np.uint64))
    codes = numbers_in(column.indices.cast(pa.int64()).fill_null(len(of_value) - 1))
    result: Hashes = of_value[codes]
    return result


def _valid_hashes(column: pa.Array) -> Hashes:
    """Return the hashes of a column's values; what stands at the place of a null does not matter."""
    kind, n = column.type, len(column)
    if pa.types.is_null(kind):
        return np.zeros(n, np.uint64)
    if pa.types.is_boolean(kind):
        return _mixed(flags_in(column.fill_null(False)).astype(np.uint64), KeyKind.BOOL)
    if pa.types.is_integer(kind):
        wide = pa.uint64() if kind == pa.uint64() else pa.int64()
        return _mixed(numbers_in(column.cast(wide)).view(np.uint64), KeyKind.INT)
    if pa.types.is_floating(kind):
        return _mixed(float_words(numbers_in(column.cast(pa.float64()))), KeyKind.FLOAT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_hashes(column, KeyKind.TEXT)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        binary = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else column
        return _text_hashes(binary, KeyKind.BYTES)
    if pa.types.is_decimal128(kind):
        limbs = np.frombuffer(column.buffers()[1], "<u8")[2 * column.offset : 2 * (column.offset + n)].reshape(n, 2)
        return _wide(limbs[:, 0].astype(np.uint64), limbs[:, 1].astype(np.uint64), KeyKind.DECIMAL)
    if pa.types.is_date32(kind):
        return _mixed(numbers_in(column.cast(pa.int32()).cast(pa.int64())).view(np.uint64), KeyKind.DATE)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        of = KeyKind.TIMESTAMP if pa.types.is_timestamp(kind) else KeyKind.DURATION
        return _mixed(_micros(column, kind.unit), of)
    if pa.types.is_time(kind):
        whole = column.cast(pa.int32()) if pa.types.is_time32(kind) else column
        return _mixed(_micros(whole, kind.unit), KeyKind.TIME)
    raise DefinitionError(
        f"a column of type {kind} cannot be a key", next="give its parts as several keys, or a text made of it"
    )


def _text_hashes(column: pa.Array, kind: KeyKind) -> Hashes:
    _, offsets, data = column.buffers()
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if not len(column):
        return np.empty(0, np.uint64)
    numbers = np.frombuffer(offsets, np.int64 if wide else np.int32)
    ends = numbers[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return hashes_of_bytes(np.frombuffer(b"" if data is None else data, np.uint8), ends[:-1], np.diff(ends), kind)


def _micros(column: pa.Array, unit: str) -> Hashes:
    counts = numbers_in(column.cast(pa.int64()))
    micros = counts // 1000 if unit == "ns" else counts * _EPOCH_UNITS[unit]
    result: Hashes = micros.view(np.uint64)
    return result


def float_words(values: npt.NDArray[np.float64]) -> Hashes:
    """Return the bits of floating point numbers, NaN and zero in one form each."""
    whole = values + 0.0
    whole[whole != whole] = np.nan
    return whole.view(np.uint64)
