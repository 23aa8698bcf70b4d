"""How long an event takes from being produced to being visible to a read_committed reader, at 1,000 events/s.

Every event has to arrive exactly once, or there is no figure; the first ten seconds after the first arrival are left out. Flink
runs with the smallest interval of a few that is stable on the machine: it takes the checkpoints that are due, none fails, and
latencies do not grow.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.flink.install import Installed
from benchmarks.measure import process_cpu_s, run
from benchmarks.result import Result
from benchmarks.spark_connector import connector_jars
from benchmarks.topics import output_topic
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage.local import LocalStorage

__all__ = ["CASES", "pace", "percentile", "trend"]

_IN, _OUT = "bench_latency_in", "bench_latency_out"
_PARTITIONS = 2
_WARM_UP_S, _SECONDS, _QUICK_S = 10, 45, 10
_FLINK_INTERVALS_MS = (10, 25, 50, 100, 200, 500)  # it refuses less than 10
_LEAST_PACE, _MOST_TREND = 0.9, 1.5


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed.

    Args:
        ordered: ascending, not empty.
        share: above 0, at most 1.
    """
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _followed(bench: Bench, name: str, command: Callable[[str, str, str], list[str]], *, jars: str = "") -> Result:
    """Run a job that goes on, with a client that produces and reads; `command` gets source, output and stop file."""
    work = bench.folder(name.replace("/", "-"))
    servers, stop, notes = bench.broker.bootstrap_servers, work / "stop", work / "latencies"
    with output_topic(bench.broker, _IN, _PARTITIONS) as source, output_topic(bench.broker, _OUT, _PARTITIONS) as out:
        seconds = _QUICK_S if bench.quick else _SECONDS
        words = program("latency_client.py", servers, source, out, _WARM_UP_S, seconds, notes, stop)
        environment = bench.environment(work, BASELINE_JARS=jars)
        with bench.log(f"{name}-client").open("wb") as log:
            client = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        before = process_cpu_s(bench.broker.pid or 0)
        try:
            usage = run(command(f"{servers}/{source}", out, str(stop)), env=environment, log=bench.log(name))
            code = client.wait(60)
        finally:
            client.kill()
            client.wait()
        broker_cpu_s = process_cpu_s(bench.broker.pid or 0) - before
    if code:
        raise WrongOutput(bench.log(f"{name}-client").read_text(errors="replace").strip()[-500:])
    took = sorted(json.loads(notes.read_text()))
    return Result.of(
        name, len(took), usage, broker_cpu_s=broker_cpu_s, median_ms=percentile(took, 0.5),
        p99_ms=percentile(took, 0.99), max_ms=took[-1],
    )  # fmt: skip


def poundlock(bench: Bench, interval_s: int) -> Result:
    """Exactly once on poundlock."""
    bench.warm()
    name = f"latency/poundlock_{interval_s}s"
    checkpoints = bench.home / "out" / name.replace("/", "-") / "checkpoints"

    def command(source: str, out: str, stop: str) -> list[str]:
        return program("jobs/kafka_copy.py", source, out, "exactly-once", checkpoints, f"{interval_s} s", stop)

    return replace(_followed(bench, name, command), figures=_steps(list(Ledger(LocalStorage(str(checkpoints))))))


def at_least_once(bench: Bench, mode: str, interval_s: int) -> Result:
    """At least once on poundlock, with a decision behind each run of the tasks, or one an interval."""
    bench.warm()
    name = f"latency/poundlock_{mode.lower()}_sink_at_least_once"
    checkpoints = bench.home / "out" / name.replace("/", "-") / "checkpoints"

    def command(source: str, out: str, stop: str) -> list[str]:
        return program("jobs/kafka_copy.py", source, out, "at-least-once", checkpoints, f"{interval_s} s", stop, mode)

    return _followed(bench, name, command)


def _steps(decisions: Sequence[Decision]) -> Mapping[str, float]:
    """Return how long the steps of a checkpoint took, ms, the median of those in the second half; a commit goes on beside the next run."""
    half = decisions[len(decisions) // 2 :]
    figures = {
        f"{name} ms": statistics.median(each.durations_ms.get(name, 0) for each in half)
        for name in ("run", "verify", "decide", "commit")
    }
    between = [later.time_ms - each.time_ms for each, later in pairwise(half)]
    return {**figures, "from decision to decision ms": statistics.median(between)}


def flink(bench: Bench) -> Result | None:
    """Exactly once on Flink, Java, with the smallest interval that it keeps up with; None where it is not installed.

    Raises:
        WrongOutput: it keeps up with none, or not every event arrived once.
    """
    if bench.flink is None:
        return None
    for interval_ms in _FLINK_INTERVALS_MS:
        result, (before, after), took = _flink(bench, bench.flink, interval_ms)
        reached, grown = pace(before, after, interval_ms), trend(took)
        failed = after["counts"]["failed"] - before["counts"]["failed"]
        stable = reached >= _LEAST_PACE and grown <= _MOST_TREND and not failed
        print(
            f"  every {interval_ms} ms: median {result.median_ms:.0f} ms, {reached:.0%} of the checkpoints that were due, {failed} failed,"
            f" latency of the last third {grown:.2f} × that of the first: {'taken' if stable else 'not stable'}",
            flush=True,
        )
        if stable:
            figures = {
                "interval ms": interval_ms,
                "part of the checkpoints due": reached,
                "mean ms of a checkpoint": after["summary"]["end_to_end_duration"]["avg"],
                "latency of the last third / first": grown,
            }
            return replace(result, figures=figures)
    raise WrongOutput(f"Flink keeps up with no interval of {_FLINK_INTERVALS_MS} ms")


def _flink(bench: Bench, installed: Installed, interval_ms: int) -> tuple[Result, Sequence[Any], Sequence[float]]:
    """Return the result with an interval, what Flink tells of its checkpoints, twice, and the latencies in the order of arrival."""
    name = "latency/flink_exactly_once"
    work = bench.home / "out" / name.replace("/", "-")

    def command(source: str, out: str, stop: str) -> list[str]:
        words = (source, out, work / "checkpoints", f"{interval_ms} ms", stop, work / "statistics")
        return installed.command("KafkaCopy", *words)

    result = _followed(bench, name, command)
    checkpoints = [json.loads(line) for line in (work / "statistics").read_text().splitlines()]
    if len(checkpoints) < 2:
        raise WrongOutput("Flink completed no checkpoint in the first half")
    return result, checkpoints, json.loads((work / "latencies").read_text())


def pace(before: Mapping[str, Any], after: Mapping[str, Any], interval_ms: int) -> float:
    """Return what part of the checkpoints that were due between two of them Flink took: less than 1 where one waits for another.

    Args:
        before: what Flink tells of its checkpoints at the first.
        after: the same at the last.
        interval_ms: how often one is due.
    """
    first, last = (each["latest"]["completed"] for each in (before, after))
    due = (last["trigger_timestamp"] - first["trigger_timestamp"]) / interval_ms
    return float((last["id"] - first["id"]) / due)


def trend(took: Sequence[float]) -> float:
    """Return how many times as much the median of the last third of values is as that of the first: it grows where work piles up."""
    third = len(took) // 3
    return statistics.median(took[-third:]) / statistics.median(took[:third])


def spark(bench: Bench) -> Result:
    """At least once on Spark's own sink, a batch after the other."""
    name = "latency/spark_kafka_sink"

    def command(source: str, out: str, stop: str) -> list[str]:
        checkpoints = bench.home / "out" / name.replace("/", "-") / "checkpoints"
        return program("spark_kafka_sink.py", source, out, "every:0", checkpoints, stop)

    return _followed(bench, name, command, jars=connector_jars())


CASES: tuple[Case, ...] = (
    Case("latency/poundlock_0s", partial(poundlock, interval_s=0)),
    Case(
        "latency/poundlock_exactly_once_sink_at_least_once",
        partial(at_least_once, mode="EXACTLY_ONCE", interval_s=0),
    ),
    Case(
        "latency/poundlock_at_least_once_sink_at_least_once",
        partial(at_least_once, mode="AT_LEAST_ONCE", interval_s=10),
    ),
    Case("latency/flink_exactly_once", flink),
    *(Case(f"latency/poundlock_{s}s", partial(poundlock, interval_s=s)) for s in (1, 10)),
    Case("latency/spark_kafka_sink", spark),
)
