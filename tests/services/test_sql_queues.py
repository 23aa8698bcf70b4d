"""Tables of RabbitMQ, MQTT and Kinesis in SQL: rows of files go into a queue, and come out of it as rows of files, with what a message has beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kinesis.client import KinesisStream
from poundlock.testing.s3 import EmbeddedS3
from support.fixtures import running_or_skipped
from support.kafka_tables import QUICK, Scripts
from support.lives import Lives
from support.mosquitto import EmbeddedMosquitto
from support.rabbitmq import EmbeddedRabbitMQ
from support.sql_scripts import Answers

pytestmark = [pytest.mark.services, pytest.mark.engine]

ROWS = [{"n": n, "word": f"w{n}"} for n in range(20)]
Table = tuple[str, Mapping[str, str], str]
"""Columns of metadata, options, and what makes the metadata of a row."""


@contextmanager
def rabbitmq() -> Iterator[Table]:
    with running_or_skipped("RabbitMQ", EmbeddedRabbitMQ) as broker:
        broker.declare("words")
        options = {"url": broker.url, "queue": "words", "routing-key": "words", "source.deduplicate": "message-id"}
        yield "beside STRING METADATA FROM 'message-id'", options, "word || '!'"


@contextmanager
def mqtt() -> Iterator[Table]:
    with running_or_skipped("Mosquitto", EmbeddedMosquitto) as broker:
        broker.session("words-job", "words/#")
        options = {"url": broker.url, "topic": "words/#", "client-id": "words-job"}
        yield "beside STRING METADATA FROM 'topic'", options, "'words/' || word"


def script_of(connector: str, table: Table, folder: Path) -> tuple[str, str]:
    """Return a script that fills a queue from files, which ends, and one that empties it into files, which does not."""
    metadata, options, beside = table
    (folder / "in").mkdir()
    (folder / "in/rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    words = {"connector": connector, "format": "json", **options}
    files = "'connector' = 'filesystem', 'format' = 'json'"
    by = "" if beside else "PARTITIONED BY (word)"
    tables = f"""{QUICK}
        CREATE TABLE given (n BIGINT, word STRING) WITH ({files}, 'path' = '{folder}/in');
        CREATE TABLE came (n BIGINT, word STRING, beside STRING) WITH ({files}, 'path' = '{folder}/out');
        CREATE TABLE words (n BIGINT, word STRING, {metadata}) {by}
            WITH ({", ".join(f"'{name}' = '{value}'" for name, value in words.items())});
    """
    into = f"INSERT INTO words SELECT n, word{beside and ', '}{beside} FROM given;"
    return tables + into, f"{tables} INSERT INTO came SELECT n, word, beside FROM words;"


@pytest.mark.parametrize(("system", "made"), [(rabbitmq, "{}!"), (mqtt, "words/{}")], ids=["rabbitmq", "mqtt"])
@pytest.mark.usefixtures("shared_jvm")
def test_rows_through_a_queue(system: Any, made: str, tmp_path: Path) -> None:
    scripts = Scripts(tmp_path)
    with system() as table:
        fill, drain = script_of(system.__name__, table, tmp_path)
        scripts.runner(Answers()).run(fill)
        with scripts.running(drain) as until:
            until(lambda: len(written(tmp_path / "out")) >= len(ROWS))
    assert_came(tmp_path, made)


def test_rows_through_a_stream(tmp_path: Path) -> None:
    """Of Kinesis, in processes of its own: a JVM that is there already has not the credentials of the server."""
    with EmbeddedS3() as server, server.in_environment():  # moto's server has Kinesis as well
        client = KinesisStream("words").client()
        client.create_stream(StreamName="words", ShardCount=2)
        client.get_waiter("stream_exists").wait(StreamName="words", WaiterConfig={"Delay": 1})
        arn = client.describe_stream_summary(StreamName="words")["StreamDescriptionSummary"]["StreamARN"]
        options = {"stream.arn": arn, "source.init.position": "TRIM_HORIZON", "source.poll-interval": "100 ms"}
        table = ("beside STRING METADATA FROM 'partition-key' VIRTUAL", options, "")
        for name, script in zip(("fill", "drain"), script_of("kinesis", table, tmp_path), strict=True):
            path = tmp_path / f"{name}.sql"
            path.write_text(script)
            with Lives(path, environment=server.environment, folder=tmp_path, patience_s=600, command="sql") as lives:
                if name == "fill":
                    assert lives.run() == [0]
                    continue
                job = lives.until(lambda: len(written(tmp_path / "out")) >= len(ROWS), lives.start())
                assert lives.stop(job) == 0
    assert_came(tmp_path, "{}")


def assert_came(folder: Path, made: str) -> None:
    """Compare what came with what was given; `made` is what the metadata of a row is of its word."""
    rows = sorted(written(folder / "out"), key=lambda row: int(row["n"]))
    assert rows == [{**row, "beside": made.format(row["word"])} for row in ROWS]


def written(out: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]
