"""`poundlock torture` on a job of a user: it dies as planned, its output is that of an undisturbed run, and what is broken is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.job_loader import load_job
from poundlock.cli.torture.control import break_output
from poundlock.cli.torture.outputs import comparisons
from poundlock.cli.torture.sandbox import PLAN, RUNS, Sandbox
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from support.server_commands import commands_of

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/orders.py"


def torture(folder: Path, *words: str, job: Path = JOB, **environment: str) -> dict[str, Any]:
    """Torture a job in a folder, and return the report; the exit code is that of a job that survives."""
    own = {
        "CHECKPOINT": str(folder / "checkpoint"),
        "OUT": str(folder / "out"),
        "POUNDLOCK_STATE_DIR": str(folder / "state"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "poundlock.cli.main", "torture", str(job), "-p", "2", "--json", *words],
        cwd=folder, env={**os.environ, **own, **environment}, capture_output=True, text=True, timeout=3_000,
    )  # fmt: skip
    print(done.stderr)
    assert done.returncode == 0, done.stdout
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["agrees"]
    assert not (folder / "out").exists()
    assert not (folder / "checkpoint").exists()
    return report


def given(folder: Path, files: int) -> str:
    (folder / "given").mkdir()
    for number in range(files):
        rows = [{"id": number * 50 + each, "customer": f"c{each % 7}"} for each in range(50)]
        (folder / f"given/{number:03}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder / "given")


def test_a_job_over_files_survives_and_a_broken_output_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: of the very output that agreed a file is removed, and then the comparison fails."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    sandbox, source = tmp_path / "sandbox", given(tmp_path, 8)
    report = torture(
        tmp_path, "--at", "sink.writing", "--at", "decision.recorded@2", "--sandbox", str(sandbox), GIVEN=source
    )
    assert {each["kill"]["what"] for each in report["tortured"]["struck"]} == {"sink.writing", "decision.recorded"}
    assert report["tortured"]["lives"] == 2
    assert {sink["sink"]: sink["records"] for sink in report["sinks"]}["by-customer"] == 400
    for name, value in {"CHECKPOINT": "c", "OUT": "o", "GIVEN": source}.items():
        monkeypatch.setenv(name, value)
    job, made = load_job(str(JOB)), Sandbox.of(sandbox / PLAN)
    assert all(sink.agrees for sink in comparisons(job, made, RUNS))
    break_output(job, made, "lost")
    assert [sink.sink for sink in comparisons(job, made, RUNS) if not sink.agrees] == ["by-customer"]


@pytest.mark.torture
@pytest.mark.parametrize("control", [None, "doubled"])
def test_a_job_over_topics_survives_kills_of_chance(
    kafka_broker: EmbeddedKafka, control: str | None, tmp_path: Path
) -> None:
    kafka = kafka_broker
    rows = [json.dumps({"id": number, "customer": f"c{number % 7}"}) for number in range(5_000)]
    for name in ("orders", "copies"):
        if name in kafka.admin.list_topics(timeout=30).topics:
            kafka.delete_topic(name)
        kafka.create_topic(name, 3)
    kafka.produce("orders", rows)
    seed = os.environ.get("POUNDLOCK_TORTURE_SEED")
    words = ["--kills", os.environ.get("POUNDLOCK_TORTURE_KILLS", "12"), *(["--seed", seed] if seed else [])]
    if control is not None:
        words = ["--at", "checkpoint.done", "--control", control]
    report = (
        torture(tmp_path, *words, SERVERS=kafka.bootstrap_servers)
        if control is None
        else broken(tmp_path, words, kafka, sink="copies")
    )
    assert {sink["sink"] for sink in report["sinks"]} == {"copies", "by-customer", "counts"}
    assert kafka.read("copies") == [], "nothing came to the topic of the user"
    assert not [name for name in kafka.admin.list_topics(timeout=30).topics if name.startswith("poundlock-torture-")]


def broken(folder: Path, words: Sequence[str], kafka: EmbeddedKafka, *, sink: str, **more: Any) -> dict[str, Any]:
    """Return the report of a job whose output is broken, which has to be found."""
    with pytest.raises(AssertionError) as found:
        torture(folder, *words, SERVERS=kafka.bootstrap_servers, **more)
    report: dict[str, Any] = json.loads(str(found.value).partition("\n")[0])
    assert not report["agrees"]
    assert [each["doubled"] for each in report["sinks"] if each["sink"] == sink] != [0]
    return report


@pytest.mark.torture
@pytest.mark.parametrize("control", [None, "doubled"])
def test_a_job_survives_the_death_of_its_broker_and_its_database_too(
    own_kafka_broker: EmbeddedKafka, postgres_server: EmbeddedPostgres, control: str | None, tmp_path: Path
) -> None:
    """Real servers, whose stop and start commands are given; driver, JVM and workers die besides."""
    kafka, seed = own_kafka_broker, os.environ.get("POUNDLOCK_TORTURE_SEED", "5")
    for name in ("orders", "copies"):
        kafka.create_topic(name, 3)
    kafka.produce("orders", [json.dumps({"id": number, "customer": f"c{number % 7}"}) for number in range(4_000)])
    postgres_server.execute(
        "CREATE TABLE IF NOT EXISTS customers (customer text PRIMARY KEY, region text)",
        "INSERT INTO customers SELECT 'c' || n, 'r' || n % 3 FROM generate_series(0, 6) n ON CONFLICT DO NOTHING",
    )
    with commands_of({"kafka": kafka, "postgres": postgres_server}) as servers:
        given = [
            word
            for name in ("kafka", "postgres")
            for what in ("stop", "start")
            for word in (f"--{what}-service", servers.command(name, what))
        ]
        words = ["--seed", seed, "--kills", os.environ.get("POUNDLOCK_TORTURE_KILLS", "6"), *given]
        own: dict[str, Any] = {"job": JOB.parent / "looked_up.py", "CATALOG": postgres_server.dsn}
        if control is None:
            report = torture(tmp_path, *words, SERVERS=kafka.bootstrap_servers, **own)
        else:
            report = broken(tmp_path, [*words, "--control", control], kafka, sink="copies", **own)
        assert set(servers.asked) == {f"{name} {what}" for name in ("kafka", "postgres") for what in ("stop", "start")}
    assert {sink["sink"] for sink in report["sinks"]} == {"copies", "by-region"}
    assert {sink["sink"]: sink["lost"] for sink in report["sinks"]} == {"copies": 0, "by-region": 0}
    assert kafka.read("copies") == [], "nothing came to the topic of the user"
