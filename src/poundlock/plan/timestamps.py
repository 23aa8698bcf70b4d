"""Event time by a user's Python function of a record, in a Python stage of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from poundlock.errors import DefinitionError
from poundlock.plan.sql import visible
from poundlock.stream.nodes import PythonNode, WatermarkNode

__all__ = ["AssignTime", "timestamps"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AssignTime:
    """Puts a record's event time, ms since 1970, into a column; None stays None.

    Args:
        step: id of the step, for errors.
        function: the user's.
        column: the column.
    """

    step: str
    function: Callable[[dict[str, Any]], Any]
    column: str

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        return {**record, self.column: self._ms(self.function(record))}

    def _ms(self, value: Any) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // _MS
        raise DefinitionError(
            f"{self.step}: the timestamp assigner gave {value!r}",
            next="return a whole number of milliseconds since 1970, or a datetime (UTC where it has no zone)",
        )


_MS = timedelta(milliseconds=1)


def timestamps(frame: DataFrame, node: WatermarkNode) -> PythonNode:
    """Return the step that runs a strategy's function over a frame's rows."""
    strategy = node.strategy
    assert callable(strategy.timestamp)
    fields = [f for f in frame.schema.fields if f.name in visible(frame) and f.name != strategy.column]
    columns = [*(f"`{f.name}` {f.dataType.simpleString()}" for f in fields), f"`{strategy.column}` bigint"]
    assign = AssignTime(node.id, strategy.timestamp, strategy.column)
    return PythonNode(node.id, list(node.inputs), "map", assign, ", ".join(columns), {})
