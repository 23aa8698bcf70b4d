"""Columns computed of columns by a program of ours: what Flink calls a calc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from poundlock.formats import convert
from poundlock.formats.arrays import indices_of
from poundlock.formats.chunk import Batch, Chunk, subset
from poundlock.operators.chain import MAIN, Emit
from poundlock.operators.time_values import StreamTime
from poundlock.stream.nodes import Clocked, JudgesRows, RowProgram


@dataclass(frozen=True)
class Calc:
    """A batch in, a batch out.

    Args:
        hidden: columns that go with their rows untouched, where there are any.
    """

    program: RowProgram
    hidden: Sequence[str] = ()

    @property
    def leaves_out(self) -> bool:
        """Whether rows that do not come out count as filtered."""
        return self.program.leaves_out

    def at(self, clock_ms: int, watermarks: Mapping[str, StreamTime]) -> Calc:
        """Return the same for a checkpoint.

        Args:
            clock_ms: when it began, ms since 1970.
            watermarks: behind the checkpoint before, by the id of a step.
        """
        program = self.program.at(clock_ms) if isinstance(self.program, Clocked) else self.program
        if isinstance(program, JudgesRows) and program.watermark_of is not None:
            known = watermarks.get(program.watermark_of)
            program = program.behind(None if known is None else known.watermark)
        return replace(self, program=program)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Compute the rows of one chunk and emit them."""
        batch = convert.to_batch(chunk)
        rows, places = self.program.run(batch.batch)
        origin = batch.origin if places is None else subset(batch.origin, places)
        for name in self.hidden:
            if name in batch.batch.schema.names:
                column = batch.batch.column(name)
                rows = rows.append_column(name, column if places is None else column.take(indices_of(places)))
        emit(MAIN, Batch(rows, origin))
