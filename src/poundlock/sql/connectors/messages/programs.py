"""What tasks compute for tables of messages: rows of messages, and messages of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, indices_of, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.messages.fields import MessageColumn
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import cast_to
from poundlock.sql.formats.format import RecordDecoder, RecordEncoder
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING

VALUE = "value"
"""The column with the body of a message."""


@dataclass(frozen=True)
class MessageDecodeProgram:
    """Rows of messages: columns of the body, and of what a message has beside it.

    Args:
        names: the columns that come out.
    """

    value: RecordDecoder
    names: tuple[str, ...]
    metadata: tuple[MessageColumn, ...]
    context: EvaluationContext
    table: str

    @property
    def leaves_out(self) -> bool:
        """Whether each row is one message, and messages without a row are left out."""
        return self.value.leaves_out

    def run(self, messages: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which message each is."""
        beside = {each.field.column for each in self.metadata}
        wanted = [name for name in self.names if name not in beside]
        rows, places = self.value.decode(messages.column(VALUE), wanted)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if places is not None:
            messages = messages.take(indices_of(places))
        columns |= {each.field.column: each.read(messages, self.context) for each in self.metadata}
        names = [*self.names, *([ROW_KIND] if self.value.is_updating else [])]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names), places

    def describe(self) -> str:
        """Return it in words."""
        return f"reads messages of {self.table}"


@dataclass(frozen=True)
class JoinedKey:
    """A text that the values of some columns make, one behind the other; of a NULL there is nothing.

    Args:
        column: what the sink calls it.
        between: stands between two values.
    """

    column: str
    fields: tuple[Field, ...]
    between: str

    def of(self, rows: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
        """Return the text of each row."""
        texts = [evaluate(cast_to(field.ref, STRING), rows, context) for field in self.fields]
        return pc.binary_join_element_wise(*texts, texts_of([self.between])[0], null_handling="replace")


@dataclass(frozen=True)
class MessageEncodeProgram:
    """Messages of rows: the body, and further columns that a message takes.

    Args:
        body: the columns that are written into it.
    """

    value: RecordEncoder
    body: tuple[str, ...]
    metadata: tuple[MessageColumn, ...]
    key: JoinedKey | None
    context: EvaluationContext
    table: str

    @property
    def leaves_out(self) -> bool:
        """Whether rows are left out: none is."""
        return False

    @property
    def schema(self) -> pa.Schema:
        """The columns that the sink takes."""
        fields = [pa.field(VALUE, pa.binary())]
        fields += [pa.field(each.shows.column, each.shows.type.arrow) for each in self.metadata]
        return pa.schema([*fields, *([] if self.key is None else [pa.field(self.key.column, pa.string())])])

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a message for each row."""
        kinds = [ROW_KIND] if ROW_KIND in rows.schema.names else []
        columns = [self.value.encode(rows.select([*self.body, *kinds]))]
        columns += [each.written(rows, self.context) for each in self.metadata]
        columns += [] if self.key is None else [self.key.of(rows, self.context)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), None

    def describe(self) -> str:
        """Return it in words."""
        return f"writes messages of {self.table}"
