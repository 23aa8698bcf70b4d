"""KafkaSource: what a user says about reading Kafka, checked when it is said; Spark's own connector does the reading.

A source is a value: it holds no connection, can be pickled and compared, and shows no secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from poundlock.connectors.base import SparkRead
from poundlock.connectors.kafka.offsets import describe
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.start import StartingOffsets
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.reading import KafkaReading

__all__ = ["FIELDS", "KafkaSource"]

# What a record has, by the names used here, and the column of Spark's connector it comes from.
FIELDS: Mapping[str, str] = {
    "key": "key", "value": "value", "topic": "topic", "partition": "partition", "offset": "offset",
    "timestamp": "timestamp", "headers": "headers",
    "timestamp_type": "CASE timestampType WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' END",
}  # fmt: skip
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Each of these is said by a field of KafkaSource, or must have one value or exactly-once would be lost in silence.
_OWN_OPTIONS = {
    "subscribe", "subscribepattern", "assign", "failondataloss", "startingoffsets", "startingtimestamp",
    "startingoffsetsbytimestamp", "endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp", "includeheaders",
    "maxoffsetspertrigger", "minpartitions", "kafka.bootstrap.servers", "kafka.isolation.level",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class KafkaSource:
    """Records of Kafka topics. Exactly one of `topics`, `pattern` and `partitions` says which.

    Rows have the columns `key`, `value` (binary), `topic`, `partition`, `offset`, `timestamp`, `timestamp_type`
    ("CreateTime" or "LogAppendTime"), with `include_headers` also `headers` (array of key and value). With a format
    other than "raw" they have the columns of `schema`, then those of `metadata`, and `headers` if asked for; a field of
    the schema wins over a column of its name.

    Args:
        bootstrap_servers: host:port of some brokers, comma-separated.
        topics: a topic, or several. New partitions are picked up while the job runs.
        pattern: regular expression that a topic's whole name must match. New topics are picked up while the job runs.
        partitions: topic to the partitions to read of it; nothing else is picked up.
        start: where to begin on the first start: "earliest", "latest", "committed", a time, or StartingOffsets. Later
            starts go on where the checkpoint is.
        end: where to end, in the same words ("latest": what is there at the first start); None = never. A job whose
            sources all end ends by itself.
        group_id: group whose offsets are committed to Kafka after each checkpoint, for lag tools; never used to
            decide where to read on. Default: `poundlock-<job>`. "" = commit none.
        format: "raw", "json", "csv" or "avro": how a value is written.
        schema: columns of the value, such as "ts timestamp, user string".
        format_options: further options of the format.
        metadata: further columns: name to the field of the record it shows, such as {"kafka_time": "timestamp"} or, with
            a format other than "raw", {"key": "key"}.
        include_headers: whether there is a column `headers`.
        isolation: "read_committed" leaves out records of transactions that were aborted or are open.
        security: how to log in.
        max_records_per_checkpoint: most offsets one checkpoint advances over, so that a backlog is cut into checkpoints;
            offsets of aborted records and transaction markers count too. None = no limit.
        min_partitions: least number of tasks; partitions are cut for it. None = a task per partition.
        options: further options of Spark's Kafka source, such as {"kafka.receive.buffer.bytes": "1048576"}.
        client_options: further settings of confluent-kafka, which the driver uses to ask for topics and offsets.
    """

    jar_sets: ClassVar[Sequence[str]] = ("kafka",)  # of runtime/jars.py

    bootstrap_servers: str
    topics: str | Sequence[str] | None = None
    pattern: str | None = None
    partitions: Mapping[str, Sequence[int]] | None = None
    start: Any = "earliest"
    end: Any = None
    group_id: str | None = None
    format: Literal["raw", "json", "csv", "avro"] = "raw"
    schema: str | None = None
    format_options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    include_headers: bool = False
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    max_records_per_checkpoint: int | None = 2_000_000
    min_partitions: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._check_servers()
        if sum(x is not None for x in (self.topics, self.pattern, self.partitions)) != 1:
            raise DefinitionError(
                "KafkaSource needs exactly one of topics, pattern and partitions", next='write topics="my_topic"'
            )
        if self.topics is not None:
            # Frozen: what was given as one name or any sequence is kept as one form.
            object.__setattr__(self, "topics", (self.topics,) if isinstance(self.topics, str) else tuple(self.topics))
        self._check_topics()
        object.__setattr__(self, "start", StartingOffsets.parse(self.start, "start"))
        if self.end is not None:
            object.__setattr__(self, "end", StartingOffsets.parse(self.end, "end"))
        self._check_values()
        self.decoder()  # said here, a wrong schema or option is told with the user's line

    def _check_servers(self) -> None:
        servers = [s.strip() for s in str(self.bootstrap_servers or "").split(",")]
        if not all(re.fullmatch(r"\S+:[0-9]{1,5}", s) for s in servers):
            raise DefinitionError(
                f"bootstrap_servers={self.bootstrap_servers!r} is not a list of host:port",
                next='write bootstrap_servers="localhost:9092"',
            )
        object.__setattr__(self, "bootstrap_servers", ",".join(servers))

    def _check_topics(self) -> None:
        for topic in self.topics if self.topics is not None else self.partitions or ():
            if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
                raise DefinitionError(f"{topic!r} is not a topic name", next='use letters, digits, ".", "_" and "-"')
        if (self.topics is not None and not self.topics) or (self.partitions is not None and not self.partitions):
            raise DefinitionError("KafkaSource names no topic", next='write topics="my_topic"')
        for topic, numbers in (self.partitions or {}).items():
            if not numbers or not all(isinstance(n, int) and n >= 0 for n in numbers):
                raise DefinitionError(f"partitions of {topic!r}: {numbers!r}", next=f"write {{{topic!r}: [0, 1]}}")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise DefinitionError(
                    f"pattern {self.pattern!r} is no regular expression: {error}", next='write pattern="events-.*"'
                ) from error

    def _check_values(self) -> None:
        for name in ("max_records_per_checkpoint", "min_partitions"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise DefinitionError(f"{name}={value!r} is not a positive number", next=f"write {name}=100_000")
        for name, known in (
            ("isolation", ("read_committed", "read_uncommitted")),
            ("format", ("raw", "json", "csv", "avro")),
        ):
            if getattr(self, name) not in known:
                raise DefinitionError(
                    f"{name}={getattr(self, name)!r} is not known", next=f"use one of {', '.join(known)}"
                )
        for column, shown in self.metadata.items():
            if shown not in FIELDS:
                raise DefinitionError(
                    f"metadata column {column!r}: a Kafka record has no {shown!r}",
                    next=f"use one of {', '.join(FIELDS)}",
                )
        if taken := sorted(name for name, shown in self.metadata.items() if name in FIELDS and name != shown):
            raise DefinitionError(
                f"metadata column {taken[0]!r} has a name of its own already", next="choose another name"
            )
        if own := sorted(name for name in self.options if name.lower() in _OWN_OPTIONS):
            raise DefinitionError(
                f"option {own[0]!r} of Spark's Kafka source is set by KafkaSource itself",
                next="use the field of KafkaSource for it, such as start, isolation or max_records_per_checkpoint",
            )

    # -- SparkSource ---------------------------------------------------------------------------------------------------

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.end is not None

    @property
    def carried(self) -> tuple[str, ...]:
        """The columns of the record that stand beside decoded ones."""
        return (*self.metadata, *(("headers",) if self.include_headers and "headers" not in self.metadata else ()))

    def reads(self, topic: str) -> bool:
        """Return whether a topic is one of this source's."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.topics if self.topics is not None else self.partitions or ())

    def bind(self, *, job: str, name: str, previous: Mapping[str, Any] | None = None) -> KafkaReading:
        """Return this source for one start of a job.

        Args:
            job: name of the job; the default group is made of it.
            name: name of the source in the job.
            previous: the identity in the newest decision that names this source; None on a first start.
        """
        from poundlock.connectors.kafka.reading import KafkaReading

        return KafkaReading(self, job=job, name=name, previous=previous)

    def _once(self) -> KafkaReading:
        from poundlock.connectors.kafka.reading import KafkaReading

        return KafkaReading(self)

    @property
    def repeatable(self) -> bool:
        """Whether the same offsets give the same rows again; Kafka's do, or the job stops."""
        return True

    @property
    def task_per_partition(self) -> bool:
        """Whether one task reads a partition's whole part of a checkpoint."""
        return self.min_partitions is None and not any(
            name.lower() == "maxrecordsperpartition" for name in self.options
        )

    def preflight(self) -> None:
        """Check within 5 s that the servers answer and the topics are there.

        Raises:
            DefinitionError: a topic is missing, or the servers refuse this user.
            TransientError: no server answers.
        """
        reading = self._once()
        try:
            reading.preflight()
        finally:
            reading.close()

    def spark_read(self, restored: dict[str, Any] | None) -> SparkRead:
        """Return how Spark reads it; see `KafkaReading.spark_read`, which also knows where a bounded source ends."""
        reading = self._once()
        try:
            return reading.spark_read(restored)
        finally:
            reading.close()

    def decoder(self) -> Any | None:
        """Return the decoder of `format`, None for raw values."""
        if self.format == "raw":
            return None
        from poundlock.formats.decode import decoder

        return decoder(self.format, self.schema, **self.format_options)

    def identity(self, start: Any, end: dict[str, Any], previous: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the ids of the topics; see `KafkaReading.identity`."""
        reading = self._once()
        try:
            return reading.identity(start, end, previous)
        finally:
            reading.close()

    def committed(self, end: dict[str, Any]) -> None:
        """Commit the group's offsets, where a group is named; see `KafkaReading.committed`."""
        reading = self._once()
        try:
            reading.committed(end)
        finally:
            reading.close()

    def lag(self, end: dict[str, Any]) -> int | None:
        """Return how many offsets lie behind a position, None if Kafka does not say; see `KafkaReading.lag`."""
        reading = self._once()
        try:
            return reading.lag(end)
        finally:
            reading.close()

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log, as Flink prints restored state."""
        return describe(position)

    def explain_error(self, message: str) -> Exception | None:
        """Return the error behind a text of Spark's connector, or None."""
        return self._once().explain_error(message)
