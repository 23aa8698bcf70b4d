"""How long an event takes from being produced to being visible to a read_committed reader, at 1,000 events/s.

Every event has to arrive exactly once, or there is no figure; the first ten seconds after the first arrival are left out.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.measure import process_cpu_s, run
from benchmarks.result import Result
from benchmarks.spark_connector import connector_jars
from benchmarks.topics import output_topic

__all__ = ["CASES", "percentile"]

_IN, _OUT = "bench_latency_in", "bench_latency_out"
_PARTITIONS = 2
_WARM_UP_S, _SECONDS, _QUICK_S = 10, 45, 10


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

    def command(source: str, out: str, stop: str) -> list[str]:
        checkpoints = bench.home / "out" / name.replace("/", "-") / "checkpoints"
        return program("jobs/kafka_copy.py", source, out, "exactly-once", checkpoints, f"{interval_s} s", stop)

    return _followed(bench, name, command)


def spark(bench: Bench) -> Result:
    """At least once on Spark's own sink, a batch after the other."""
    name = "latency/spark_kafka_sink"

    def command(source: str, out: str, stop: str) -> list[str]:
        checkpoints = bench.home / "out" / name.replace("/", "-") / "checkpoints"
        return program("spark_kafka_sink.py", source, out, "every:0", checkpoints, stop)

    return _followed(bench, name, command, jars=connector_jars())


CASES: tuple[Case, ...] = (
    *(Case(f"latency/poundlock_{s}s", partial(poundlock, interval_s=s)) for s in (0, 1, 10)),
    Case("latency/spark_kafka_sink", spark),
)
