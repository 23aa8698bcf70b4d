"""What a benchmark found, the report file, and the bars the figures are held against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Usage

__all__ = ["BARS", "Bar", "Result", "show", "write"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One line of the report. CPU and memory are those of the whole process tree, start-up included, a broker apart.

    Args:
        name: "case/engine".
        rows: rows read and found again in the output.
        rows_per_s: rows per second of wall time.
        rows_per_cpu_s: rows per second of CPU time.
        cpu_s: user + system seconds.
        peak_mb: largest sum of resident memory over the tree; a page that several processes have counts once.
        wall_s: seconds from the start of the process to its end.
        load: the machine's load average when it ended.
        runs: how many runs there were; the figures are those of the run with the median CPU time.
        cpu_s_of_runs: CPU seconds of every run.
        median_ms: where the case is about time: its median in ms.
        p99_ms: where it is about many times: what 99 of 100 do not exceed, ms.
        max_ms: the longest of them, ms.
        broker_cpu_s: CPU seconds the Kafka broker spent meanwhile.
        parts: CPU seconds by kind of process, as sampled.
        figures: what else the case is about, by name.
        cannot: what the engine cannot do of what poundlock does, where the case is about such.
    """

    name: str
    rows: int
    rows_per_s: float
    rows_per_cpu_s: float
    cpu_s: float
    peak_mb: float
    wall_s: float
    load: float
    runs: int = 1
    cpu_s_of_runs: Sequence[float] = ()
    median_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    broker_cpu_s: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    cannot: Sequence[str] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        rows: int,
        usage: Usage,
        *,
        median_ms: float | None = None,
        p99_ms: float | None = None,
        max_ms: float | None = None,
        broker_cpu_s: float | None = None,
        figures: Mapping[str, float] | None = None,
        cannot: Sequence[str] | None = None,
    ) -> Result:
        """Return the result of one run."""
        return cls(
            name=name,
            rows=rows,
            rows_per_s=round(rows / usage.wall_s, 1),
            rows_per_cpu_s=round(rows / usage.cpu_s, 1),
            cpu_s=round(usage.cpu_s, 3),
            peak_mb=round(usage.peak_mb, 1),
            wall_s=round(usage.wall_s, 3),
            load=round(usage.load, 2),
            cpu_s_of_runs=[round(usage.cpu_s, 3)],
            median_ms=_rounded(median_ms, 1),
            p99_ms=_rounded(p99_ms, 1),
            max_ms=_rounded(max_ms, 1),
            broker_cpu_s=_rounded(broker_cpu_s, 2),
            parts=usage.parts,
            figures={} if figures is None else {name: round(value, 3) for name, value in figures.items()},
            cannot=cannot,
        )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """What a figure has to reach.

    Args:
        name: result it is about.
        factor: the least number of times it has to be `against`.
        per: what is compared then: rows per second of "cpu" or of "wall" time.
        against: another result's name, None where `least` or `most_ms` is the bar.
        least: least rows per CPU second.
        least_per_s: least rows per second of wall time.
        most_ms: greatest median, ms.
        share: the greatest part that the median may be of that of `against`.
        most_mb: greatest peak memory, MB.
        figure: one of the result's own figures, which is to be `most` at most, or `least_figure` at least.
        most, least_figure: see `figure`.
    """

    name: str
    factor: float = 1.0
    per: Literal["cpu", "wall"] = "cpu"
    against: str | None = None
    least: float | None = None
    least_per_s: float | None = None
    most_ms: float | None = None
    share: float | None = None
    most_mb: float | None = None
    figure: str = ""
    most: float = 0.0
    least_figure: float | None = None

    def judge(self, results: Mapping[str, Result]) -> tuple[str, str, bool] | None:
        """Return (the bar, the figure, whether it is reached), None where a run it needs is not there."""
        mine = results.get(self.name)
        if mine is None:
            return None
        if self.figure:
            found = mine.figures[self.figure]
            if self.least_figure is not None:
                return (
                    f"{self.name} {self.figure} ≥ {self.least_figure:.0%}",
                    f"{found:.0%}",
                    found >= self.least_figure,
                )
            unit = next((unit for unit in ("ms", "MB") if self.figure.endswith(f" {unit}")), "×")
            return f"{self.name} {self.figure} ≤ {self.most:g} {unit}", f"{found:.2f} {unit}", found <= self.most
        if self.most_ms is not None:
            if mine.median_ms is None:
                return None
            return (
                f"{self.name} median ≤ {self.most_ms:.0f} ms",
                f"{mine.median_ms:.0f} ms",
                mine.median_ms <= self.most_ms,
            )
        if self.most_mb is not None:
            figure = mine.peak_mb
            return f"{self.name} peak memory ≤ {self.most_mb:.0f} MB", f"{figure:.0f} MB", figure <= self.most_mb
        if self.least is not None:
            figure = mine.rows_per_cpu_s
            return f"{self.name} ≥ {self.least:,.0f} rows/CPU-s", f"{figure:,.0f}", figure >= self.least
        if self.least_per_s is not None:
            figure = mine.rows_per_s
            return f"{self.name} ≥ {self.least_per_s:,.0f} rows/s", f"{figure:,.0f}", figure >= self.least_per_s
        other = results.get(self.against or "")
        if other is None:
            return None
        if self.share is not None:
            if not mine.median_ms or not other.median_ms:
                return None
            ratio = mine.median_ms / other.median_ms
            return f"{self.name} median ≤ {self.share:g} × {self.against}", f"{ratio:.2f} ×", ratio <= self.share
        if self.per == "wall":
            ratio, unit = mine.rows_per_s / other.rows_per_s, " in rows/s"
        else:
            ratio, unit = mine.rows_per_cpu_s / other.rows_per_cpu_s, ""
        return f"{self.name} ≥ {self.factor:g} × {self.against}{unit}", f"{ratio:.2f} ×", ratio >= self.factor


BARS = (
    Bar(name="files_to_files/poundlock", factor=5, against="files_to_files/spark_file_sink"),
    Bar(name="files_to_files/poundlock", factor=5, against="files_to_files/flink"),
    Bar(name="kafka_to_files/poundlock", factor=2, against="kafka_to_files/spark_file_sink"),
    Bar(name="kafka_to_files/poundlock", factor=5, against="kafka_to_files/flink"),
    Bar(name="kafka_to_files/poundlock", factor=3, per="wall", against="kafka_to_files/flink"),
    *(
        Bar(name=name, most_mb=700)
        for name in (
            "files_to_files/poundlock",
            "files_to_files/poundlock_python_map",
            "kafka_to_files/poundlock",
            "kafka_to_kafka/poundlock",
            "latency/poundlock_0s",
            "cold_start/poundlock",
            "recovery/local",
            "recovery/hdfs",
            "recovery/s3",
        )
    ),
    Bar(name="files_to_files/poundlock_python_map", least=250_000),
    Bar(name="files_to_files/poundlock_python_map", factor=5, against="files_to_files/pyflink_python_map"),
    Bar(name="kafka_to_kafka/poundlock", factor=3, against="kafka_to_kafka/flink"),
    Bar(name="kafka_to_kafka/poundlock", factor=1.5, per="wall", against="kafka_to_kafka/flink"),
    Bar(name="kafka_to_kafka/poundlock", factor=0.6, per="wall", against="kafka_to_kafka/spark_kafka_sink"),
    Bar(name="postgres_copy/poundlock", factor=0.9, per="wall", against="postgres_copy/spark_jdbc"),
    Bar(name="parquet_to_s3/poundlock", factor=0.9, per="wall", against="parquet_to_s3/spark_file_sink"),
    Bar(name="keyed/window_native_1k", factor=0.9, against="keyed/spark_window_1k"),
    Bar(name="keyed/window_native_100k", factor=0.9, against="keyed/spark_window_100k"),
    *(
        Bar(name=f"keyed/{work}_{size}", least_per_s=rows)
        for size, rows in (("1k", 150_000), ("100k", 100_000))
        for work in ("window_python", "process", "sessions")
    ),
    *(
        bar
        for work, factor, most_mb in (
            ("window_1k", 3, 900),
            ("window_100k", 3, 900),
            ("sliding_100k", 2, 900),
            ("sessions_100k", 1.5, 900),
            ("process_100k", 1, 900),
            ("window_1M", 3, 1200),
            ("window_10M", 2, 1200),
        )
        for bar in (
            Bar(name=f"keyed_kafka/{work}", factor=factor, against=f"keyed_kafka/flink_{work}"),
            Bar(name=f"keyed_kafka/{work}", most_mb=most_mb),
        )
    ),
    Bar(name="keyed_kafka/process_100k", factor=5, against="keyed_kafka/pyflink_process_100k"),
    Bar(name="keyed/open_windows", figure="growth", most=2),
    Bar(name="latency/poundlock_0s", most_ms=120),
    Bar(name="latency/poundlock_0s", share=1, against="latency/flink_exactly_once"),
    Bar(name="cold_start/poundlock", share=1, against="cold_start/flink"),
    Bar(name="recovery/local", most_ms=8000),
    Bar(name="recovery/hdfs", most_ms=10000),
    Bar(name="recovery/s3", most_ms=10000),
    *(Bar(name=f"takeover/{store}", most_ms=10000) for store in ("local", "hdfs", "s3")),
    Bar(name="ledger_cost/poundlock", figure="growth", most=1.5),
    Bar(
        name="ledger_cost/kept_for_ever", figure="growth", most=2
    ),  # a start lists the archive, a name for a thousand records
    Bar(name="many_partitions/few_move", most_ms=500),
    Bar(name="many_partitions/few_move", figure="record growth", most=1.2),
    Bar(name="many_partitions/all_move", most_ms=500),
    Bar(name="many_files/poundlock", figure="plan ms growth", most=1.5),
    Bar(name="many_files/poundlock", figure="position bytes growth", most=1.2),
    Bar(name="many_files/poundlock", most_mb=300),
    Bar(name="many_topics/poundlock", most_ms=500),
    Bar(name="many_commits/moves", most_ms=5000),
    Bar(name="many_commits/uploads", most_ms=5000),
    Bar(name="many_commits/moves", figure="growth", most=1.5),
    Bar(name="many_commits/uploads", figure="growth", most=1.5),
    Bar(name="many_commits/moves", figure="touch bytes growth", most=1.5),
    Bar(name="commits_by_tasks/poundlock", figure="tasks / driver", most=1),  # half of it is what two cores can give
    Bar(name="commits_by_tasks/poundlock", figure="driver's CPU, tasks / driver", most=0.1),
    Bar(name="commits_by_tasks/poundlock", figure="growth", most=1.5),
    Bar(name="commits_by_tasks/poundlock", figure="driver, by tasks MB", most=1000),  # 10 kB a file
    Bar(name="savepoint/1MB", figure="pause / checkpoint", most=1),
    Bar(name="savepoint/100MB", figure="pause / checkpoint", most=1),
    Bar(name="savepoint/1GB", figure="pause / checkpoint", most=1),
    Bar(name="postgres_to_parquet/poundlock", factor=0.9, per="wall", against="postgres_to_parquet/spark_jdbc"),
    Bar(name="small_checkpoint/poundlock", share=0.5, against="small_checkpoint/first_edition"),
    Bar(name="state_cost/10M", figure="CPU growth", most=1.5),
    Bar(name="state_cost/10M", figure="bytes growth", most=1.5),
    *(
        Bar(name="much_state/100M", figure=f"{what} growth", most=most)
        for what, most in (("CPU ms", 1.5), ("kB written", 1.5), ("memory MB", 1.5), ("first s", 1.5))
    ),
    Bar(name="much_state/100M", figure="rescaled / first", most=1.5),
    Bar(name="much_state/100M", figure="100M key ms", most=50),
    Bar(name="skew/hot_key", figure="memory / uniform", most=1.5),
    Bar(name="skew/large", most_mb=2000),
    Bar(name="skew/buckets", most_mb=1500),
    # Of what processes have of their own: resident pages of mapped state files go when others need the memory.
    Bar(name="skew/window", figure="memory MB", most=1200),
    Bar(name="skew/window", figure="memory growth", most=2),
    Bar(name="cluster/locality", figure="key groups where they were, mean", least_figure=0.9),
    Bar(name="autoscale/local", figure="most tasks / at first", least_figure=2),
    Bar(name="autoscale/local", figure="tasks in the end / at first", most=1.5),
    Bar(name="many_branches/20", most_ms=1000),
    Bar(name="many_branches/20", figure="ms growth / branches", most=1),
    *(
        Bar(name=f"peers_{work}/poundlock", against=f"peers_{work}/{peer}")
        for work, more in (("lines", ()), ("windows", ("pyflink_datastream",)))
        for peer in ("bytewax", "quix", "pathway", "pyflink", *more)
    ),
    *(
        Bar(name=f"{source}_q{number}/poundlock", factor=0.3, against=f"{source}_q{number}/flink")
        for source in ("nexmark", "nexmark_kafka")
        for number in range(23)
    ),
)


def write(path: Path, results: Sequence[Result]) -> None:
    """Write the report: a JSON list, one object per result; what does not apply is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps([{k: v for k, v in asdict(r).items() if v is not None} for r in results], indent=2) + "\n"
    )


def show(console: Console, results: Sequence[Result]) -> bool:
    """Print the table and the bars; return whether every bar that could be judged is reached."""
    table = Table(title="Whole process tree, start-up included", title_justify="left")
    for head, right in (
        ("benchmark", False), ("rows", True), ("rows/s", True), ("rows/CPU-s", True), ("CPU s", True),
        ("wall s", True), ("peak RSS MB", True), ("load", True), ("runs", True),
    ):  # fmt: skip
        table.add_column(head, justify="right" if right else "left")
    for r in results:
        table.add_row(
            r.name, f"{r.rows:,}", f"{r.rows_per_s:,.0f}", f"{r.rows_per_cpu_s:,.0f}", f"{r.cpu_s:.1f}", f"{r.wall_s:.1f}",
            f"{r.peak_mb:,.0f}", f"{r.load:.1f}", str(r.runs),
        )  # fmt: skip
    console.print(table)
    _show_peers(console, results)
    _show_times(console, results)
    named = {r.name: r for r in results}
    judged = [verdict for bar in BARS if (verdict := bar.judge(named)) is not None]
    bars = Table(title="Bars", title_justify="left")
    for head in ("bar", "measured", "reached"):
        bars.add_column(head)
    for what, figure, reached in judged:
        bars.add_row(what, figure, "yes" if reached else "NO")
    if judged:
        console.print(bars)
    return all(reached for *_, reached in judged)


def _show_peers(console: Console, results: Sequence[Result]) -> None:
    """Print what engines cannot do, by their documentation."""
    peers = Table(title="Peers", title_justify="left")
    for head in ("benchmark", "rows/CPU-s", "cannot"):
        peers.add_column(head, justify="right" if head == "rows/CPU-s" else "left")
    for r in results:
        if r.cannot is not None:
            peers.add_row(r.name, f"{r.rows_per_cpu_s:,.0f}", ", ".join(r.cannot))
    if peers.row_count:
        console.print(peers)


def _show_times(console: Console, results: Sequence[Result]) -> None:
    """Print what is about time and what a case has of its own."""
    times = Table(title="Times", title_justify="left")
    for head in ("benchmark", "median ms", "p99 ms", "max ms"):
        times.add_column(head, justify="left" if head == "benchmark" else "right")
    for r in results:
        if r.median_ms is not None:
            times.add_row(r.name, *("" if ms is None else f"{ms:,.1f}" for ms in (r.median_ms, r.p99_ms, r.max_ms)))
    if times.row_count:
        console.print(times)
    for r in results:
        for name, value in r.figures.items():
            console.print(f"{r.name}: {name} {value:,g}", highlight=False)
