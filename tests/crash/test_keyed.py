"""A job of windows, timers, sessions and late rows dies again and again, and gives what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.job_process import JobProcess
from poundlock.testing.kafka import EmbeddedKafka
from support.finished import lines_by_sink
from support.lives import Lives, failpoint_setting, files_found, folders_of
from support.scripted_scaler import NEXT
from support.stores import LOCAL_FIRST, Store
from support.torture import tortured
from support.undisturbed import difference, undisturbed

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/keyed.py"
BASE = 1_545_184_220_000
TOPICS = ("quiet", "sessions", "counts-too", "late-too")
SINKS = ("counts", "late", "numbered", *TOPICS)
_AHEAD = 4


def write_input(folder: Path, seed: int, files: int, rows: int = 40) -> None:
    """Write files that go on by some seconds each; some rows are late, a few of them beyond what is allowed."""
    made = random.Random(seed)
    folder.mkdir()
    for number in range(files):
        write_file(folder, made, number, rows)


def write_file(folder: Path, made: random.Random, number: int, rows: int = 40) -> None:
    lines = []
    for _ in range(rows):
        behind = made.choice([0, 0, 0, 1_000, 4_000, 9_000, 14_000, 40_000])
        at = BASE + 5_000 * number + made.randrange(5_000) - behind
        lines.append(json.dumps({"k": f"k{made.randrange(7)}", "at": at}) + "\n")
    hidden = folder / f".{number:05d}.jsonl"
    hidden.write_text("".join(lines))
    hidden.rename(folder / f"{number:05d}.jsonl")


@LOCAL_FIRST
def test_killed_with_windows_and_timers_open(tmp_path: Path, store: Store) -> None:
    """The checkpoint folder, with all keyed state, is on the store; what is read and written is on the local disk."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    write_input(tmp_path / "in", seed, 10)
    wanted = undisturbed(JOB, tmp_path / "undisturbed", tmp_path / "in", SINKS)
    points = [Failpoint.STATE_WRITING, Failpoint.SINK_PREPARED, Failpoint.DECISION_RECORDED, Failpoint.CHECKPOINT_DONE]
    deaths = failpoint_setting("kill", tmp_path / "hit", times=3, points=points)
    given = {
        **folders_of(tmp_path, tmp_path / "in"),
        "CRASH_CHECKPOINTS": store.at("checkpoints"),
        **store.environment,
    }
    with Lives(JOB, environment=given, folder=tmp_path, arguments=store.arguments) as lives:
        lives.run(POUNDLOCK_FAILPOINTS=deaths)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == {point.value for point in points}
    assert not difference(lines_by_sink(tmp_path / "out"), wanted), f"seed {seed}"


@pytest.mark.torture
@pytest.mark.services
def test_killed_everywhere_into_files_and_topics(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} gives the same input")
    write_input(tmp_path / "in", seed, 40)
    wanted = undisturbed(JOB, tmp_path / "undisturbed", tmp_path / "in", SINKS)
    given = {
        **folders_of(tmp_path, tmp_path / "in"),
        "CRASH_SERVERS": kafka_broker.bootstrap_servers,
        "CRASH_TOPIC": f"keyed-{seed}",
    }
    hits = [tmp_path / f"hit{times}" for times in (2, 3)]
    deaths = ",".join(failpoint_setting("kill", hit, times=times) for times, hit in enumerate(hits, 2))
    with Lives(JOB, environment=given, folder=tmp_path, patience_s=1_800) as lives:
        lives.run(most=60, POUNDLOCK_FAILPOINTS=deaths)
    for hit in hits:
        assert {path.name for path in hit.iterdir()} == {point.value for point in Failpoint}
    assert not difference(seen_with_topics(tmp_path, kafka_broker, seed), wanted), f"seed {seed}"


def seen_with_topics(folder: Path, broker: EmbeddedKafka, seed: int) -> dict[str, Counter[str]]:
    seen = lines_by_sink(folder / "out")
    for topic in TOPICS:
        records = broker.read(f"keyed-{seed}-{topic}")
        seen[topic] = Counter(record.value.decode() for record in records if record.value is not None)
    return seen


@pytest.mark.torture
@pytest.mark.services
def test_killed_at_random_into_files_and_topics(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    seed = random.randrange(1 << 30)
    given = {
        **folders_of(tmp_path, tmp_path / "in"),
        "CRASH_SERVERS": kafka_broker.bootstrap_servers,
        "CRASH_TOPIC": f"keyed-{seed}",
        "CRASH_WATCH": "1",
    }
    made, written = random.Random(seed), 0
    (tmp_path / "in").mkdir()

    def produce() -> None:
        """Keep a few files ahead: each is a checkpoint, and the undisturbed run has to take them all once more."""
        nonlocal written
        newest = Ledger(LocalStorage(str(tmp_path / "checkpoints"))).newest()
        if written < _AHEAD + (0 if newest is None else newest.checkpoint):
            write_file(tmp_path / "in", made, written)
            written += 1

    with Lives(JOB, environment=given, folder=tmp_path, patience_s=1_800) as lives:
        job = tortured(lives.start, produce, int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "30")))
        job = lives.until(lambda: files_found(tmp_path / "checkpoints", "rows") == written, job)
        assert lives.stop(job) == 0
        lives.run(CRASH_WATCH="0")  # reads what is left, and ends
    wanted = undisturbed(JOB, tmp_path / "undisturbed", tmp_path / "in", SINKS)
    assert not difference(seen_with_topics(tmp_path, kafka_broker, seed), wanted), f"seed {seed}"


# --- with another parallelism at every border -----------------------------------------------------------------------


def killed_while_scaled(
    folder: Path, files: int, points: Sequence[Failpoint], lives_each: Sequence[int], more: Mapping[str, str]
) -> None:
    """Let the job die at each of the points, in checkpoints with another parallelism than the one before, and end."""
    hits = [folder / f"hit{times}" for times in lives_each]
    deaths = ",".join(
        failpoint_setting("kill", hit, times=times, points=points) for times, hit in zip(lives_each, hits, strict=True)
    )
    given = {**folders_of(folder, folder / "in"), "CRASH_WATCH": "1", "CRASH_SCALES": "1", **more}
    with Lives(JOB, environment=given, folder=folder, patience_s=1_800) as lives:

        def start(lives: Lives = lives) -> JobProcess:
            return lives.start(POUNDLOCK_FAILPOINTS=deaths)

        job, ledger = start(), Ledger(LocalStorage(str(folder / "checkpoints")))
        while (newest := ledger.newest()) is None or newest.checkpoint < files - 1 or job.exit_code is not None:
            if job.exit_code is not None:
                lives.end(job)
                job = start()
            job.wait_line(lambda value: value.get("last_ms") is not None, seconds=1)
        assert lives.stop(job) in (0, -9)
        lives.run(CRASH_WATCH="0", CRASH_SCALES="0")  # what the stop left unread, and the end of event time
    for hit in hits:
        assert {path.name for path in hit.iterdir()} == {point.value for point in points}


def assert_scaled(folder: Path) -> None:
    """Assert that parallelism followed the script within each life, and that each life began with what the one before had decided."""
    before, epoch = None, -1
    changes = 0
    for record in Ledger(LocalStorage(str(folder / "checkpoints"))):
        now = record.parallelism
        if record.occasion == "start" and before is not None:
            assert now == before, "a start repeats what was decided"
        if record.occasion == "checkpoint" and record.redo == {} and before is not None:
            allowed = {before} if record.epoch != epoch else {before, NEXT.get(before)}
            assert now in allowed or now == 2, (record.number, before, now)
            changes += now != before
            epoch = record.epoch
        before = now if now is not None else before
    assert changes >= 4


def test_killed_at_the_border_where_tasks_are_added(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    write_input(tmp_path / "in", seed, 14)
    wanted = undisturbed(JOB, tmp_path / "undisturbed", tmp_path / "in", SINKS)
    killed_while_scaled(tmp_path, 14, [Failpoint.STATE_WRITING, Failpoint.DECISION_RECORDED], [2], {})
    assert_scaled(tmp_path)
    assert not difference(lines_by_sink(tmp_path / "out"), wanted), f"seed {seed}"


@pytest.mark.torture
@pytest.mark.services
def test_killed_everywhere_with_tasks_added_and_taken_away(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    write_input(tmp_path / "in", seed, 60)
    wanted = undisturbed(JOB, tmp_path / "undisturbed", tmp_path / "in", SINKS)
    topics = {"CRASH_SERVERS": kafka_broker.bootstrap_servers, "CRASH_TOPIC": f"keyed-{seed}"}
    killed_while_scaled(tmp_path, 60, list(Failpoint), [2, 3], topics)
    assert_scaled(tmp_path)
    assert not difference(seen_with_topics(tmp_path, kafka_broker, seed), wanted), f"seed {seed}"
