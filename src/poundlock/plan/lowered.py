"""What lowering a plan gives: the query as a DataFrame, and what has to be known of it while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from poundlock.plan.event_time import TimeChannel

__all__ = ["BYTES", "Lowered"]

BYTES = "bytes/"  # before the name of a use: what Spark counts is how large its values are


@dataclass(frozen=True)
class Lowered:
    """The query.

    Args:
        frame: its DataFrame.
        observed: per branch head, the names of what Spark counts for it; none where the stage counts itself.
        row_wise: per branch head, whether rows that vanish before the stage were filtered.
        uses: the uses of sources; one that is read twice in the query is two sources to Spark.
        times: where event time is measured.
        ticks: whether Spark begins a batch at each trigger, data or not.
        untimed: the uses of sources whose rows have no event time.
    """

    frame: DataFrame
    observed: Mapping[str, Sequence[str]]
    row_wise: Mapping[str, bool]
    uses: Sequence[str]
    times: Sequence[TimeChannel] = ()
    ticks: bool = False
    untimed: Sequence[str] = ()
