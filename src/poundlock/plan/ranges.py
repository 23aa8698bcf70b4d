"""A plan over decided ranges, as one batch DataFrame: the same stages as the streaming query, read once and kept nowhere.

Every step is the one of `Lowering`; only where rows come from is another.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql import DataFrame

from poundlock.plan.lower import Lowering
from poundlock.plan.reading import Reading

__all__ = ["RangeLowering"]


class _Ranges(Reading):
    streaming = False

    def _reader(self, name: str) -> Any:
        self.use(name)
        return self.spark.read

    def ticker(self, name: str) -> DataFrame:
        self.use(name)
        return self.spark.range(0, self.parallelism, 1, self.parallelism).selectExpr("id as value")


class RangeLowering(Lowering):
    """Turns a plan into a batch DataFrame over ranges: those in `reads`, and of split-planned sources those in the directive."""

    reading_type: ClassVar[type[Reading]] = _Ranges
