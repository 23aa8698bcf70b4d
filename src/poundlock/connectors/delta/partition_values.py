"""Values of partitions as the texts that Delta's log has, a column at a time, and back."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_KEPT = " !@$&()+,;-._~"  # in names of folders, besides letters and digits of ASCII


def texts_of(column: pa.Array) -> pa.Array:
    """Return values of one column of partitions as texts; null stays null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        # With Z no reader can take it for a time of its own zone.
        whole = pc.strftime(
            column.cast(pa.timestamp("us", kind.tz)), format="%Y-%m-%dT%H:%M:%S" if kind.tz else "%Y-%m-%d %H:%M:%S"
        )
        return pc.binary_join_element_wise(whole, pa.scalar("Z" if kind.tz else ""), pa.scalar(""))
    return column.cast(pa.string())


def value_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value that the log has for a file's partition. Raises pyarrow.ArrowInvalid for a text that is none."""
    if text is None or text == "":  # the protocol: an empty text is null
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):
        plain = text.removesuffix("Z").replace("T", " ")
        return pa.scalar(plain).cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode(), kind)
    return pa.scalar(text).cast(kind)


def folder_of(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, as Hive names them; "" where a table has no partitions. Readers go by the log, not by it."""
    return "/".join(f"{quote(name, safe=_KEPT)}={_word(text)}" for name, text in values.items())


def _word(text: str | None) -> str:
    return _NO_VALUE if text is None else quote(text, safe=_KEPT)
