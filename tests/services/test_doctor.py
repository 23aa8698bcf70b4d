"""`poundlock doctor job.py` on real servers: what a job's start would refuse is refused, nothing is left behind, and clocks are compared."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from poundlock.cli.main import main
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.values import SystemClock

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("own_folder")]


def examined(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    Path("job.py").write_text(text)
    main(["doctor", "job.py", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return {check["name"] + (f" of {check['found']}" if check["name"] == "clock" else ""): check for check in checks}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is a minute slow."""
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: time.time_ns() // 1_000_000 - 60_000)


KAFKA = """
from poundlock import Job, KafkaSink, KafkaSource

job = Job("copy", checkpoint_dir="checkpoint", on_error="fail")
job.from_source(KafkaSource(bootstrap_servers={servers!r}, topics={topic!r}), name="in").sink_to(
    KafkaSink({servers!r}, {out!r}, transactional_id_prefix={prefix!r}, marker_topic={markers!r}, create_topic={create}), name="out")
"""


@pytest.fixture
def kafka(kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> dict[str, Any]:
    tag = uuid.uuid4().hex[:8]
    servers = kafka_broker.bootstrap_servers
    own = {"out": f"out-{tag}", "prefix": f"p{tag}", "markers": f"markers-{tag}", "create": 2}
    return {"servers": servers, "topic": new_topic(), **own}


def topics(servers: str) -> set[str]:
    return set(Cluster(servers, {}).partitions())


def test_topics_that_the_start_would_make_are_named_and_not_made(
    kafka: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = topics(kafka["servers"])
    checks = examined(KAFKA.format(**kafka), capsys)
    assert topics(kafka["servers"]) == before
    assert [check for check in checks.values() if not check["ok"] and "memory" not in check["name"]] == []
    assert f"the job's start makes topic '{kafka['out']}', topic '{kafka['markers']}'" in checks["sink out"]["found"]


def test_a_topic_that_nobody_makes_is_a_problem(kafka: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    checks = examined(KAFKA.format(**{**kafka, "create": None, "topic": "nowhere"}), capsys)
    assert f"topic '{kafka['out']}' does not exist" in checks["sink out"]["found"]
    assert "kafka-topics.sh --create" in checks["sink out"]["next"]
    assert "nowhere" in checks["source in"]["found"]


def test_a_broker_tells_its_time_by_a_transaction(
    kafka: dict[str, Any], new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = KAFKA.format(**{**kafka, "out": new_topic(), "markers": new_topic()})
    checks = examined(text, capsys)
    assert checks[f"clock of Kafka at {kafka['servers']}: as here"]["ok"]
    assert not any("newest record" in name for name in checks)


@pytest.mark.usefixtures("late")
def test_a_brokers_clock_that_differs_is_a_problem(
    kafka_broker: EmbeddedKafka,
    kafka: dict[str, Any],
    new_topic: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stamped = new_topic(message_timestamp_type="LogAppendTime")
    kafka_broker.produce(stamped, [b"1"])
    text = KAFKA.format(**{**kafka, "out": new_topic(), "markers": new_topic(), "topic": stamped})
    (broker, record) = (
        check
        for name, check in sorted(examined(text, capsys).items())
        if name.startswith("clock of") and "Kafka" in name
    )
    for check in (broker, record):
        assert not check["ok"]
        assert check["found"].endswith("ahead of this machine's clock")
    assert record["found"].startswith("the newest record of Kafka at")


POSTGRES = """
from poundlock import Job, PostgresSink, PostgresSource

job = Job("rows", checkpoint_dir="checkpoint", on_error="fail")
job.from_source(PostgresSource({dsn!r}, table="source_rows"), name="in").sink_to(
    PostgresSink({out!r}, "sink_rows", key=["id"], marker_table="markers_of_doctor"), name="out")
"""


@pytest.fixture
def tables(postgres_server: EmbeddedPostgres) -> EmbeddedPostgres:
    for name in ("source_rows", "sink_rows"):
        postgres_server.execute(
            f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} (id bigint PRIMARY KEY, word text)"
        )
    return postgres_server


def test_a_database_is_asked_and_nothing_stays(
    tables: EmbeddedPostgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = POSTGRES.format(dsn=tables.dsn, out=tables.dsn)
    checks = examined(text, capsys)
    assert 'the job\'s start makes the table of markers "markers_of_doctor"' in checks["sink out"]["found"]
    assert tables.execute("SELECT to_regclass('markers_of_doctor')") == [(None,)]
    (clock,) = (check for name, check in checks.items() if "PostgreSQL" in name)
    assert clock["ok"]
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: time.time_ns() // 1_000_000 + 60_000)
    (clock,) = (check for name, check in examined(text, capsys).items() if "PostgreSQL" in name)
    assert not clock["ok"]
    assert "behind this machine's clock" in clock["found"]


def test_a_right_that_is_missing_is_named(tables: EmbeddedPostgres, capsys: pytest.CaptureFixture[str]) -> None:
    tables.execute("GRANT SELECT ON source_rows TO reader")
    reader = tables.dsn_of("reader", "open sesame")
    checks = examined(POSTGRES.format(dsn=reader, out=reader), capsys)
    assert checks["source in"]["ok"]
    assert "does not allow user reader INSERT on table" in checks["sink out"]["found"]
    assert "GRANT INSERT" in checks["sink out"]["next"]
    assert "sesame" not in json.dumps(checks)


LOOKUP = """
SET 'execution.checkpointing.dir' = 'checkpoints';
CREATE TABLE numbers (id BIGINT, seen AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE words (id BIGINT, word STRING) WITH (
  'connector' = 'jdbc', 'url' = '{url}', 'table-name' = 'source_rows', 'username' = 'reader', 'password' = 'open sesame');
CREATE TABLE shown (id BIGINT, word STRING) WITH ('connector' = 'print');
INSERT INTO shown SELECT n.id, w.word FROM numbers AS n JOIN words FOR SYSTEM_TIME AS OF n.seen AS w ON n.id = w.id;
"""


def test_a_table_that_a_script_looks_up_in_is_asked_as_the_job_asks_it(
    tables: EmbeddedPostgres, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = conninfo_to_dict(tables.dsn_of("reader", "open sesame"))
    url = f"jdbc:postgresql://{reader['host']}:{reader['port']}/{reader['dbname']}"
    Path("script.sql").write_text(LOOKUP.format(url=url))

    def looked_up() -> dict[str, Any]:
        main(["doctor", "script.sql", "--json"])
        out = capsys.readouterr().out
        assert "sesame" not in out
        (found,) = (check for check in json.loads(out)["checks"] if check["name"].startswith("lookup "))
        return dict(found)

    refused = looked_up()
    assert not refused["ok"]
    assert "source_rows" in refused["found"]
    assert "GRANT SELECT" in refused["next"]
    tables.execute("GRANT SELECT ON source_rows TO reader")
    assert looked_up()["ok"]


S3 = """
from poundlock import FileSink, FileSource, Job

job = Job("files", checkpoint_dir={root!r} + "/checkpoint", on_error="fail")
job.from_source(FileSource("in", format="json", schema="a LONG", watch=True), name="in").sink_to(
    FileSink({root!r} + "/out", format="json"), name="out")
"""


def test_a_store_is_written_and_read_and_keeps_nothing(
    new_bucket: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.storage import open_storage

    root = new_bucket()
    Path("in").mkdir()
    checks = examined(S3.format(root=root), capsys)
    assert checks["checkpoint"]["ok"]
    assert checks["sink out"]["ok"]
    assert [name for name, check in checks.items() if name.startswith("clock") and not check["ok"]] == []
    assert len([name for name in checks if name.startswith("clock of s3://")]) == 2
    assert list(open_storage(root).list()) == []
    assert "package botocore" in checks
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    checks = examined(S3.format(root=root), capsys)
    for name in ("checkpoint", "sink out"):
        assert not checks[name]["ok"]
        assert checks[name]["next"]
