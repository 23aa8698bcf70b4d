"""The print connector: rows as text on the driver, each with its kind of change."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.print_sink import PrintSink
from poundlock.formats.arrays import Numbers, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING


@dataclass(frozen=True)
class PrintProgram:
    """A line for each row: `+I[red, 1]`."""

    fields: tuple[Field, ...]
    context: EvaluationContext
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the lines."""
        n = rows.num_rows
        kinds = rows.column(ROW_KIND) if ROW_KIND in rows.schema.names else _repeated("+I", n)
        texts = [
            pc.fill_null(evaluate(cast_to(ColumnRef(f.column, f.type), STRING), rows, self.context), _scalar("null"))
            for f in self.fields
        ]
        inner = pc.binary_join_element_wise(*texts, _scalar(", ")) if texts else _repeated("", n)
        lines = pc.binary_join_element_wise(kinds, _scalar("["), inner, _scalar("]"), _scalar(""))
        return pa.RecordBatch.from_arrays([lines], ["value"]), None

    def describe(self) -> str:
        """Return it in words."""
        return "writes lines to print"


def _scalar(text: str) -> pa.Scalar:
    return texts_of([text])[0]


def _repeated(text: str, n: int) -> pa.Array:
    return pa.repeat(_scalar(text), n)


class PrintTable:
    """Prints rows."""

    def source(self, table: TableContext) -> TableSource:
        raise OptionError(
            f"{table.name.name}: print is no source", next="read from another table", kind="unsupported_query"
        )

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        name = options.text("print-identifier")
        to_error = options.flag("standard-error")
        options.finish("print")
        sink = PrintSink("stderr" if to_error else "stdout", name=name or table.name.name, limit=1_000_000)
        program = PrintProgram(table.fields, EvaluationContext(table.zone))
        keyed = tuple(f.column for f in table.fields if f.name in table.definition.primary_key)
        return TableSink(
            sink, program, pa.schema([("value", pa.string())]), takes="upsert" if keyed else "retract", key=keyed
        )
