"""SQL aggregates over windows against the conformance cases, through the harness: Flink SQL's results."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.testing import Element, WindowHarness
from support.window_cases import assigner_of

CASES = json.loads((Path(__file__).parent / "data" / "sql_windows.json").read_text())["cases"]

AGGREGATES = {
    "COUNT(*)": SqlAggregate(kind="count"),
    "SUM(bigdec)": SqlAggregate(kind="sum", column="bigdec"),
    "MAX(double)": SqlAggregate(kind="max", column="double"),
    "MIN(float)": SqlAggregate(kind="min", column="float"),
    "COUNT(DISTINCT b)": SqlAggregate(kind="count_distinct", column="b"),
}


def time_of(row: dict[str, Any]) -> int:
    if "ts_ms" in row:
        stamp: int = row["ts_ms"]
        return stamp
    return int(datetime.fromisoformat(row["ts"]).replace(tzinfo=UTC).timestamp()) * 1000


def text_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize("general", [False, True], ids=["quick", "general"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_sql_window(case: dict[str, Any], general: bool) -> None:
    aggregates = [name for name in case["select"] if name in AGGREGATES]
    key = next(name.split()[1] for name in case["select"] if name.startswith("key "))
    h = WindowHarness(
        assigner_of(case["window"]), [AGGREGATES[name] for name in aggregates], key=key, late=False, general=general
    )
    greatest = -(1 << 63)
    for values in case["rows"]:
        row = dict(zip(case["columns"], values, strict=True))
        if row.get("bigdec") is not None:
            row["bigdec"] = Decimal(row["bigdec"])
        greatest = max(greatest, time_of(row))
        h.process_elements([Element(row, time_of(row))])
        h.process_watermark(greatest - case["watermark_delay_ms"])
    h.end_of_input()
    found: Counter[tuple[Any, ...]] = Counter()
    for out in h.output:
        selected = {
            f"key {key}": out.key,
            "window_start": text_of(out.window.start),
            "window_end": text_of(out.window.end),
            "window_end in ms": out.window.end,
            **dict(zip(aggregates, out.value, strict=True)),
        }
        found[tuple(str(v) if isinstance(v, Decimal) else v for v in (selected[name] for name in case["select"]))] += 1
    assert found == Counter(tuple(row) for row in case["expected"])
    h.close()
