"""Rows that are written into partitions: the folder that each belongs into, named as Flink names it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, texts_of
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import cast_to
from poundlock.sql.formats.format import FormatColumn
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
BUCKET = "$bucket"
"""The column of a row's folder."""
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
"""What Flink writes as % and two digits in the name of a partition's folder."""


@dataclass(frozen=True)
class PartitionedProgram:
    """Records of rows, or columns of files, and the folder that each row belongs into.

    Args:
        encoder: of records; None where files have columns.
        columns: of files, under the names that they have there.
    """

    encoder: Any
    partitions: tuple[Field, ...]
    context: EvaluationContext
    table: str
    columns: tuple[FormatColumn, ...] = ()
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a record for each row, or its columns."""
        if self.encoder is None:
            columns, names = [rows.column(each.column) for each in self.columns], [each.name for each in self.columns]
        else:
            columns, names = [self.encoder.encode(rows)], ["value"]
        if self.partitions:
            columns.append(self.folders(rows))
            names.append(BUCKET)
        return pa.RecordBatch.from_arrays(columns, names), None

    def folders(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the folder of the partition that each row is of."""
        parts = []
        for each in self.partitions:
            text = evaluate(cast_to(each.ref, STRING), rows, self.context)
            coded = text.dictionary_encode()
            named = texts_of([_folder(each.name, value) for value in coded.dictionary.to_pylist()])
            none = texts_of([f"{_escaped(each.name)}={DEFAULT_PARTITION}"])
            indices = coded.indices
            if indices.null_count:
                indices = pc.fill_null(indices, pa.array([len(named)], indices.type)[0])
                named = pa.concat_arrays([named, none])
            parts.append(named.take(indices))
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, texts_of(["/"])[0])

    def describe(self) -> str:
        """Return it in words."""
        return f"writes records of {self.table}"


def replaced_buckets(table: TableContext, partitions: Sequence[Field]) -> list[str]:
    """Return the folders that INSERT OVERWRITE empties in any case: the whole table, or the partition that it names whole."""
    static = dict(table.static)
    if not all(each.name in static for each in partitions):
        return []
    program = PartitionedProgram(None, tuple(partitions), EvaluationContext(table.zone), table.name.name)
    columns = [
        evaluate(
            cast_to(static[each.name], each.type), pa.RecordBatch.from_arrays([pa.nulls(1)], ["one"]), program.context
        )
        for each in partitions
    ]
    if not partitions:
        return [""]
    return [str(program.folders(pa.RecordBatch.from_arrays(columns, [each.column for each in partitions]))[0].as_py())]


def _folder(name: str, value: str) -> str:
    return f"{_escaped(name)}={_escaped(value) if value.strip() else DEFAULT_PARTITION}"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
