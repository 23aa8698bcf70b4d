"""A streaming query of the user's own with our sinks: killed at every step of a batch, it writes every row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.transactions import transactions
from poundlock.failpoints import ENVIRONMENT, Failpoint
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from support.lives import DRIVERS, STATELESS, failpoint_setting

pytestmark = pytest.mark.crash

JOBS = Path(__file__).parent / "jobs"
JOB, THREE_SINKS, TOPIC = JOBS / "foreach_batch.py", JOBS / "foreach_three_sinks.py", JOBS / "foreach_topic.py"
FILES, ROWS = 6, 400
_LIFE_S = 400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    _write_input(tmp_path, range(FILES))
    return tmp_path


def _write_input(folder: Path, files: range) -> None:
    """Write files of input: each is a batch of the query."""
    for number in files:
        rows = range(number * ROWS, (number + 1) * ROWS)
        text = "".join(json.dumps({"n": n, "text": f"row {n}"}) + "\n" for n in rows)
        (folder / "in" / f"{number:03d}.json").write_text(text)


def _life(folder: Path, job: Path, arguments: Sequence[str], failpoints: str) -> int:
    """Run the query until it ends or is killed; what is left of its session is ended."""
    # A life lasts seconds: compiling further than C1 would cost more than it gives back.
    quick = {"PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    environment = {**os.environ, ENVIRONMENT: failpoints, **quick}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(job), str(folder), *arguments],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(_LIFE_S)
        finally:
            if process.poll() is None or process.returncode != 0:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _lives(folder: Path, failpoints: str, arguments: Callable[[int], Sequence[str]], job: Path = JOB) -> int:
    """Run the query again each time that it is killed; return how many lives it took. `arguments` are those of a life."""
    for life in range(1, 30):
        code = _life(folder, job, arguments(life), failpoints)
        if code == 0:
            return life
        assert code == -signal.SIGKILL, (folder / "log").read_text()[-4000:]
    raise AssertionError("it never ended")


def _written(folder: Path) -> Counter[int]:
    return Counter(
        json.loads(line)["n"]
        for path in folder.rglob("*.jsonl")
        if not path.name.startswith((".", "_"))
        for line in path.read_text().splitlines()
    )


@pytest.mark.torture
def test_killed_at_every_failpoint(folder: Path) -> None:
    _write_input(folder, range(FILES, 2 * FILES))  # a batch for each death
    hit = folder / "hit"
    lives = _lives(folder, failpoint_setting("kill", hit, times=2), lambda life: [str(folder / "ledger")])
    assert {path.name for path in hit.iterdir()} == {point.value for point in STATELESS}
    assert lives > len(DRIVERS)
    every = Counter(range(2 * FILES * ROWS))
    assert _written(folder / "each") == every
    assert _written(folder / "full") == every
    for bucket in range(3):
        assert {n % 3 for n in _written(folder / "each" / f"k={bucket}")} == {bucket}


@pytest.mark.torture
def test_control_without_its_ledger_it_writes_twice(folder: Path) -> None:
    points = [Failpoint.SINK_COMMITTED]
    _lives(
        folder,
        failpoint_setting("kill", folder / "hit", times=2, points=points),
        lambda life: [str(folder / f"ledger{life}")],
    )
    written = _written(folder / "each")
    assert written != Counter(range(FILES * ROWS))
    assert written.total() > FILES * ROWS


@pytest.mark.services
def test_three_sinks_of_one_query_agree(
    folder: Path, crash_broker: EmbeddedKafka, postgres_server: EmbeddedPostgres
) -> None:
    """Killed where one sink is visible and another is not."""
    name = f"foreach_{folder.name}".replace("-", "_")[:40].lower() + f"_{os.getpid()}"
    crash_broker.create_topic(name, 3)
    postgres_server.execute(f"CREATE TABLE {name} (value text NOT NULL)")
    points = [Failpoint.DECISION_RECORDED]
    arguments = [crash_broker.bootstrap_servers, name, postgres_server.dsn, name]
    hit = folder / "hit"
    lives = _lives(folder, failpoint_setting("kill", hit, times=2, points=points), lambda life: arguments, THREE_SINKS)
    assert {path.name for path in hit.iterdir()} == {point.value for point in points}
    assert lives == 2
    wanted = Counter(line for path in (folder / "in").iterdir() for line in path.read_text().splitlines())
    files = [path for path in (folder / "files").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert Counter(line for path in files for line in path.read_text().splitlines()) == wanted
    assert Counter(value for (value,) in postgres_server.execute(f"SELECT value FROM {name}")) == wanted
    assert Counter(r.value.decode() for r in crash_broker.read(name) if r.value is not None) == wanted
    assert postgres_server.execute("SELECT gid FROM pg_prepared_xacts") == []


@pytest.mark.torture
@pytest.mark.services
def test_a_transaction_that_timed_out_behind_the_decision(folder: Path, crash_broker: EmbeddedKafka) -> None:
    """The broker loses what was decided; the batch is delivered again, and written once more to the topic alone."""
    topic = f"foreach_timed_out_{os.getpid()}"
    crash_broker.create_topic(topic, 1)
    arguments = [crash_broker.bootstrap_servers, topic]
    setting = f"{Failpoint.DECISION_RECORDED.value}:kill@2;once={folder / 'killed'}"
    assert _life(folder, TOPIC, arguments, setting) == -signal.SIGKILL, (folder / "log").read_text()[-4000:]
    ours = transactions(crash_broker.bootstrap_servers, KafkaSecurity())
    lost = [name for name in ours.ongoing() if name.startswith(f"{topic}.")]
    assert lost, "what was decided is not committed"
    deadline = time.monotonic() + _LIFE_S
    while {name for name in ours.ongoing() if name.startswith(f"{topic}.")}:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert _life(folder, TOPIC, arguments, setting) == 0, (folder / "log").read_text()[-4000:]
    wanted = Counter(line for path in (folder / "in").iterdir() for line in path.read_text().splitlines())
    files = [path for path in (folder / "files").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert Counter(line for path in files for line in path.read_text().splitlines()) == wanted
    assert Counter(r.value.decode() for r in crash_broker.read(topic) if r.value is not None) == wanted
