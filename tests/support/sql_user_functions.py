"""Functions of a user's own, as a script of SQL names them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock import ArrowAggregateFunction, ImperativeAggregateFunction, udaf, udf, udtf


@udf(result_type="INT", input_types=["INT"])
def double(x: int | None) -> int | None:
    return None if x is None else 2 * x


@udf(result_type="DOUBLE", input_types=["DOUBLE", "DOUBLE"], func_type="arrow")
def ratio(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.divide(a, b)


@udf(result_type="ROW<a INT, m MAP<STRING, INT>, l ARRAY<DECIMAL(5, 2)>>")
def nested(x: int) -> dict[str, Any]:
    return {"a": x, "m": {"k": x}, "l": [Decimal("1.5"), None]}


@udf(result_type="INT")
def fails(x: int) -> int:
    if x == 2:
        raise ValueError("two is too many")
    return x


@udf(result_type="TINYINT")
def too_large(x: int) -> int:
    return x * 100


@udf(result_type="INT", deterministic=False)
def constant() -> int:
    return 7


@udtf(result_types=["STRING", "INT"])
def words(text: str) -> Iterator[tuple[str, int]]:
    for word in text.split():
        yield word, len(word)


@udtf(result_types="INT")
def numbers(n: int) -> range:
    return range(n)


@udaf(result_type="DOUBLE", accumulator_type="ROW<total DOUBLE, weight DOUBLE>", input_types=["DOUBLE", "DOUBLE"])
class WeightedAverage(ImperativeAggregateFunction):
    """The average of values by weights."""

    def create_accumulator(self) -> dict[str, float]:
        return {"total": 0.0, "weight": 0.0}

    def accumulate(self, accumulator: dict[str, float], *args: Any) -> None:
        value, weight = args
        accumulator["total"] += value * weight
        accumulator["weight"] += weight

    def retract(self, accumulator: dict[str, float], *args: Any) -> None:
        value, weight = args
        accumulator["total"] -= value * weight
        accumulator["weight"] -= weight

    def merge(self, accumulator: dict[str, float], accumulators: Any) -> None:
        for each in accumulators:
            accumulator["total"] += each["total"]
            accumulator["weight"] += each["weight"]

    def get_value(self, accumulator: dict[str, float]) -> float | None:
        return accumulator["total"] / accumulator["weight"] if accumulator["weight"] else None


@udaf(result_type="BIGINT", accumulator_type="BIGINT")
class Rows(ImperativeAggregateFunction):
    """How many rows there are; it can take none back, and cannot be merged."""

    def create_accumulator(self) -> int:
        return 0

    def accumulate(self, accumulator: int, *args: Any) -> int:
        return accumulator + 1

    def get_value(self, accumulator: int) -> int:
        return accumulator


@udaf(result_type="BIGINT", input_types=["BIGINT"], func_type="arrow")
class Total(ArrowAggregateFunction):
    """A sum over columns."""

    accumulator = "total bigint"
    columns = ("x",)

    def accumulate(self, rows: pa.RecordBatch, groups: Any, count: int) -> Any:
        return {"total": np.bincount(groups, np.array(rows.column("x").to_pylist()), count).astype(np.int64)}

    def merge(self, accumulators: pa.RecordBatch, groups: Any, count: int) -> Any:
        return {"total": np.bincount(groups, np.array(accumulators.column(0).to_pylist()), count).astype(np.int64)}

    def result(self, accumulators: pa.RecordBatch) -> Any:
        return accumulators.column("total")


def undeclared(x: int) -> int:
    return x


@udaf(result_type="STRING", accumulator_type="STRING", input_types=["INT"])
class Listed(ImperativeAggregateFunction):
    """Digits one behind the other, in the order in which they come."""

    def create_accumulator(self) -> str:
        return ""

    def accumulate(self, accumulator: str, *args: Any) -> str:
        return f"{accumulator}{args[0]}"

    def get_value(self, accumulator: str) -> str:
        return accumulator
