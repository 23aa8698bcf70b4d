"""The blackhole connector: rows are counted and go nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from poundlock.checkpoint.participant import JSON, Committed, Kind, WriterContext
from poundlock.connectors.keeps_nothing import KeepsNothing
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.schemas import schema_of

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk


@dataclass(frozen=True)
class BlackholeSink(KeepsNothing):
    """Takes rows and keeps nothing but their number."""

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return "blackhole: rows are counted and go nowhere"

    def open_writer(self, context: WriterContext) -> _Counter:
        """Begin to count."""
        return _Counter()

    def commit(self, committable: JSON) -> Committed:
        """Tell how many rows there were; nothing else happens, however often."""
        return Committed({"rows": committable["rows"]})


class _Counter:
    def __init__(self) -> None:
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        self._rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        return [{"v": 1, "rows": self._rows}] if self._rows else []

    def abandon(self) -> None:
        self._rows = 0


class BlackholeTable:
    """Counts rows."""

    def source(self, table: TableContext) -> TableSource:
        raise OptionError(
            f"{table.name.name}: blackhole is no source", next="read from another table", kind="unsupported_query"
        )

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        options.finish("blackhole")
        names = tuple(f.column for f in table.fields)
        step = CalcStep(names, tuple(f.ref for f in table.fields))
        program = CalcProgram((step,), EvaluationContext(table.zone))
        return TableSink(BlackholeSink(), program, schema_of(table.fields), takes="retract")
