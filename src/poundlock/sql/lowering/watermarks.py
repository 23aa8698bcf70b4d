"""Watermarks as WATERMARK FOR declares them: the greatest value of an expression so far, without a millisecond less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, functions_of
from poundlock.sql.lowering.programs import CalcStep
from poundlock.stream.nodes import CalcNode, Node, WatermarkNode
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
    """Return the id of the step whose watermark CURRENT_WATERMARK in some steps is, None where none of them has it.

    Args:
        stream: whose rows the steps are given.

    Raises:
        DefinitionError: the rows have no watermark of a table.
    """
    expressions = [each for step in steps for each in (*step.expressions, step.condition) if each is not None]
    if not any("CURRENT_WATERMARK" in functions_of(each) for each in expressions):
        return None
    node = stream
    while isinstance(node, CalcNode) and not node.holds_back_ms:
        (node,) = node.inputs
    if not isinstance(node, WatermarkNode):
        raise DefinitionError(
            "CURRENT_WATERMARK of rows that no table with a WATERMARK FOR gives as they are",
            next="name the table's event time where the table is read",
        )
    return node.id
