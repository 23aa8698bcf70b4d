"""`make bench`: runs the cases, prints a table with the bars, and writes build/bench/report.json.

A run whose output is not exactly its input has no figure and makes the exit code 1; a bar that is missed does not.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from benchmarks.cases import CASES, ROOT, Bench, Case
from benchmarks.data import WrongOutput
from benchmarks.measure import UsageLost
from benchmarks.nexmark.ratios import show_ratios
from benchmarks.result import Result, show, write
from poundlock.errors import PoundlockError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; return the exit code."""
    given = _arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker and the measured process end too
    # A file has no width, and 80 columns cut the names.
    console = Console(width=None if sys.stdout.isatty() else 150)
    wanted = [case for case in CASES if not given.names or any(case.name.startswith(n) for n in given.names)]
    if not wanted:
        console.print(
            f"no benchmark is called {' or '.join(given.names)}; there are: {', '.join(c.name for c in CASES)}"
        )
        return 2
    found: dict[str, list[Result]] = {}
    failed = False
    sizes = {"millions": given.millions, "peer_millions": given.peer_millions}
    with Bench(ROOT / "build" / "bench", quick=given.quick, **sizes) as bench:
        for _ in range(given.runs):
            for case in wanted:
                failed |= not _one(case, bench, found, console)
        results = [_middle(runs) for runs in found.values()]
        write(ROOT / "build" / "bench" / "report.json", results)
    show(console, results)
    show_ratios(console, results)
    if given.quick:
        console.print("quick: inputs are small, so start-up weighs most and the bars mean nothing")
    if missing := [name for name, there in (("Flink", bench.flink), ("PyFlink", bench.pyflink)) if there is None]:
        console.print(f"Not installed here: {' and '.join(missing)}. Next, to measure it too: make bench-flink")
    return 1 if failed else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure poundlock, Spark and Flink.")
    parser.add_argument("names", nargs="*", help="only benchmarks whose names begin so, such as files_to_files")
    parser.add_argument("--quick", action="store_true", help="small inputs: does everything run?")
    parser.add_argument("--runs", type=int, default=1, help="runs of each, taken in turn; the median counts")
    parser.add_argument(
        "--millions", type=int, default=10, choices=range(2, 101, 2), metavar="N",
        help="millions of rows of files and topic, an even number (10)",
    )  # fmt: skip
    parser.add_argument("--peer-millions", type=int, default=1, metavar="N", help="millions of rows of the peers (1)")
    return parser.parse_args(arguments)


def _one(case: Case, bench: Bench, found: dict[str, list[Result]], console: Console) -> bool:
    console.print(f"{case.name} …", highlight=False)
    try:
        result = case.measure(bench)
    except (UsageLost, WrongOutput, PoundlockError) as error:
        console.print(f"{case.name} has no figure: {error}", style="red", highlight=False, markup=False)
        return False
    if result is not None:
        found.setdefault(case.name, []).append(result)
        console.print(
            f"  {result.rows_per_cpu_s:,.0f} rows/CPU-s, {result.cpu_s:.1f} CPU s, {result.wall_s:.1f} s, load {result.load}",
            highlight=False,
        )
        parts = ", ".join(f"{name} {cpu_s:.1f}" for name, cpu_s in result.parts.items() if cpu_s >= 0.2)
        console.print(f"  CPU s by process: {parts}", highlight=False)
    return True


def _middle(runs: Sequence[Result]) -> Result:
    """Return the run with the median CPU time, with what all of them cost noted."""
    ranked = sorted(runs, key=lambda result: result.cpu_s)
    costs = [result.cpu_s for result in runs]
    return replace(ranked[(len(ranked) - 1) // 2], runs=len(runs), cpu_s_of_runs=costs)


if __name__ == "__main__":
    sys.exit(main())
