"""The queries side by side: rows per CPU second of both engines, their ratios and the geometric mean of these."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.nexmark.scripts import QUERIES
from benchmarks.result import Result

__all__ = ["LEAST_MEAN", "geometric_mean", "ratios", "show_ratios"]

LEAST_MEAN = 1.0
_SOURCES = {"files": "nexmark", "Kafka": "nexmark_kafka"}


def ratios(results: Sequence[Result], prefix: str) -> Iterator[tuple[str, Result, Result, float]]:
    """Yield for each query that both engines ran what each took, and how many rows per CPU second ours did for one of Flink's.

    Args:
        prefix: of the cases' names.
    """
    named: Mapping[str, Result] = {each.name: each for each in results}
    for query in QUERIES:
        ours, flinks = (named.get(f"{prefix}_{query}/{engine}") for engine in ("poundlock", "flink"))
        if ours is not None and flinks is not None:
            yield query, ours, flinks, ours.rows_per_cpu_s / flinks.rows_per_cpu_s


def geometric_mean(figures: Sequence[float]) -> float:
    """Return the geometric mean of figures, of which there is one at least."""
    return math.exp(sum(map(math.log, figures)) / len(figures))


def show_ratios(console: Console, results: Sequence[Result]) -> None:
    """Print the queries that both engines ran, and the geometric mean of their ratios with its bar."""
    for source, prefix in _SOURCES.items():
        rows = list(ratios(results, prefix))
        if not rows:
            continue
        table = Table(title=f"Nexmark from {source}, rows per CPU second", title_justify="left")
        for head in ("query", "poundlock", "Flink SQL", "ratio", "MB", "Flink MB"):
            table.add_column(head, justify="left" if head == "query" else "right")
        for query, ours, flinks, ratio in rows:
            table.add_row(
                query, f"{ours.rows_per_cpu_s:,.0f}", f"{flinks.rows_per_cpu_s:,.0f}", f"{ratio:.2f} ×",
                f"{ours.peak_mb:,.0f}", f"{flinks.peak_mb:,.0f}",
            )  # fmt: skip
        console.print(table)
        mean = geometric_mean([ratio for *_, ratio in rows])
        console.print(
            f"geometric mean of {len(rows)} queries: {mean:.2f} ×, bar {LEAST_MEAN:g} ×: "
            f"{'reached' if mean >= LEAST_MEAN else 'NOT reached'}",
            highlight=False,
        )
