"""Rows as the bytes of messages: JSON, CSV, or one column as it is. What cannot be a message is handed to `reject`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from poundlock.arguments import check_choices
from poundlock.connectors.column_checks import need_columns
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Chunk, origin_of
from poundlock.formats.convert import row_values, to_batch
from poundlock.formats.encode import CsvEncoder, JsonEncoder
from poundlock.formats.reject import Reject, as_json

EncodedFormat = Literal["json", "csv", "raw"]
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


@dataclass(frozen=True)
class MessageFormat:
    """How a row becomes the bytes of a message.

    Args:
        format: "json" and "csv" write columns, "raw" writes one column of text or bytes as it is.
        value: the columns; None = all, and with "raw" the column `value`.

    Raises:
        DefinitionError: the format is not known, or "raw" is given several columns.
    """

    format: EncodedFormat = "json"
    value: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_choices(self, {"format": ("json", "csv", "raw")})
        if self.format == "raw" and self.value is not None and not isinstance(self.value, str):
            raise DefinitionError('format="raw" writes one column', next='name it: value="payload"')

    @property
    def needed(self) -> Sequence[str]:
        """The columns that rows must have; empty if all there are is written."""
        if self.format == "raw":
            return [str(self.value or "value")]
        return [self.value] if isinstance(self.value, str) else list(self.value or ())

    def check(self, sink: str, columns: Sequence[str], *, also: Sequence[str] = ()) -> None:
        """Raise DefinitionError unless rows of a sink, by its name in the job, have what is written of them, and `also`."""
        need_columns(sink, [*self.needed, *also], columns)

    def encoder(self, reject: Callable[[Reject], None]) -> MessageEncoder:
        """Return what a task encodes with."""
        return MessageEncoder(self, reject)


class MessageEncoder:
    """Encodes the rows of one task."""

    def __init__(self, format: MessageFormat, reject: Callable[[Reject], None]) -> None:
        self._format, self._reject = format, reject
        made = {"json": JsonEncoder, "csv": CsvEncoder}.get(format.format)
        self._encoder = None if made is None else made(list(format.needed) or None)

    def encode(self, chunk: Chunk) -> tuple[list[bytes], pa.RecordBatch]:
        """Return a message for each row that can be one, and those rows, in the same order.

        Raises:
            DefinitionError: the column that is written raw has another type than text or bytes.
        """
        rows = to_batch(chunk)
        batch = rows.batch
        messages, bad = self._raw(batch) if self._encoder is None else self._rows(rows)
        if not bad:
            return messages, batch
        origin = origin_of(rows)
        for row in sorted(bad):
            self._reject(Reject(bad[row], as_json(row_values(batch, row)), origin.at(row)))
        good = np.setdiff1d(np.arange(batch.num_rows), list(bad))
        return messages, batch.take(pa.array(good))

    def refuse(self, rows: pa.RecordBatch, chunk: Chunk, bad: Mapping[int, str]) -> None:
        """Hand over rows that were encoded and cannot be sent, by their number among `rows`, each with the reason."""
        for row in sorted(bad):
            self._reject(Reject(bad[row], as_json(row_values(rows, row)), origin_of(chunk).at(0)))

    def _rows(self, rows: Any) -> tuple[list[bytes], Mapping[int, str]]:
        assert self._encoder is not None
        encoded = self._encoder.encode(rows)
        data, starts = bytes(encoded.data), np.concatenate([[0], encoded.ends + 1])[:-1]
        return [data[a:b] for a, b in zip(starts.tolist(), encoded.ends.tolist(), strict=True)], encoded.bad

    def _raw(self, batch: pa.RecordBatch) -> tuple[list[bytes], Mapping[int, str]]:
        (name,) = self._format.needed
        need_columns("", [name], batch.schema.names)
        column = batch.column(name)
        if not any(fits(column.type) for fits in _TEXTS):
            raise DefinitionError(
                f"column {name!r} of type {column.type} cannot be written raw",
                next='cast it to text before the sink, or say format="json"',
            )
        values = column.to_pylist()
        bad = {row: f"{name} is null" for row, value in enumerate(values) if value is None}
        return [v.encode() if isinstance(v, str) else v for v in values if v is not None], bad
