"""How long a job stands still when its driver is killed: from SIGKILL to the next decision in the ledger, several times in a run.

A topic into files, 1,000 events/s, a checkpoint after the other; checkpoint and output on a local disk, on HDFS, on S3. In `recovery` the next
process is started at once, by the benchmark; in `takeover` it stands by. Every event has to be in one finished file, or there is no figure.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.measure import run
from benchmarks.parquet_to_s3 import s3_server
from benchmarks.recovery_client import Times
from benchmarks.result import Result
from benchmarks.topics import output_topic
from poundlock.storage import Storage, open_storage
from poundlock.storage.uploads import Uploads
from poundlock.testing.hdfs import EmbeddedHdfs

__all__ = ["CASES", "prove"]

_TOPIC, _PARTITIONS = "bench_recovery", 2
_KILLS, _QUICK_KILLS = 9, 2

# A folder on a store, and the variables that lead a program there.
Place = tuple[str, Mapping[str, str]]


@contextmanager
def _local(work: Path) -> Iterator[Place]:
    yield str(work), {}


@contextmanager
def _hdfs(work: Path) -> Iterator[Place]:
    with EmbeddedHdfs(progress=lambda line: print(line, flush=True)) as cluster:
        yield f"{cluster.uri}/recovery", {}


@contextmanager
def _s3(work: Path) -> Iterator[Place]:
    with s3_server() as server:
        yield f"{server.bucket('recovery')}/job", server.environment


_STORES: Mapping[str, Callable[[Path], AbstractContextManager[Place]]] = {"local": _local, "hdfs": _hdfs, "s3": _s3}


def prove(out: Storage, produced: int) -> None:
    """Read every finished file and look for each event once.

    Args:
        out: where they are.
        produced: how many events there were, numbered from 0.

    Raises:
        WrongOutput: an event is missing or twice, or a hidden file or an upload was left.
    """
    times: Counter[int] = Counter()
    for entry in out.list():
        if Path(entry.path).name.startswith("."):
            raise WrongOutput(f"left behind: {entry.path}")
        times.update(json.loads(line)["number"] for line in out.read(entry.path).splitlines())
    if isinstance(out, Uploads) and (left := [upload.path for upload in out.uploads()]):
        raise WrongOutput(f"uploads left behind: {left}")
    lost, foreign = sum(n not in times for n in range(produced)), sum(not 0 <= n < produced for n in times)
    again = times.total() - len(times)
    if lost or again or foreign:
        raise WrongOutput(
            f"of {produced} events {lost} are missing, and {again} came again, and {foreign} are none of them"
        )


def recovery(bench: Bench, store: str, kind: str = "recovery") -> Result:
    """Some deaths of the driver, one after the other; the median and the longest time to the next decision.

    Args:
        store: of checkpoint and output.
        kind: "recovery", or "takeover" by a driver that stands by.
    """
    bench.warm()
    name, work = f"{kind}/{store}", bench.folder(f"{kind}-{store}")
    kills = _QUICK_KILLS if bench.quick else _KILLS
    with output_topic(bench.broker, _TOPIC, _PARTITIONS) as topic, _STORES[store](work) as (root, variables):
        words = program(f"{kind}_client.py", bench.broker.bootstrap_servers, topic, root, kills, work)
        usage = run(words, env=bench.environment(work, **variables), log=bench.log(name))
        times = Times(**json.loads((work / "times").read_text()))
        prove(open_storage(f"{root}/out"), times.produced)
    shutil.rmtree(work)
    parts = times.parts_ms[0] if times.parts_ms else ()
    figures = {part: statistics.median(each[part] for each in times.parts_ms) for part in parts}
    median = statistics.median(times.took_ms)
    return Result.of(name, times.produced, usage, median_ms=median, max_ms=max(times.took_ms), figures=figures)


CASES: tuple[Case, ...] = tuple(
    Case(f"{kind}/{store}", partial(recovery, store=store, kind=kind))
    for kind in ("recovery", "takeover")
    for store in _STORES
)
