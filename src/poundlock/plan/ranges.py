"""A plan over decided ranges, as one batch DataFrame: the same stages as the streaming query, read once and kept nowhere.

Every step is the one of `Lowering`; only where rows come from is another.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from poundlock.plan.lower import Lowering

__all__ = ["RangeLowering"]


class RangeLowering(Lowering):
    """Turns a plan into a batch DataFrame over ranges: those in `reads`, and of split-planned sources those in the directive."""

    streaming = False

    def _reader(self, name: str) -> Any:
        self._use(name)
        return self.spark.read

    def _ticker(self, name: str) -> DataFrame:
        self._use(name)
        return self.spark.range(0, self.parallelism, 1, self.parallelism).selectExpr("id as value")
