"""The driver's part of checkpoints over very many Kafka partitions, without Spark and without a broker. Arguments: FOLDER FOUND
PARTITIONS TOPICS MOVED CHECKPOINTS, FOLDER that of its checkpoint.

The planner, event time, the coordinator and the ledger are a job's own; what a cluster and the tasks would answer is made up here.
FOUND gets what one checkpoint cost and how large its record was: a JSON object.
"""

from __future__ import annotations

import json
import logging
import pickle
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.jobs.ledger_life import CountingStorage, Drivers, MemorySink
from poundlock import KafkaSource, WatermarkStrategy
from poundlock.checkpoint.ledger.ledger import record_path
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Prepared
from poundlock.driver.checkpoints import JobCheckpoints, JobPlan, JobRan
from poundlock.driver.failures.attempts import Attempts
from poundlock.driver.job_time import JobTime
from poundlock.driver.parallelism import JobParallelism
from poundlock.driver.planner import Planner
from poundlock.driver.progress import Tracker
from poundlock.driver.requests import CheckpointScheduler, Requests
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import SplitTimes
from poundlock.storage import LocalStorage
from poundlock.tasks.report import Directive, TaskReport
from poundlock.values import ManualClock

__all__ = ["ROWS", "SOURCE", "Load", "positions"]

BEGIN_MS = 1_545_184_226_432
STEP_MS = 1000
ROWS = 1000  # that a partition gets when it moves
SINK = "out"
SOURCE = "events"
PARALLELISM = 8
PARTS = ("plan", "tasks", "verify and decide")

Partition = tuple[str, int]


class Load:
    """Which partitions there are, and which of them get rows before each checkpoint: in turn, so many at a time."""

    def __init__(self, partitions: int, topics: int, moved: int) -> None:
        each = -(-partitions // topics)
        self.places: list[Partition] = [(f"events-{i // each:03d}", i % each) for i in range(partitions)]
        self.moved = moved

    def at(self, checkpoint: int) -> list[Partition]:
        """Return the partitions that have rows before a checkpoint."""
        first = checkpoint * self.moved
        return [self.places[i % len(self.places)] for i in range(first, first + self.moved)]


def positions(load: Load) -> Iterator[dict[str, dict[str, int]]]:
    """Yield the position before each checkpoint, one after the other; it is the same object, changed."""
    position: dict[str, dict[str, int]] = {}
    for topic, partition in load.places:
        position.setdefault(topic, {})[str(partition)] = 0
    for checkpoint in count():
        yield position
        for topic, partition in load.at(checkpoint):
            position[topic][str(partition)] += ROWS


class MadeUpCluster:
    """Answers at once what a cluster would."""

    def __init__(self, load: Load) -> None:
        self.ends = dict.fromkeys(load.places, 0)

    def partitions(self, timeout: float | None = None) -> dict[str, list[int]]:
        there: dict[str, list[int]] = {}
        for topic, partition in self.ends:
            there.setdefault(topic, []).append(partition)
        return there

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: f"{topic:x>22}" for topic in topics}

    def begin(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def end(self, partitions: Iterable[Partition], *, timeout: float | None = None) -> dict[Partition, int]:
        return {place: self.ends[place] for place in partitions}

    def commit(self, offsets: Mapping[Partition, int], group: str) -> None:
        pass

    def close(self) -> None:
        pass


class MadeUpSource(KafkaSource):
    """A Kafka source whose cluster is made up."""

    def __init__(self, cluster: MadeUpCluster) -> None:
        super().__init__(
            bootstrap_servers="nowhere:9092",
            pattern="events-.*",
            format="json",
            schema="ts timestamp",
            max_records_per_checkpoint=None,
        )
        object.__setattr__(self, "made_up", cluster)

    def cluster(self) -> Any:
        return self.made_up  # type: ignore[attr-defined]


class Checkpoints(JobCheckpoints):
    """Checkpoints whose tasks are made up: each reads its splits and reports the event times of their partitions."""

    cluster: MadeUpCluster
    parts: dict[str, float]
    directive_bytes = 0
    _planned = 0.0

    def plan(self) -> JobPlan | None:
        begin = time.perf_counter()
        plan = super().plan()
        self.parts["plan"] = time.perf_counter() - begin
        return plan

    def run(self, plan: JobPlan) -> JobRan:
        begin = time.perf_counter()
        given = self.coordinator.directive(plan.reads)
        directive = Directive(
            checkpoint=plan.checkpoint,
            epoch=given.epoch,
            started_ms=given.started_ms,
            run="0" * 16,
            sinks=given.sinks,
            time=plan.times,
        )
        # Spark pickles it with each task's function, and sends that.
        self.directive_bytes = len(pickle.dumps(directive, protocol=5))
        at = BEGIN_MS + plan.checkpoint * STEP_MS
        reports = [
            TaskReport(
                0, task.subtask, directive.run, (), {}, {},
                times=[SplitTimes("time", *split.place, at + split.number % 7, ROWS) for split in task.splits],
            )
            for task in plan.reads.work
        ]  # fmt: skip
        self.parts["tasks"] = time.perf_counter() - begin
        self._attempt.ran = True
        self.planner.check_identity(plan.reads)
        advanced = self.time.measured(plan.times, reports)
        rows = ROWS * sum(len(task.splits) for task in plan.reads.work)
        results = TaskResults(
            prepared=[
                Prepared(SINK, task.subtask, {"v": 1, "transaction": f"poundlock.{task.subtask}@{plan.checkpoint}"})
                for task in plan.reads.work
            ],
            counts={SINK: Counts(read=rows, written=rows)},
            rows_read={SOURCE: rows},
            tasks=len(plan.reads.work),
            watermarks=self.time.decided(plan.times, advanced),
            event_time=self.time.seen(advanced, reports),
        )
        return JobRan(plan.reads, given, results, advanced)


class Life:
    """A job over many partitions whose driver starts now and then."""

    def __init__(self, folder: Path, load: Load) -> None:
        self.load, self.folder = load, folder
        self.storage, self.clock = CountingStorage(str(folder)), ManualClock(BEGIN_MS)
        self.cluster, self.sink = MadeUpCluster(load), MemorySink()
        self._drivers = Drivers(self.storage, self.clock)
        self.taken = 0

    def start(self) -> float:
        """Start the driver anew, up to its first plan; return how long it took, ms."""
        self._drivers.stop()
        begin = time.perf_counter()
        coordinator = self._drivers.start({SINK: self.sink})
        recovery = coordinator.recover()
        span = recovery.sources.get(SOURCE)
        source = MadeUpSource(self.cluster).bind(
            job="life", name=SOURCE, previous=None if span is None else span.identity
        )
        planner = Planner({SOURCE: source}, lambda name: LocalStorage(str(self.folder / name)), PARALLELISM)
        # Shorter than a round through the fewest partitions, so that as many fall idle at each checkpoint as have moved.
        strategy = WatermarkStrategy.bounded_out_of_orderness(timedelta(seconds=4), timestamp="ts").with_idleness("5 s")
        nodes = (TimeNode(SOURCE, ()), TimeNode("time", (SOURCE,), strategy, (SOURCE,), kept=True))
        times = StreamTimes(TimeGraph(nodes))
        made_up: Any = SimpleNamespace(times=times, operators=())
        self.checkpoints = Checkpoints(
            chain=made_up,
            jobs=made_up,
            planner=planner,
            parallelism=JobParallelism(PARALLELISM),
            max_parallelism=PARALLELISM,
            time=JobTime(times, self.clock, coordinator.watermarks, ()),
            state=None,
            coordinator=coordinator,
            scheduler=CheckpointScheduler(timedelta(0), timedelta(0), Requests()),
            tracker=Tracker(None),
            attempts=Attempts(),
        )
        self.checkpoints.cluster, self.checkpoints.parts = self.cluster, {}
        took = (time.perf_counter() - begin) * 1000
        if recovery.checkpoint != self.taken - 1:
            raise SystemExit(f"recovered checkpoint {recovery.checkpoint} of {self.taken}")
        return took

    def take(self) -> dict[str, float]:
        """Take the next checkpoint; return what it cost."""
        for place in self.load.at(self.taken):
            self.cluster.ends[place] += ROWS
        self.clock.set(BEGIN_MS + self.taken * STEP_MS)
        begin, cpu = time.perf_counter(), time.process_time()
        self.checkpoints.take()
        self.checkpoints.settle()
        took, used = time.perf_counter() - begin, time.process_time() - cpu
        self.taken += 1
        newest = self.checkpoints.coordinator.newest
        if newest.checkpoint != self.taken - 1:
            raise SystemExit(f"checkpoint {newest.checkpoint} instead of {self.taken - 1} was decided")
        parts = self.checkpoints.parts
        record = self.storage.stat(record_path(newest.number))
        return {
            "ms": took * 1000,
            "CPU ms": used * 1000,
            **{f"{name} ms": seconds * 1000 for name, seconds in parts.items()},
            "record bytes": record.bytes,
            "directive bytes": self.checkpoints.directive_bytes,
        }


def main(folder: Path, found: Path, load: Load, checkpoints: int) -> None:
    """See above. The first checkpoint, which takes all partitions in, and those whose records say all there is count in the mean only."""
    logging.basicConfig(level=logging.WARNING)
    life = Life(folder, load)
    life.start()
    life.take()  # the partitions enter with nothing read
    costs: Sequence[dict[str, float]] = [life.take() for _ in range(checkpoints)]
    figures = {name: statistics.median(each[name] for each in costs) for name in costs[0]}
    figures |= {
        "longest ms": max(each["ms"] for each in costs),
        "mean record bytes": statistics.fmean(each["record bytes"] for each in costs),
        "start ms": min(life.start() for _ in range(3)),
    }
    found.write_text(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    print(found.read_text(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Load(*map(int, sys.argv[3:6])), int(sys.argv[6]))
