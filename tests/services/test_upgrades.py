"""Jobs that change between a savepoint and its restore, on a real broker and one Spark session: what goes on, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from poundlock import (
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    KafkaSink,
    KafkaSource,
    RollingPolicy,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.checkpoint.identity import read_identity
from poundlock.config import load_settings
from poundlock.driver import context as assembly
from poundlock.driver import driver
from poundlock.driver.savepoints.restore import Beginning
from poundlock.spark.launch.session import Session
from poundlock.spark.launch.spark_launch import begin_spark
from poundlock.storage import LocalStorage
from poundlock.stream.stream import DataStream
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.jobs_in_threads import Running, settings, until_saved
from support.shared_jvm import Ready

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

START, SIZE, USERS = 1_545_184_220, 20, 5
SCHEMA = "ts double, user string, n bigint"


@pytest.fixture(scope="module")
def sparks() -> Iterator[list[str]]:
    """One session for every run of this module: what it was asked for, by the names of the jobs' logs."""
    kept: list[Any] = []
    asked: list[str] = []

    def begin(*arguments: Any, log: str, **more: Any) -> Ready:
        asked.append(log)
        if not kept:
            kept.append(begin_spark(*arguments, log=log, **more).session())
        return Ready(Session(kept[0].context, None, kept[0].sql))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "begin_spark", begin)
        yield asked
    for session in kept:
        session.stop()


class Scene:
    """Topics that grow, and versions of a job over them."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka, new_topic: Callable[..., str]) -> None:
        self.folder, self.kafka = folder, kafka
        self.events, self.clicks, self.extra, self.more, self.counts = (new_topic(n) for n in (2, 1, 1, 1, 2))
        self.lines: list[str] = []

    def produce(self, rows: range, clicks: range, *more: bytes) -> None:
        made = [json.dumps({"ts": START + n / 4, "user": f"u{n % USERS}", "n": n}).encode() for n in rows]
        self.kafka.produce(self.events, [Record(row, partition=i % 2) for i, row in enumerate([*made, *more])])
        self.kafka.produce(self.clicks, [Record(json.dumps({"click": n}).encode()) for n in clicks])

    def source(self, topic: str, schema: str | None = None) -> KafkaSource:
        typed = {} if schema is None else {"format": "json", "schema": schema}
        return KafkaSource(bootstrap_servers=self.kafka.bootstrap_servers, topics=topic, **typed)  # type: ignore[arg-type]

    def sink(self, name: str, **more: Any) -> FileSink:
        return FileSink(str(self.folder / name), rolling=RollingPolicy(every="1 h", inactivity=None), **more)

    def running(self, job: Job, **beginning: Any) -> AbstractContextManager[Callable[..., str]]:
        """Run a job until it is saved, see `until_saved`."""
        return until_saved(partial(self.run, job, **beginning), self.folder / "saved", self.lines)

    def run(self, job: Job, *, path: str | None = None, **more: Any) -> None:
        asked = {name: more.pop(name) for name in ("on_progress", "stop", "requests") if name in more}
        settings = load_settings(
            [f"state_dir={self.folder}/state", "master=local[2]", "restart-strategy.type=none",
             "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
        )  # fmt: skip
        driver.run(job, settings=settings, beginning=None if path is None else Beginning(path, **more), **asked)

    def job(self, version: str, *, interval: str = "100 ms") -> Job:
        return Job(
            "upgraded",
            checkpoint_interval=interval,
            checkpoint_dir=str(self.folder / version),
            dead_letters=str(self.folder / "dead"),
            parallelism=1,
        )

    def windows(self, events: DataStream, **changed: Any) -> None:
        """End in windows over the events."""
        said = {
            "size": f"{SIZE} s", "key": "user", "aggregates": ("sum(n) as total", "count(*) as rows"), "name": "sums",
            "columns": ("user", "unix_seconds(window_start) as start", "total", "rows"), **changed,
        }  # fmt: skip
        timed = events.assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_millis(bigint(round(ts * 1000)))"),
            name="event-time",
        )
        windowed = timed.key_by(said["key"]).window(TumblingEventTimeWindows(said["size"]))
        windowed.aggregate(*said["aggregates"], name=said["name"]).select(*said["columns"], name="shown").sink_to(
            KafkaSink(self.kafka.bootstrap_servers, self.counts, format="json"), name="counts"
        )

    def join(self, events: DataStream, clicks: DataStream, key: str = "n", shown: str = "n") -> None:
        """End in the events that were clicked: a click comes with the event's time, and may come checkpoints later."""

        def timed(rows: DataStream, column: str, name: str) -> DataStream:
            time = f"timestamp_millis(bigint(round(({START} + {column} / 4) * 1000)))"
            return rows.assign_timestamps_and_watermarks(
                WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp=time), name=name
            )

        rows, clicked = timed(events, "n", "event-time-of-join"), timed(clicks, "click", "click-time")
        joined = rows.key_by(key).interval_join(clicked.key_by("click")).between("-1 s", "1 s")
        joined.select("left.n as n", name="join").select(*shown.split(", "), name="of-join").sink_to(
            self.sink("joined", format="json"), name="joined"
        )

    def first(self, version: str = "first", **windows: Any) -> Job:
        """Return the job before any change."""
        job = self.job(version)
        events = job.from_source(self.source(self.events, SCHEMA), name="events")
        self.windows(events, **windows)
        self.join(events, job.from_source(self.source(self.clicks, "click bigint"), name="clicks"))
        twice = events.apply(lambda a, b: a.where("n < 3").unionByName(b.where("n < 2")), events, name="twice")
        twice.sink_to(self.sink("twice", format="json"), name="twice-files")
        job.from_source(self.source(self.extra), name="extra").sink_to(self.sink("spare", row="value"), name="spare")
        return job

    def files(self, name: str) -> list[bytes]:
        found = (p for p in (self.folder / name).rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
        return [line for path in sorted(found) for line in path.read_bytes().splitlines()]

    def sums(self) -> dict[tuple[str, int], tuple[int, int]]:
        values: dict[tuple[str, int], tuple[int, int]] = {}
        for record in self.kafka.read(self.counts):
            row = json.loads(record.value)
            assert (row["user"], row["start"]) not in values, f"{row} came twice"
            values[row["user"], row["start"]] = row["total"], row["rows"]
        return values


def model(rows: list[int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (user, start) -> sum and count, for each window: a drain fires those that are open."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for n in rows:
        start = int((START + n / 4) // SIZE) * SIZE
        total, count = found.get((f"u{n % USERS}", start), (0, 0))
        found[f"u{n % USERS}", start] = total + n, count + 1
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusals(scene: Scene, savepoint: str, sparks: list[str]) -> None:
    """What does not fit is named before Spark is asked and before anything is touched."""

    def refused(job: Job, **more: Any) -> str:
        before = contents(scene.folder / "saved"), contents(scene.folder / "joined"), len(sparks)
        with pytest.raises(DefinitionError) as caught:
            scene.run(job, path=savepoint, **more)
        assert before == (contents(scene.folder / "saved"), contents(scene.folder / "joined"), len(sparks))
        assert not (scene.folder / "refused").exists()
        assert caught.value.next
        return caught.value.what

    def changed(**windows: Any) -> str:
        return refused(scene.first("refused", **windows))

    assert "stateful 'sums' cannot be restored: its windows were tumbling" in changed(size="30 s")
    assert "stateful 'sums' cannot be restored: its keys were user and are n" in changed(
        key="n", columns=("n", "total", "rows")
    )
    assert (
        "stateful 'sums' cannot be restored: its aggregates were sum(n) as total, count(*) as rows and are"
        in changed(aggregates=("max(n) as total", "count(*) as rows"))
    )
    renamed = changed(name="totals")
    assert "stateful 'sums'" in renamed
    assert "'totals'" in renamed

    job = scene.job("refused")
    events = job.from_source(scene.source(scene.events, SCHEMA), name="events")
    scene.windows(events)
    missing = refused(job)
    for id in ("source 'clicks'", "source 'extra'", "stateful 'join'", "sink 'spare'"):
        assert id in missing
    assert "stateful 'twice'" not in missing, "a DataFrame function keeps nothing from one checkpoint to the next"

    job = scene.job("refused")
    events = job.from_source(scene.source(scene.events, SCHEMA), name="events")
    scene.windows(events)
    clicks = job.from_source(scene.source(scene.clicks, "click bigint"), name="clicks")
    scene.join(events, clicks, key="n + 1")
    events.apply(lambda a, b: a.union(b), events, name="twice").sink_to(scene.sink("twice"), name="twice-files")
    job.from_source(scene.source(scene.extra), name="extra").sink_to(scene.sink("spare", row="value"), name="spare")
    assert "stateful 'join' cannot be restored: its keys were" in refused(job)

    (scene.folder / "in").mkdir()
    (scene.folder / "in" / "a.txt").write_text("a\n")
    job = scene.job("refused")
    job.from_source(FileSource(str(scene.folder / "in")), name="extra").sink_to(
        scene.sink("spare", row="value"), name="spare"
    )
    events = job.from_source(scene.source(scene.events, SCHEMA), name="events")
    scene.windows(events)
    scene.join(events, job.from_source(scene.source(scene.clicks, "click bigint"), name="clicks"))
    events.apply(lambda a, b: a.union(b), events, name="twice").sink_to(scene.sink("twice"), name="twice-files")
    assert "source 'extra' cannot be restored: its class was KafkaSource and is FileSource" in refused(job)


def test_a_job_changes_between_a_savepoint_and_its_restore(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], sparks: list[str]
) -> None:
    scene = Scene(tmp_path, kafka_broker, new_topic)
    scene.produce(range(201), range(0, 100, 2), b"no json")
    kafka_broker.produce(scene.extra, [b"spare %d" % i for i in range(10)])
    with scene.running(scene.first()) as save:
        first = save(202 + 50 + 10)
    assert len(scene.files("joined")) == 0, "it waits in the savepoint"
    refusals(scene, first, sparks)

    # Sources and operators with state in another order and a source less, a sink less with what waited in it; one more of
    # both; another filter, projection and interval.
    job = scene.job("second", interval="50 ms")
    clicks = job.from_source(scene.source(scene.clicks, "click bigint"), name="clicks")
    events = job.from_source(scene.source(scene.events, SCHEMA), name="events")
    scene.join(events, clicks, shown="n, 'second' as version")
    scene.windows(events.where("n % 3 = 0", name="third"))
    twice = events.apply(lambda a, b: a.where("n < 3").unionByName(b.where("n < 2")), events, name="twice")
    twice.sink_to(scene.sink("twice", format="json"), name="twice-files")
    job.from_source(scene.source(scene.more), name="more").sink_to(scene.sink("more", row="value"), name="more-files")
    scene.produce(range(201, 402), range(100, 402, 2), b"no json either")
    kafka_broker.produce(scene.more, [b"more"])
    scene.lines.clear()
    with scene.running(job, path=first, allow_non_restored=True) as save:
        second = save(202 + 151 + 1, drain=True)
    said = "\n".join(scene.lines)
    assert "Not restored: source extra\n" in said
    assert "Not restored: sink spare, and 10 rows that waited in it" in said
    assert "Not in the savepoint: source more; it begins where it is set to start" in said

    # What was left out comes back, under its old name, and an operator that has none.
    job = scene.first("third")
    more = job.from_source(scene.source(scene.more))
    more.sink_to(scene.sink("unnamed", row="value"))
    assert "note: without a name: source-0, sink-0" in job.explain()
    scene.lines.clear()
    with scene.running(job, path=second, allow_non_restored=True) as save:
        save(10 + 1, drain=True)
    assert "Not restored: sink more-files\n" in "\n".join(scene.lines)
    assert scene.files("spare") == [b"spare %d" % i for i in range(10)], "it was read from its start"
    assert scene.files("more") == scene.files("unnamed") == [b"more"]

    seen = Counter(json.loads(line)["n"] for line in scene.files("joined"))
    assert seen == Counter(range(0, 402, 2)), "some of them met a click that came after the savepoint"
    assert Counter(json.loads(line)["n"] for line in scene.files("twice")) == Counter([0, 1, 2, 0, 1])
    assert scene.sums() == model([n for n in range(402) if n <= 200 or n % 3 == 0])
    dead = Counter(json.loads(line)["value"] for line in scene.files("dead"))
    assert dead == {"no json": 1, "no json either": 1}, "each record is read once, whoever takes it"


def test_the_name_changes_on_a_plain_start(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], sparks: list[str]
) -> None:
    """From topic to topic in transactions: what the old name left open, and where it had come to, is the new one's."""
    scene = Scene(tmp_path, kafka_broker, new_topic)

    def copying(name: str) -> Job:
        job = Job(name, checkpoint_interval="100 ms", parallelism=1, on_error="fail")
        job.from_source(scene.source(scene.extra), name="extra").sink_to(
            KafkaSink(kafka_broker.bootstrap_servers, scene.counts), name="copied"
        )
        return job

    where, lines, ids = settings(tmp_path, "kept"), list[str](), set[str]()
    names = (f"before-{scene.extra}", f"behind-{scene.extra}")
    for number, name in enumerate(names):
        kafka_broker.produce(scene.extra, [Record(b"%d/%d" % (number, i)) for i in range(10)])
        running = Running(copying(name), where)
        running.until(lambda running=running: running.progress.rows_read >= 10)  # type: ignore[misc]
        running.stop.stop()
        running.end()
        lines += running.lines
        found = read_identity(LocalStorage(str(tmp_path / "kept")))
        assert found is not None
        assert found.name == name
        ids.add(found.job_id)
    (id,) = ids
    assert lines.count(f"Job {id} was called {names[0]} and is {names[1]} now") == 1
    assert Counter(record.value for record in kafka_broker.read(scene.counts)) == Counter(
        b"%d/%d" % (number, i) for number in (0, 1) for i in range(10)
    )
    for name, offset in zip(names, (10, 20), strict=True):
        consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": f"poundlock-{name}"})
        try:
            [place] = consumer.committed([TopicPartition(scene.extra, 0)], timeout=30)
        finally:
            consumer.close()
        assert place.offset == offset, "each name has a group of its own; nothing is read from it"
