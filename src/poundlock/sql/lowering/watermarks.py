"""Watermarks as WATERMARK FOR declares them: the greatest value of an expression so far, without a millisecond less."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.time_graph import keeps_watermark
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, functions_of
from poundlock.sql.lowering.programs import CalcStep
from poundlock.stream.nodes import Node
from poundlock.stream.watermarks import WatermarkOutput


class DelayedWatermarks:
    """The greatest event time so far less a delay, ms; unlike `bounded_out_of_orderness`, rows of just that time are late."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.greatest: int | None = None

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Take the greatest event time of a checkpoint."""
        self.greatest = timestamp if self.greatest is None else max(timestamp, self.greatest)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Say how far event time has come."""
        if self.greatest is not None:
            output.emit_watermark(self.greatest - self.delay_ms)

    def snapshot(self) -> Any:
        """Return the greatest time so far."""
        return self.greatest

    def restore(self, state: Any) -> None:
        """Go on from a greatest time."""
        self.greatest = state


def delay_of(time: str, watermark: Expression) -> int | None:
    """Return by how many ms a watermark is behind a column of event time, None where it is something else."""
    if isinstance(watermark, ColumnRef):
        return 0 if watermark.name == time else None
    if isinstance(watermark, SqlCall) and watermark.function == "CAST" and len(watermark.arguments) == 1:
        return delay_of(time, watermark.arguments[0])
    if (
        isinstance(watermark, SqlCall)
        and watermark.function in ("DATETIME +", "DATETIME -")
        and len(watermark.arguments) == 2
    ):
        before, span = delay_of(time, watermark.arguments[0]), watermark.arguments[1]
        if before is not None and isinstance(span, Literal) and span.type.root == "INTERVAL_DAY_TIME":
            return before + int(span.value) * (1 if watermark.function == "DATETIME -" else -1)
    return None


def watermark_of(steps: Sequence[CalcStep], stream: Node) -> str | None:
    """Return the id of the step whose watermark CURRENT_WATERMARK in some steps is; None where none of them has it, or it has none.

    Args:
        stream: whose rows the steps are given.
    """
    expressions = [each for step in steps for each in (*step.expressions, step.condition) if each is not None]
    if not any("CURRENT_WATERMARK" in functions_of(each) for each in expressions):
        return None
    while not keeps_watermark(stream):
        if not stream.inputs:
            return None
        stream = stream.inputs[0]
    return stream.id


def refuse_watermark(expressions: Iterable[Expression], what: str) -> None:
    """Refuse CURRENT_WATERMARK where nobody knows it.

    Args:
        what: the expressions are of.

    Raises:
        DefinitionError: one has it.
    """
    if any("CURRENT_WATERMARK" in functions_of(each) for each in expressions):
        raise DefinitionError(
            f"CURRENT_WATERMARK in {what}", next="compute it in a sub-query before, or in WHERE or SELECT behind it"
        )
