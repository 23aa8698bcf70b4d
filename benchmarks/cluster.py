"""How a job goes on a cluster: its parallelism follows an input that triples and falls back, keyed tasks run where their state is, and
an executor is killed at a million keys.

Four executors on one machine, each with a worker of a standalone Spark. Every event has to come out once, or there is no figure.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.autoscale_client import PARTITIONS
from benchmarks.bench import Bench, Case, program
from benchmarks.cluster_client import Found, prove
from benchmarks.data import WrongOutput
from benchmarks.measure import run
from benchmarks.recovery import prove as prove_events
from benchmarks.result import Result
from benchmarks.topics import output_topic
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage, open_storage

__all__ = ["CASES", "scaled"]

_TOPIC = "bench_autoscale"
_SECONDS, _QUICK_S = 90, 20
_KEYS, _QUICK_KEYS = 1_000_000, 20_000
_CHECKPOINTS, _QUICK_CHECKPOINTS = 40, 10
_KILLS, _QUICK_KILLS = 5, 1


def autoscale(bench: Bench, name: str, workers: int) -> Result:
    """An input that triples and falls back; the parallelism meanwhile, the longest lag, and that nothing was started again."""
    bench.warm()
    work = bench.folder(name.replace("/", "-"))
    with output_topic(bench.broker, _TOPIC, PARTITIONS) as topic:
        seconds = _QUICK_S if bench.quick else _SECONDS
        words = program("autoscale_client.py", bench.broker.bootstrap_servers, topic, work, seconds, workers)
        usage = run(words, env=bench.environment(work), log=bench.log(name), timeout_s=3600)
    told = json.loads((work / "produced").read_text())
    produced, executors = told["events"], told["executors"]
    prove_events(open_storage(str(work / "out")), produced)
    series = [json.loads(line) for line in (work / "series").read_text().splitlines()]
    lives = {record.epoch for record in Ledger(LocalStorage(str(work / "checkpoints")))}
    figures = scaled(series, len(lives))
    if workers:
        figures |= {
            "executors at first": executors[0],
            "most executors": max(executors),
            "executors in the end": executors[-1],
        }
    for line in dict.fromkeys(each["message"] for each in series if each["message"].startswith("parallelism ")):
        print(f"  {line}", flush=True)
    shutil.rmtree(work)
    return Result.of(name, produced, usage, figures=figures)


def scaled(series: Sequence[Mapping[str, Any]], lives: int) -> dict[str, float]:
    """Return what a job's progress says of its parallelism.

    Args:
        series: the progress, oldest first.
        lives: how many there were by its ledger.

    Raises:
        WrongOutput: it was started again.
    """
    restarts = max(each["restarts"] for each in series)
    if restarts or lives != 1:
        raise WrongOutput(f"the job was started again: {restarts} restarts, {lives} lives")
    tasks = [each["parallelism"] for each in series if each["parallelism"] is not None]
    changes = [after for before, after in pairwise(tasks) if after != before]
    return {
        "tasks at first": tasks[0],
        "most tasks / at first": max(tasks) / tasks[0],
        "tasks in the end / at first": tasks[-1] / tasks[0],
        "changes": len(changes),
        "longest lag, records": max((each["lag"] or 0 for each in series), default=0),
    }


def cluster(bench: Bench, name: str, kills: int, **environment: str) -> Result:
    """Keyed state on four executors: the part of its key groups that stay, and how long a killed executor holds the job up."""
    work = bench.folder(name.replace("/", "-"))
    keys = _QUICK_KEYS if bench.quick else _KEYS
    checkpoints = _QUICK_CHECKPOINTS if bench.quick else _CHECKPOINTS
    words = program("cluster_client.py", work, keys, checkpoints, kills)
    usage = run(words, env=bench.environment(work, **environment), log=bench.log(name), timeout_s=3600)
    found = Found(**json.loads((work / "found").read_text()))
    prove(work / "out", found.rows)
    shutil.rmtree(work)
    locality = sorted(found.locality)
    figures = {"key groups where they were, mean": sum(locality) / len(locality), "least": locality[0]}
    took = sorted(found.took_s)
    more = (
        {"next decision after a kill, s": took[len(took) // 2], "caught up after a kill, s": max(found.caught_up_s)}
        if took
        else {}
    )
    return Result.of(name, sum(found.rows.values()), usage, figures={**figures, **more})


CASES: tuple[Case, ...] = (
    Case("autoscale/local", partial(autoscale, name="autoscale/local", workers=0)),
    Case("autoscale/dynamic_allocation", partial(autoscale, name="autoscale/dynamic_allocation", workers=4)),
    Case("cluster/locality", partial(cluster, name="cluster/locality", kills=0)),
    Case("cluster/unplaced", partial(cluster, name="cluster/unplaced", kills=0, CLUSTER_UNPLACED="1")),
    Case(
        "cluster/executor_kill",
        lambda bench: cluster(bench, "cluster/executor_kill", _QUICK_KILLS if bench.quick else _KILLS),
    ),
)
