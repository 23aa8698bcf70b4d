"""Rows as what is staged for Redis: the key, whether it is deleted, and the values, each as the bytes that Redis will have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError

_COLUMN = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class KeyTemplate:
    """The name of a row's key, such as "user:{id}"."""

    text: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that are part of it."""
        return tuple(_COLUMN.findall(self.text))

    def check(self) -> None:
        """Raise DefinitionError if it has other braces than those of columns."""
        if not isinstance(self.text, str) or not self.text or re.search(r"[{}]", _COLUMN.sub("", self.text)):
            raise DefinitionError(f"key={self.text!r} names no key", next='write key="user:{id}"')

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the keys of rows; null where a column of it is."""
        pieces = _COLUMN.split(self.text)
        parts = [
            as_bytes(batch.column(piece)) if i % 2 else pa.scalar(piece.encode(), pa.large_binary())
            for i, piece in enumerate(pieces)
        ]
        if len(parts) == 1:
            return pa.array([pieces[0].encode()] * batch.num_rows, pa.large_binary())
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def as_bytes(column: pa.Array) -> pa.Array:
    """Return values as bytes: text and bytes as they are, all else as its text. Raises TypeError for what has none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_nested(kind):
        raise TypeError(str(kind))
    if not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        column = pc.cast(column, pa.large_string())
    return pc.cast(column, pa.large_binary())


def items_of(keys: pa.Array, gone: pa.Array | None, values: Sequence[pa.Array]) -> list[bytes]:
    """Return what is staged of rows, one behind the other: the key, "1" for a deletion, each value behind a "+", or "-" for null."""
    flags = [b"0"] * len(keys) if gone is None else np.where(_flags(gone), b"1", b"0").tolist()
    return list(chain.from_iterable(zip(keys.to_pylist(), flags, *map(_marked, values), strict=True)))


def _marked(value: pa.Array) -> list[bytes]:
    plus, end = pa.scalar(b"+", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    marked = pc.binary_join_element_wise(plus, value, end)
    return list(pc.fill_null(marked, pa.scalar(b"-", pa.large_binary())).to_pylist())


def _flags(gone: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(gone, False).to_numpy(zero_copy_only=False), np.bool_)
