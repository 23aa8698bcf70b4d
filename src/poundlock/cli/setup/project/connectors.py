"""The parts of a new project that depend on where its events come from and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_KAFKA_SERVICE = """\
  kafka:
    image: apache/kafka:4.1.0
    environment:
      KAFKA_NODE_ID: 1
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@kafka:9093
      KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
      KAFKA_LISTENERS: PLAINTEXT://:9092,CONTROLLER://:9093
      KAFKA_ADVERTISED_LISTENERS: PLAINTEXT://kafka:9092
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
"""
_POSTGRES_SERVICE = """\
  postgres:
    image: postgres:17
    # Decided transactions are prepared first, and committed after the decision.
    command: postgres -c max_prepared_transactions=64
    environment:
      POSTGRES_USER: etl
      POSTGRES_PASSWORD: etl
      POSTGRES_DB: events
    volumes: [./tables.sql:/docker-entrypoint-initdb.d/tables.sql:ro]
"""
_S3_SERVICE = """\
  s3:
    image: minio/minio:RELEASE.2025-04-22T22-12-26Z
    entrypoint: sh -c "mkdir -p /data/events && minio server /data"
    environment:
      MINIO_ROOT_USER: poundlock
      MINIO_ROOT_PASSWORD: poundlock
"""
EVENT = '{"at":1545263998000,"event":"page_view","uuid":"fbe7a763-b053-414c-b740-eb31ebd3039a"}\n'
_TABLES = "CREATE TABLE events (uuid text PRIMARY KEY, at bigint NOT NULL, event text NOT NULL);\n"


@dataclass(frozen=True, kw_only=True)
class End:
    """A source or a sink of a new project.

    Args:
        title: what it is, in a sentence.
        imports: what job.py imports from poundlock.
        code: the expression that makes it, with the names of job.py.
        extra: of poundlock's that it needs, "" for none.
        service: of compose.yaml, "" for none.
        environment: variables of the job beside that service.
        files: others that the project has.
        topic: of Kafka that it needs, which a broker for trials makes, "" for none.
        keep: where the checkpoint is, as an expression, if not in a folder beside the job.
    """

    title: str
    imports: Sequence[str]
    code: str
    extra: str = ""
    service: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""
    keep: str = ""


_KAFKA = {"extra": "kafka", "service": _KAFKA_SERVICE, "environment": {"KAFKA_SERVERS": "kafka:9092"}}
_SERVERS = 'environ.get("KAFKA_SERVERS", "localhost:9092")'
SOURCES: Mapping[str, End] = {
    "kafka": End(
        title="the topic events",
        imports=["KafkaSource"],
        code=f"""\
    KafkaSource(
        bootstrap_servers={_SERVERS},
        topics="events",
        group_id="{{name}}",
        start="earliest",
        format="json",
        schema=SCHEMA,
    ),
""",
        topic="events",
        **_KAFKA,  # type: ignore[arg-type]
    ),
    "files": End(
        title="the folder input",
        imports=["FileSource"],
        code="""\
    # watch=True goes on with files that come later.
    FileSource(environ.get("INPUT", "input"), format="json", schema=SCHEMA),
""",
        files={"input/events.jsonl": EVENT},
    ),
}
_BY_DAY = """bucket=EventTimeBucketAssigner("at", "'dt='yyyy-MM-dd", zone="UTC", unit="ms"),"""
_ROWS = f"""\
        format="json",
        {_BY_DAY}
        rolling=RollingPolicy(every="60 s", size="128 MB"),
"""
_PARTITIONS = f"""\
        format="parquet",
        {_BY_DAY}
        # A day has its _SUCCESS once no event of it is due any more.
        partition_commit=PartitionCommit(trigger="partition-time", delay="1 d", time=PartitionTimePattern("$dt 00:00:00")),
"""
_ROW_IMPORTS = ["EventTimeBucketAssigner", "FileSink", "RollingPolicy"]
_TABLE_IMPORTS = ["EventTimeBucketAssigner", "FileSink", "PartitionCommit", "PartitionTimePattern"]
_S3 = {
    "extra": "s3",
    "service": _S3_SERVICE,
    "environment": {
        "BUCKET": "s3://events",
        "AWS_ENDPOINT_URL": "http://s3:9000",
        "AWS_ACCESS_KEY_ID": "poundlock",
        "AWS_SECRET_ACCESS_KEY": "poundlock",
        "AWS_DEFAULT_REGION": "us-east-1",
    },
    "keep": 'environ.get("BUCKET", "s3://events") + "/checkpoint"',
}
_FOLDER, _OBJECTS = 'environ.get("OUTPUT", "output")', 'environ.get("BUCKET", "s3://events") + "/days"'


def _files(title: str, place: str, form: str, imports: Sequence[str], more: Mapping[str, object]) -> End:
    code = f"    FileSink(\n        {place},\n{form}    ),\n"
    return End(title=title, imports=imports, code=code, **more)  # type: ignore[arg-type]


SINKS: Mapping[tuple[str, bool], End] = {
    ("files", False): _files("files of JSON by day", _FOLDER, _ROWS, _ROW_IMPORTS, {}),
    ("files", True): _files("a table of Parquet with a partition a day", _FOLDER, _PARTITIONS, _TABLE_IMPORTS, {}),
    ("s3", False): _files("files of JSON by day on S3", _OBJECTS, _ROWS, _ROW_IMPORTS, _S3),
    ("s3", True): _files("a table of Parquet on S3 with a partition a day", _OBJECTS, _PARTITIONS, _TABLE_IMPORTS, _S3),
    ("kafka", False): End(
        title="the topic events-once",
        imports=["KafkaSink"],
        code=f'    KafkaSink({_SERVERS}, "events-once", key="uuid", format="json"),\n',
        topic="events-once",
        **_KAFKA,  # type: ignore[arg-type]
    ),
    ("postgres", False): End(
        title="the table events of PostgreSQL",
        imports=["PostgresSink"],
        code="""\
    PostgresSink(
        environ.get("POSTGRES", "postgresql://etl@localhost:5432/events"),
        "events",
        password="env:PGPASSWORD",
    ),
""",
        extra="postgres",
        service=_POSTGRES_SERVICE,
        environment={"POSTGRES": "postgresql://etl@postgres:5432/events", "PGPASSWORD": "etl"},
        files={"tables.sql": _TABLES},
    ),
}
"""By name, and whether it is to be a table of partitions."""
