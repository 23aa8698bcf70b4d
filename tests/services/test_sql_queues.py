"""Tables of RabbitMQ, MQTT and Kinesis in SQL: rows of files go into a queue, and come out of it as rows of files, with what a message has beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kinesis.client import KinesisStream
from poundlock.testing.s3 import EmbeddedS3
from support.fixtures import running_or_skipped
from support.kafka_tables import QUICK, Scripts
from support.mosquitto import EmbeddedMosquitto
from support.rabbitmq import EmbeddedRabbitMQ
from support.sql_scripts import Answers

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ROWS = [{"n": n, "word": f"w{n}"} for n in range(20)]
Table = tuple[str, Mapping[str, str], str, Sequence[str]]
"""Columns of metadata, options, what makes the metadata of a row, and settings of the job."""


@contextmanager
def rabbitmq() -> Iterator[Table]:
    with running_or_skipped("RabbitMQ", EmbeddedRabbitMQ) as broker:
        broker.declare("words")
        options = {"url": broker.url, "queue": "words", "routing-key": "words", "source.deduplicate": "message-id"}
        yield "beside STRING METADATA FROM 'message-id'", options, "word || '!'", ()


@contextmanager
def mqtt() -> Iterator[Table]:
    with running_or_skipped("Mosquitto", EmbeddedMosquitto) as broker:
        broker.session("words-job", "words/#")
        options = {"url": broker.url, "topic": "words/#", "client-id": "words-job"}
        yield "beside STRING METADATA FROM 'topic'", options, "'words/' || word", ()


@contextmanager
def kinesis() -> Iterator[Table]:
    with EmbeddedS3() as server, server.in_environment():  # moto's server has Kinesis as well
        client = KinesisStream("words").client()
        client.create_stream(StreamName="words", ShardCount=2)
        client.get_waiter("stream_exists").wait(StreamName="words", WaiterConfig={"Delay": 1})
        arn = client.describe_stream_summary(StreamName="words")["StreamDescriptionSummary"]["StreamARN"]
        options = {
            "stream.arn": arn,
            "aws.endpoint": server.endpoint,
            "source.init.position": "TRIM_HORIZON",
            "source.poll-interval": "100 ms",
        }
        # The JVM is older than the server: what its tasks find in their environment has to be said.
        who = [f"spark.executorEnv.{name}={value}" for name, value in server.environment.items()]
        yield "beside STRING METADATA FROM 'partition-key' VIRTUAL", options, "", who


@pytest.mark.parametrize("system", [rabbitmq, mqtt, kinesis])
def test_rows_through_a_queue(system: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    with system() as (metadata, options, beside, settings):
        scripts = Scripts(tmp_path, settings)
        words = {"connector": system.__name__, "format": "json", **options}
        files = "'connector' = 'filesystem', 'format' = 'json'"
        by = "" if beside else "PARTITIONED BY (word)"
        script = f"""
            CREATE TABLE given (n BIGINT, word STRING) WITH ({files}, 'path' = '{tmp_path}/in');
            CREATE TABLE came (n BIGINT, word STRING, beside STRING) WITH ({files}, 'path' = '{tmp_path}/out');
            CREATE TABLE words (n BIGINT, word STRING, {metadata}) {by}
                WITH ({", ".join(f"'{name}' = '{value}'" for name, value in words.items())});
        """
        into = f"INSERT INTO words SELECT n, word{beside and ', '}{beside} FROM given"
        scripts.runner(Answers()).run(QUICK + script + into)
        with scripts.running(f"{script} INSERT INTO came SELECT n, word, beside FROM words") as until:
            until(lambda: len(written(tmp_path / "out")) >= len(ROWS))
    made = {"rabbitmq": "{}!", "mqtt": "words/{}", "kinesis": "{}"}[system.__name__]
    rows = sorted(written(tmp_path / "out"), key=lambda row: int(row["n"]))
    assert rows == [{**row, "beside": made.format(row["word"])} for row in ROWS]


def written(out: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]
