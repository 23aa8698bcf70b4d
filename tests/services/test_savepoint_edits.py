"""Windows over Kafka whose savepoint is rescaled, edited, and restored, with a real broker and Spark and equal sums."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, Job, KafkaSource, RollingPolicy, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.checkpoint.identity import read_identity
from poundlock.cli.main import main
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.savepoints.restore import Beginning, begin
from poundlock.failpoints import SavepointFailpoint
from poundlock.plan.plan import make_plan
from poundlock.savepoint import restore
from poundlock.savepoint.metadata import read_metadata
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.values import SystemClock
from support.jobs_in_threads import until_saved

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("shared_jvm")]

TOPIC = "edits"
START = 1_545_184_220  # a multiple of the windows' size
SIZE, DELAY, USERS = 20, 5, 37
QUICK = ("master=local[2]", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")

Sums = dict[tuple[str, int], tuple[int, int]]


def model(rows: Iterable[int]) -> Sums:
    """Return (user, start) -> sum and count, for each window: a drain fires those that are open."""
    found: Sums = {}
    for i in rows:
        start = int((START + i / 10) // SIZE) * SIZE
        total, count = found.get((f"u{i % USERS}", start), (0, 0))
        found[f"u{i % USERS}", start] = (total + i, count + 1)
    return found


class Scene:
    """A topic that grows, row i in partition i % 2, and jobs over it."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka) -> None:
        self.folder, self.kafka = folder, kafka
        self.rows = 0
        self.lines: list[str] = []
        kafka.create_topic(TOPIC, 2)

    def produce(self, count: int) -> None:
        made = range(self.rows, self.rows + count)
        rows = [json.dumps({"ts": START + i / 10, "user": f"u{i % USERS}", "n": i}).encode() for i in made]
        self.kafka.produce(TOPIC, [Record(row, partition=i % 2) for i, row in zip(made, rows, strict=True)])
        self.rows += count

    def job(self, name: str, output: str = "out") -> Job:
        job = Job("edited", checkpoint_interval="100 ms", checkpoint_dir=str(self.folder / name))
        source = KafkaSource(
            bootstrap_servers=self.kafka.bootstrap_servers,
            topics=TOPIC,
            format="json",
            schema="ts double, user string, n bigint",
        )
        (
            job.from_source(source, name="events-in")
            .assign_timestamps_and_watermarks(
                WatermarkStrategy.bounded_out_of_orderness(
                    f"{DELAY} s", timestamp="timestamp_millis(bigint(round(ts * 1000)))"
                ),
                name="event-time",
            )
            .key_by("user")
            .window(TumblingEventTimeWindows(f"{SIZE} s"))
            .aggregate("sum(n) as total", "count(*) as rows", name="sums")
            .select("user", "unix_millis(window_start) as start_ms", "total", "rows")
            .sink_to(
                FileSink(str(self.folder / output), format="json", rolling=RollingPolicy(every="1 h", inactivity=None)),
                name="out",
            )
        )
        return job

    def running(self, job: Job, *options: str, **beginning: Any) -> AbstractContextManager[Callable[..., str]]:
        """Run a job until it is saved, see `until_saved`."""
        settings = load_settings([f"state_dir={self.folder}/state", *QUICK, *options])
        start = Beginning(**beginning) if beginning else None
        return until_saved(partial(run, job, settings=settings, beginning=start), self.folder / "saved", self.lines)

    def sums(self, output: str = "out") -> Sums:
        values: Sums = {}
        for path in (self.folder / output).rglob("part-*"):
            for row in map(json.loads, path.read_text().splitlines()):
                key = row["user"], row["start_ms"] // 1000
                assert key not in values, f"{key} came twice"
                values[key] = row["total"], row["rows"]
        return values


def half_restored(scene: Scene, path: str) -> None:
    """Leave what a restore leaves that is killed when its files are copied: a folder that is no job's yet."""
    job, checkpoint = scene.job("second"), LocalStorage(str(scene.folder / "second"))

    def killed(failpoint: Any) -> None:
        if failpoint is SavepointFailpoint.RESTORE_COPIED:
            raise InterruptedError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "hit", killed)
        with pytest.raises(InterruptedError, match="killed"):
            begin(make_plan(job), checkpoint, Beginning(path), clock=SystemClock(), say=scene.lines.append)
    assert read_identity(checkpoint) is None
    assert list((scene.folder / "second/state").rglob("*")), "its state was copied before"


def edited(capsys: pytest.CaptureFixture[str], path: str, *arguments: str) -> str:
    assert main(["savepoint", "edit", path, *arguments, "--json"]) == 0
    return str(json.loads(capsys.readouterr().out)["savepoint"])


def test_state_is_rescaled_offsets_are_set_and_state_is_left_out(
    tmp_path: Path, kafka_broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path, kafka_broker)
    scene.produce(900)
    with scene.running(scene.job("first"), "parallelism=3") as save:
        first = save(900)

    # More tasks share the key groups, after a restore that was killed in the middle; the job owns the savepoint.
    scene.produce(500)
    half_restored(scene, first)
    with scene.running(scene.job("second"), "parallelism=5", path=first, claim="CLAIM") as save:
        second = save(500)
    assert not Path(first).exists(), "it was claimed, and the job had a checkpoint of its own"

    before = {path: path.read_bytes() for path in Path(second).rglob("*") if path.is_file()}
    assert main(["savepoint", "inspect", second, "--json", "--state"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["state"]["rows"] == {"sums": USERS}, "one window is open for each user"
    assert said["state"]["key_groups"] == scene.job("second").max_parallelism
    assert said["pending"]["out"]
    assert said["damage"] == []
    assert before == {path: path.read_bytes() for path in Path(second).rglob("*") if path.is_file()}
    assert main(["state", second, "sums", "--limit", "100", "--json"]) == 0
    (sums,) = json.loads(capsys.readouterr().out)
    assert {entry["key"] for entry in sums["state"]["contents"]["entries"]} == {f"u{n}" for n in range(USERS)}

    # Fewer tasks, and ten rows of one partition once more; the savepoints are taken away while the job runs.
    back = edited(capsys, second, "--offset", f"{TOPIC}:0=690")
    scene.produce(400)
    with scene.running(scene.job("third"), "parallelism=2", path=back) as save:
        while f"Restored from savepoint {back}" not in "".join(scene.lines):
            time.sleep(0.05)
        shutil.rmtree(second)
        shutil.rmtree(back)
        third = save(410, drain=True)
    again = range(1380, 1400, 2)
    assert scene.sums() == model([*range(scene.rows), *again])

    # The state left out: event time starts over, and the source where the savepoint, as it was edited, says.
    fresh = edited(capsys, third, "--drop-operator", "sums", "--offset", f"{TOPIC}:1=880")
    assert not [path for path in read_metadata(LocalStorage(fresh)).files if path.startswith("state/")]
    seen = scene.rows
    scene.produce(600)
    with scene.running(scene.job("fourth", "anew"), path=fresh) as save:
        save(620, drain=True)
    assert scene.sums("anew") == model([*range(1761, seen, 2), *range(seen, scene.rows)])
