"""What tasks compute for tables of Kafka: rows of records, and records of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of, texts_of, valid_in
from poundlock.operators.columns.changelog.signed import taken
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.kafka.metadata import KafkaMetadataColumn
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.formats.format import RecordDecoder, RecordEncoder

KEY, VALUE = "key", "value"
_UPSERTED = texts_of(["+U", "-D"])
_REPLACED, _GONE = texts_of(["-U"])[0], texts_of(["-D"])[0]


@dataclass(frozen=True)
class KafkaDecodeProgram:
    """Rows of records: columns of the value, of the key and of what a record has beside them.

    Args:
        names: the columns that come out.
        is_upsert: whether a record is the newest row of its key, and one without a value says that the row is gone.
    """

    value: RecordDecoder
    key: RecordDecoder | None
    names: tuple[str, ...]
    metadata: tuple[KafkaMetadataColumn, ...]
    context: EvaluationContext
    table: str
    is_upsert: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether each row is one record, and records without a row are left out."""
        return self.value.leaves_out and (self.key is None or self.key.leaves_out)

    @property
    def is_updating(self) -> bool:
        """Whether rows have kinds of change."""
        return self.is_upsert or self.value.is_updating

    def run(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which record each is."""
        decode = self._upserts if self.is_upsert else self._values
        columns, places = decode(records.column(VALUE))
        if places is not None:
            records = records.take(indices_of(places))
        if self.key is not None:
            keys, of_key = self.key.decode(records.column(KEY), self.names)
            if of_key is not None:  # a record whose key is none is no row
                some = indices_of(of_key)
                columns, records = {name: column.take(some) for name, column in columns.items()}, records.take(some)
                places = of_key if places is None else places[of_key]
            for name, column in zip(keys.schema.names, keys.columns, strict=True):
                columns[name] = self._key_column(columns, name, column)
        for each in self.metadata:
            name = each.field.column
            shown = pa.RecordBatch.from_arrays([columns[name]], [name]) if each.key else records
            columns[name] = each.read(shown, self.context)
        names = [*self.names, *([ROW_KIND] if self.is_updating else [])]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names), places

    def _values(self, values: pa.Array) -> tuple[dict[str, pa.Array], Numbers | None]:
        """Return columns of values, and of which record each row is."""
        rows, places = self.value.decode(values, self.names)
        return dict(zip(rows.schema.names, rows.columns, strict=True)), places

    def _upserts(self, values: pa.Array) -> tuple[dict[str, pa.Array], Numbers | None]:
        """Return columns of values with the kind of change, and of which record each row is; those without a value have a row, too."""
        valid = valid_in(values)
        if valid is None:
            columns, places = self._values(values)
            count = len(values) if places is None else len(places)
            columns[ROW_KIND] = _kinds(np.zeros(count, np.bool_))
            return columns, places
        there, gone = np.flatnonzero(valid), np.flatnonzero(~valid)
        columns, of = self._values(values.take(indices_of(there)))
        there = there if of is None else there[of]
        places = np.concatenate([there, gone])
        order = np.argsort(places)
        is_gone = order >= len(there)
        rows = np.where(is_gone, -1, order)
        columns = {
            name: taken(column, rows) if len(column) else pa.nulls(len(rows), column.type)
            for name, column in columns.items()
        }
        columns[ROW_KIND] = _kinds(is_gone)
        return columns, places[order]

    def _key_column(self, columns: dict[str, pa.Array], name: str, of_key: pa.Array) -> pa.Array:
        """Return a column of the key: what both have is read of the value, where there is one."""
        of_value = columns.get(name)
        if of_value is None:
            return of_key
        return pc.if_else(pc.equal(columns[ROW_KIND], _GONE), of_key, of_value) if self.is_upsert else of_value

    def describe(self) -> str:
        """Return it in words."""
        return f"reads {'upserts' if self.is_upsert else 'records'} of {self.table}"


def _kinds(is_gone: Flags) -> pa.Array:
    return _UPSERTED.take(column_of(is_gone.astype(np.int64), pa.int64()))


@dataclass(frozen=True)
class KafkaEncodeProgram:
    """Records of rows: value and key, and further columns that a record takes.

    Args:
        is_upsert: whether a row that is taken away is a record without a value.
    """

    value: RecordEncoder
    key: RecordEncoder | None
    metadata: tuple[KafkaMetadataColumn, ...]
    context: EvaluationContext
    is_upsert: bool
    table: str

    @property
    def leaves_out(self) -> bool:
        """Whether rows before an update are left out."""
        return self.is_upsert

    @property
    def schema(self) -> pa.Schema:
        """The columns that the sink takes."""
        fields = [pa.field(VALUE, pa.binary()), *([pa.field(KEY, pa.binary())] if self.key is not None else [])]
        return pa.schema([*fields, *(pa.field(m.shows.column, m.shows.type.arrow) for m in self.metadata)])

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a record for each row; of an upsert those before an update are left out."""
        places: Numbers | None = None
        changes = self.is_upsert and ROW_KIND in rows.schema.names
        if changes:
            kept = np.flatnonzero(flags_in(pc.not_equal(rows.column(ROW_KIND), _REPLACED)))
            if len(kept) < rows.num_rows:
                rows, places = rows.take(indices_of(kept)), kept
        values = self.value.encode(rows)
        if changes:
            values = pc.if_else(pc.equal(rows.column(ROW_KIND), _GONE), pa.nulls(len(values), values.type), values)
        columns = [values, *([] if self.key is None else [self.key.encode(rows)])]
        columns += [each.written(rows, self.context) for each in self.metadata]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), places

    def describe(self) -> str:
        """Return it in words."""
        return f"writes records of {self.table}"
