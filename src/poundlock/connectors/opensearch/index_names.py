"""Names of indices as Flink writes them: a plain name, or one made of columns: "orders-{day|yyyy-MM}", "{customer}"."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.files.buckets.assigners import DatePattern
from poundlock.connectors.files.buckets.time_buckets import SlotTable
from poundlock.errors import DefinitionError
from poundlock.formats.arrays import indices_of, numbers_in, texts_of, with_nulls
from poundlock.formats.convert import FIRST_US, LAST_US

_PART = re.compile(r"\{([^{}|]*)(?:\|([^{}]*))?\}")
_NOW = "now()"
_NO_TIME = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A part of a name that a column gives.

    Args:
        column: its name; "now()" for the begin of the checkpoint.
        pattern: Java date pattern; "" = the value as text.
    """

    column: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class IndexName:
    """A name of an index, in parts: texts, and what columns give."""

    parts: tuple[str | IndexPart, ...]

    @classmethod
    def parse(cls, text: str) -> IndexName:
        """Return the name that a text says. Raises DefinitionError where it cannot be one."""
        parts: list[str | IndexPart] = []
        end = 0
        for match in _PART.finditer(text):
            column, pattern = match[1].strip(), (match[2] or "").strip()
            if not column:
                raise _refused(text, "a part of it names no column")
            if pattern:
                DatePattern.parse(pattern)
            elif column == _NOW or match[2] is not None:
                raise _refused(text, f"{{{column}}} has no date pattern")
            parts += [text[end : match.start()], IndexPart(column, pattern)]
            end = match.end()
        parts.append(text[end:])
        made = tuple(part for part in parts if part != "")
        plain = "".join(part for part in made if isinstance(part, str))
        if not made or re.search(r'[\\/*?"<>| ,#:{}A-Z]', plain) or text.startswith(("-", "_", "+")):
            raise _refused(text, "it is no name of an index: small letters, digits and - _ . are")
        return cls(made)

    @property
    def fixed(self) -> str | None:
        """The name, where all rows go to one index; None where columns make it."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return [part.column for part in self.parts if isinstance(part, IndexPart) and part.column != _NOW]

    @property
    def uses_now(self) -> bool:
        """Whether it depends on when a checkpoint was begun."""
        return any(isinstance(part, IndexPart) and part.column == _NOW for part in self.parts)

    def check(self, name: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless columns of these types, for the sink of this name, can make it."""
        for part in self.parts:
            if isinstance(part, IndexPart) and part.column != _NOW and part.column in schema.names:
                kind = schema.field(part.column).type
                is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
                is_plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
                if part.pattern and not is_time:
                    raise DefinitionError(
                        f"sink {name!r}: {{{part.column}|{part.pattern}}} in index= needs a date or time, and column"
                        f" {part.column!r} is {kind}",
                        next=f"cast it before the sink, or write {{{part.column}}}",
                        participant=name,
                    )
                if not part.pattern and not (is_plain or is_time):
                    raise DefinitionError(
                        f"sink {name!r}: column {part.column!r} in index= is {kind}, which makes no name",
                        next="name a column of text, whole numbers or times",
                        participant=name,
                    )

    def of(self, batch: pa.RecordBatch, begun_ms: int) -> pa.Array:
        """Return the name for each row, null where a column is."""
        texts = [self._texts(part, batch, begun_ms) for part in self.parts]
        return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, texts_of([""])[0])

    def _texts(self, part: str | IndexPart, batch: pa.RecordBatch, begun_ms: int) -> pa.Array:
        rows = batch.num_rows
        if isinstance(part, str):
            return texts_of([part]).take(indices_of(np.zeros(rows, np.int64)))
        if part.column == _NOW:
            times = indices_of(np.full(rows, begun_ms)).view(pa.timestamp("ms"))
        else:
            times = batch.column(part.column)
        return _formatted(times, part.pattern) if part.pattern else times.cast(pa.string())


def _formatted(times: pa.Array, pattern: str) -> pa.Array:
    """Return times in UTC by a pattern, null where they are, and where no calendar has them."""
    millis = times.cast(pa.timestamp("ms"), safe=False).view(pa.int64())
    numbers = numbers_in(millis.fill_null(_NO_TIME))
    valid = (numbers >= FIRST_US // 1000) & (numbers <= LAST_US // 1000)
    known = np.where(valid, numbers, 0).astype(np.float64)
    if not len(known):
        return pa.nulls(0, pa.string())
    table = SlotTable(DatePattern.parse(pattern), "UTC", 1000.0)
    codes = table.lookup(known, float(known.min()), float(known.max()))
    texts = texts_of(table.names).take(indices_of(np.broadcast_to(np.asarray(codes, np.int64), len(known))))
    return texts if valid.all() else with_nulls(texts, valid)


def _refused(text: str, why: str) -> DefinitionError:
    return DefinitionError(f"index={text!r}: {why}", next='write index="orders", or index="orders-{day|yyyy-MM}"')
