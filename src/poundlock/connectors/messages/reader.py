"""Task's half: the rows of a file of an inbox, decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.arguments import MAPPING, NAMES, check_kind, refuse_without_effect
from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.messages.inbox import ID, read_file
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.formats.chunk import Batch, Chunk, FileOrigin
from poundlock.formats.decode import Decoder, decoder
from poundlock.formats.reject import Reject
from poundlock.storage import Storage, open_storage

Format = Literal["raw", "json", "csv", "avro"]


@dataclass(frozen=True)
class Payload:
    """How the binary column `value` of received rows is read, and which of the others stand beside it.

    Args:
        columns: what a received row has; `value` among them.
        format: "raw", "json", "csv" or "avro".
        schema: DDL of what "json" and "csv" have in a value; None for the others.
        options: of the format.
        metadata: other columns that stand beside those of the format; with "raw" all do.
        needs_id: what the id of a message is called, where one without it is rejected; "" = no message needs one.

    Raises:
        DefinitionError: the format has no such option, or the schema cannot be read.
    """

    columns: pa.Schema
    format: Format = "raw"
    schema: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Sequence[str] = ()
    needs_id: str = ""

    def __post_init__(self) -> None:
        self.decoder()

    def decoder(self) -> Decoder | None:
        """Return what decodes `value`; None where it stays as it is."""
        return None if self.format == "raw" else decoder(self.format, self.schema, **self.options)

    def result(self) -> pa.Schema:
        """Return the columns of the rows that tasks get."""
        made = self.decoder()
        if made is None:
            return self.columns
        beside = [self.columns.field(name) for name in self.metadata if name not in made.schema().names]
        return pa.schema([*made.schema(), *beside])


def payload_of(
    owner: str,
    columns: pa.Schema,
    format: Format,
    schema: str | None,
    options: Mapping[str, Any] | None,
    metadata: Sequence[str],
    needs_id: str = "",
) -> Payload:
    """Return how a source, by its name for people, reads its messages. Raises DefinitionError for arguments that do not fit each other."""
    check_kind(owner, NAMES, {"metadata": metadata})
    check_kind(owner, MAPPING, {"format_options": options}, optional=True)
    beside = (metadata,) if isinstance(metadata, str) else tuple(metadata)
    if format not in ("raw", "json", "csv", "avro"):
        raise DefinitionError(f"format={format!r} is not known", next="use one of raw, json, csv, avro")
    for name in beside:
        if name not in columns.names or name == "value":
            raise DefinitionError(
                f"{owner}: a message has no {name!r} to stand beside its value",
                next=did_you_mean(name, columns.names, f"use some of {', '.join(columns.names[1:])}"),
            )
    if format == "raw":
        given: dict[str, tuple[object, object]]
        given = {"schema": (schema, None), "format_options": (dict(options or {}), {}), "metadata": (beside, ())}
        refuse_without_effect(owner, given, because='format is "raw", which has all columns of a message')
    return Payload(columns, format, schema, dict(options or {}), beside, needs_id)


class InboxReader:
    """Reads the splits of one task."""

    def __init__(self, payload: Payload, context: ReaderContext) -> None:
        self._payload, self._context = payload, context
        self._decoder = payload.decoder()
        self._storages: dict[str, Storage] = {}

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a file."""
        root, name = split.payload["root"], split.payload["file"]
        storage = self._storages.setdefault(root, open_storage(root))
        table = read_file(storage, name)
        wanted = self._payload.columns.names if self._decoder is None else ["value", *self._payload.metadata]
        rows = np.arange(table.num_rows)
        if self._payload.needs_id and table.column(ID).null_count:
            rows = self._with_id(table, f"{root}/{name}")
            table = table.take(pa.array(rows))
        first = 0
        for batch in table.select(wanted).replace_schema_metadata(None).to_batches():
            chunk: Chunk = Batch(batch, FileOrigin(f"{root}/{name}", rows[first : first + batch.num_rows]))
            first += batch.num_rows
            if self._decoder is not None:
                chunk = self._decoder.decode(chunk, self._context.reject, self._context.form)
            if len(chunk):
                yield chunk

    def _with_id(self, table: pa.Table, file: str) -> npt.NDArray[np.int64]:
        """Reject the rows without an id; return the numbers of the others."""
        has = np.asarray(table.column(ID).is_valid())
        why = f"the message has no {self._payload.needs_id}, by which a second delivery is known"
        for row in np.flatnonzero(~has).tolist():
            value = table.column("value")[row].as_py()
            self._context.reject(Reject(why, value or b"", {"file": file, "offset": row}))
        return np.flatnonzero(has)
