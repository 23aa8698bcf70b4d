"""An aggregate of a user's own over columns that does what SQL aggregates do, so that the two can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.stream.functions.arrow import ArrowAggregateFunction

OWN_RESULT = "r0 bigint, r1 bigint, r2 array<bigint>"
OWN_SQL = [SqlAggregate(kind="sum", column=0), SqlAggregate(kind="count", column=1)]
LISTED = SqlAggregate(kind="collect_list", column=0)


class Own(ArrowAggregateFunction):
    """What SQL calls sum(v), count(w) and collect_list(v)."""

    accumulator = "total bigint, texts bigint, listed array<bigint>"

    def accumulate(self, rows: pa.RecordBatch, groups: Any, count: int) -> Any:
        assert groups.tolist() == sorted(groups.tolist())
        assert set(groups.tolist()) == set(range(count))
        lists: list[list[int]] = [[] for _ in range(count)]
        texts = [0] * count
        for group, value, text in zip(groups.tolist(), *list(rows.to_pydict().values())[:2], strict=True):
            lists[group] += [] if value is None else [value]
            texts[group] += text is not None
        return {"listed": lists, "total": [sum(each) if each else None for each in lists], "texts": np.array(texts)}

    def merge(self, accumulators: pa.RecordBatch, groups: Any, count: int) -> Any:
        table = pa.Table.from_batches([accumulators]).append_column("group", pa.array(groups))
        sums = table.group_by("group", use_threads=False).aggregate([("total", "sum"), ("texts", "sum")])
        assert sums.column("group").to_pylist() == list(range(count))
        lists: list[list[int]] = [[] for _ in range(count)]
        for group, items in zip(groups.tolist(), accumulators.column("listed").to_pylist(), strict=True):
            lists[group] += items
        return pa.table({"total": sums["total_sum"], "texts": sums["texts_sum"], "listed": lists})

    def result(self, accumulators: pa.RecordBatch) -> Any:
        return pa.RecordBatch.from_arrays(accumulators.columns, ["r0", "r1", "r2"])
