"""KafkaSink: what the user writes down, and the participant that the checkpoint coordinator and the tasks call.

Everything is checked when it is written down; nothing here keeps state or connects before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from poundlock.arguments import MAPPING, check_kind, function_name
from poundlock.audit.read_back import Auditable
from poundlock.checkpoint.capabilities import Bindable, Early, Inspectable, Measurable, Repeatable
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    CommitOutcome,
    Committed,
    Finding,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.checkpoint.portable import Newer, Portable
from poundlock.connectors import reconcile
from poundlock.connectors.commit_threads import ConnectionPool, commit_each
from poundlock.connectors.kafka.checks import check_columns, check_sink
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.registered import Answers
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink import committer
from poundlock.connectors.kafka.sink.client_options import ProduceSettings, parse
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC, TransactionNames, tags
from poundlock.connectors.kafka.sink.transactions import Transactions, transaction_pool, transactions
from poundlock.errors import DefinitionError
from poundlock.values import Clock, SystemClock, duration, format_duration

if TYPE_CHECKING:
    from poundlock.audit.read_back import AuditScope, Reading
    from poundlock.connectors.examination import Examination
    from poundlock.connectors.kafka.audit.topic_logs import TopicLogs
    from poundlock.connectors.kafka.sink.producer import Sender


Guarantee = Literal["exactly-once", "at-least-once", "none"]
CommitMode = Literal["two_phase", "per_task"]
_DESCRIBED = ("bootstrap_servers", "guarantee", "transactional_id_prefix", "marker_topic", "commit_mode")
_SECURITY = sorted(part.name for part in fields(KafkaSecurity))
_KINDS = {"exactly-once": Kind.TRANSACTIONAL, "at-least-once": Kind.APPEND, "none": Kind.FORGETFUL}


@dataclass(frozen=True)
class TopicExpression:
    """A topic per record, by a Spark SQL expression that gives text.

    Args:
        expression: such as "concat('orders-', country)", or just the name of a column.
    """

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or not self.expression.strip():
            raise DefinitionError(f"{self.expression!r} is not an expression", next="write Spark SQL that gives text")


@dataclass(frozen=True)
class KafkaSink(Bindable, Portable, Repeatable, Early, Inspectable, Auditable, Measurable):
    """Records into Kafka topics, exactly once for read_committed readers: a transaction per task and checkpoint.

    Args:
        bootstrap_servers: host:port of some brokers, comma-separated.
        topic: the topic; a TopicExpression; or a function record -> topic, which must be deterministic.
        value: with format "raw" the column that is written as it is, default "value"; with another format the columns
            that are encoded, default all.
        key: column of the key; with `key_format` the column that is the key, or a list of columns that it has.
        headers: a column of an array of struct<key, value> or of a map; or header name to column.
        partition: column of the partition; null, and without: by the hash of the key, as Java's clients do.
        timestamp: column of the record's time, a timestamp or ms since the epoch; default: when it is written.
        format: "raw", "json", "csv", "avro" or "protobuf": how the value is written; or a format whose values name their schema in a registry, such as
            AvroConfluent(…).
        key_format: a format of a registry in which keys are written.
        format_options: of the format: avro_schema, schema_id; message, and descriptor_set or message_class.
        guarantee: "exactly-once"; "at-least-once": visible at once, and repeated when a task or checkpoint is; "none":
            nobody waits for the broker.
        commit_mode: who commits the transactions. "two_phase": the driver, all of a checkpoint, when it is decided.
            "per_task": each task its own when it ends, for checkpoints that take longer than the brokers'
            transaction.max.timeout.ms: a checkpoint is then visible task by task, and what stands before the sink must give
            each task the same rows when a checkpoint is repeated. Where it does not, the job stops.
        transactional_id_prefix: what the transactional ids and marker groups begin with, for access rules; default:
            "poundlock-" and 8 hex digits of the job's id.
        transaction_timeout: when the broker aborts an open transaction, at most its transaction.max.timeout.ms. A
            checkpoint (per_task: a task) must fit; what was decided and then lost by it is produced again.
        marker_topic: an empty topic with one partition, for the offsets that mark committed transactions. It is created.
        create_topic: create a missing topic with so many partitions; None = it must be there.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        acks: "all"; "1" or "0" only with guarantee="none".
        security: how to log in.
        client_options: further settings, by the names they have in confluent-kafka's producer, such as {"message.max.bytes": "2000000"}.

    Raises:
        DefinitionError: settings contradict each other.
    """

    bootstrap_servers: str
    topic: str | TopicExpression | Callable[[Any], str]
    _: KW_ONLY
    value: str | Sequence[str] | None = None
    key: str | Sequence[str] | None = None
    headers: str | Mapping[str, str] | None = None
    partition: str | None = None
    timestamp: str | None = None
    format: Literal["raw", "json", "csv", "avro", "protobuf"] | RegistryFormat = "raw"
    format_options: Mapping[str, Any] = field(default_factory=dict)
    key_format: RegistryFormat | None = None
    guarantee: Guarantee = "exactly-once"
    commit_mode: CommitMode = "two_phase"
    transactional_id_prefix: str | None = None
    transaction_timeout: str | timedelta = "15 min"
    marker_topic: str = "poundlock-markers"
    create_topic: int | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    acks: Literal["all", "1", "0"] = "all"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    job_tag: str = field(default="", repr=False)  # set by `bind`
    sink_tag: str = field(default="", repr=False)
    answers: Mapping[SchemaRegistry, Answers] = field(default_factory=dict, repr=False, compare=False)  # as well

    bulk: ClassVar[bool] = True
    holds_readers: ClassVar[bool] = True  # a transaction that is left open
    clock: ClassVar[Clock] = SystemClock()
    audit_wait_s: ClassVar[float] = 10.0  # how long an audit waits for open transactions

    def __post_init__(self) -> None:
        check_kind("KafkaSink", MAPPING, {"format_options": self.format_options, "client_options": self.client_options})
        if self.format == "raw" and self.value is None:
            object.__setattr__(self, "value", "value")
        if isinstance(self.value, list):
            object.__setattr__(self, "value", tuple(self.value))
        if isinstance(self.key, list):
            object.__setattr__(self, "key", tuple(self.key))
        object.__setattr__(self, "transaction_timeout", duration(self.transaction_timeout))
        check_sink(self)

    # What plan and explain read

    @property
    def prepares_ahead(self) -> bool:
        """Whether ids differ from checkpoint to checkpoint; those of tasks that commit by themselves never do."""
        return not self._per_task

    @property
    def opens_early(self) -> bool:
        """Whether a writer initialises a producer while the first rows are still being read."""
        return self._once and not self._per_task

    @property
    def kind(self) -> Kind:
        """What the guarantee lets it promise."""
        return Kind.SKIPPING if self._per_task else _KINDS[self.guarantee]

    @property
    def computed_columns(self) -> Mapping[str, str]:
        """The columns the plan has to add, name to Spark SQL expression."""
        return {TO_TOPIC: self.topic.expression} if isinstance(self.topic, TopicExpression) else {}

    @property
    def needs_only_value(self) -> bool:
        """Whether it reads nothing of a row but the bytes of column `value`."""
        parts = (self.key, self.headers, self.partition, self.timestamp)
        return (self.format, self.value) == ("raw", "value") and parts == (None,) * 4 and isinstance(self.topic, str)

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        topic = self.topic
        if isinstance(topic, TopicExpression):
            topic = f"by expression {topic.expression}"
        elif not isinstance(topic, str):
            topic = f"by function {function_name(topic)}"
        word = self.format.word if isinstance(self.format, RegistryFormat) else self.format
        rows = f"raw {self.value}" if self.format == "raw" else word
        key = self.key if isinstance(self.key, str | None) else ", ".join(self.key)
        keyed = f"; key {key}" if key is not None else ""
        open_for = f"; transactions up to {format_duration(duration(self.transaction_timeout))}" if self._once else ""
        promise = "each task commits; effectively-once" if self._per_task else self.guarantee
        return f"Kafka topic {topic} ({rows}{keyed}{open_for}; {promise})"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what the sink reads of them."""
        check_columns(self, sink, columns)

    def bind(self, *, job_id: str, sink: str) -> KafkaSink:
        """Return this sink for one job: its transactional ids are then its own, and it knows what registries answered before."""
        from poundlock.connectors.kafka.schemas.writing import known_answers

        job, name = tags(job_id, sink)
        return replace(self, job_tag=job, sink_tag=name, answers=known_answers((self.format, self.key_format)))

    @property
    def task_modules(self) -> Sequence[str]:
        """What tasks import that need not be installed with poundlock."""
        formats = [each for each in (self.format, self.key_format) if isinstance(each, RegistryFormat)]
        return ["kafka", "google_crc32c", *dict.fromkeys(module for each in formats for module in each.task_modules)]

    def preflight(self) -> None:
        """Check within seconds that the cluster takes transactions of this length, and that the topics are there.

        Raises:
            DefinitionError: it does not, or a topic is missing, or this user may not use it; or a schema registry refuses.
            TransientError: no server answers.
        """
        from poundlock.connectors.kafka.sink.preflight import preflight

        preflight(self)

    def examine(self) -> Examination:
        """Do what `preflight` does, with nothing made that stays; see `Examinable`."""
        from poundlock.connectors.kafka.sink.preflight import examine

        return examine(self)

    # Participant, task side

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.kafka.sink.writer import KafkaWriter

        names = self.bind(job_id=context.job_id, sink=context.sink)._names
        return KafkaWriter(context, sink=self, sender=self._sender(names, context))

    def _sender(self, names: TransactionNames, context: WriterContext) -> Sender:
        from poundlock.connectors.kafka.sink.producer import PlainSender
        from poundlock.connectors.kafka.sink.transactional_senders import TaskSender, TransactionSender

        if not self._once:
            return PlainSender(self, wait=self.guarantee == "at-least-once")
        return (TaskSender if self._per_task else TransactionSender)(self, names, context)

    @property
    def produce_settings(self) -> ProduceSettings:
        """How tasks write."""
        return parse(self.client_options, acks=self.acks, compression=self.compression)

    # Participant, driver side

    def verify(self, prepared: Sequence[Prepared]) -> None:
        if self._per_task:
            payload = prepared[0].payload
            named = {item.payload["tid"] for item in prepared}
            committer.verify_tasks(self._asked(), self._names, named, payload["checkpoint"], payload["marker_topic"])
        elif self._once:
            # Lent one at a time: sinks that are verified at once must not wait for one another's second connection.
            with self._pool().lent() as beside:
                committer.verify(self._asked(), beside, self._names, prepared, self.clock.now_ms())

    def verify_nothing(self, checkpoint: int) -> None:
        if self._per_task:
            committer.verify_tasks(self._asked(), self._names, (), checkpoint, self.marker_topic)

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        at_once = {} if self._once else {"at_once": True}
        return Staged(
            {"v": 1, "pending": [], **at_once}, [dict(item.payload) for item in prepared if "tid" in item.payload]
        )

    def commit(self, committable: JSON) -> Committed | Aborted:
        with self._pool().lent() as asked:
            return committer.commit(asked, committer.OpenTransaction.of(committable), self.clock.now_ms())

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        return commit_each(self.commit, committables, self._pool().most)

    def match(
        self, again: Sequence[JSON], done: Sequence[JSON], prepared: Sequence[Prepared]
    ) -> tuple[Sequence[Prepared], Sequence[Prepared]]:
        return reconcile.match(again, done, prepared, rows="messages")

    def abort(self, prepared: Prepared) -> None:
        if "tid" in prepared.payload and not self._per_task:
            committer.abort(self._asked(), prepared)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        if not self._once or not self.job_tag:
            return []
        if remove:
            committer.refuse_shared_prefix(self._asked(), self._names)
        return committer.sweep(self._asked(), self._names, remove=remove, check=check)

    # Inspectable: what it takes to ask about transactions and end them, and no secret. One that the user wrote into the job is left
    # out; one that is kept in the environment or a file is there again.

    def describe_json(self) -> JSON:
        security = {name: getattr(self.security, name) for name in _SECURITY}
        for name in ("password", "key_password", "client_secret"):
            if security[name] is not None and not security[name].startswith(("env:", "file:")):
                security[name] = "env:POUNDLOCK_KAFKA_" + name.upper()
        values = {name: getattr(self, name) for name in _DESCRIBED} | {"transactional_id_prefix": self.effective_prefix}
        more = {"topic": self._fixed_topic, "timeout_ms": self.timeout_ms, "security": security}
        return {"v": 1, "kind": "kafka", **values, **more}

    @classmethod
    def from_json(cls, description: JSON) -> KafkaSink:
        """Return a sink that sweeps, inspects and commits as the described one does; it is not meant to write.

        Raises:
            DefinitionError: another version of poundlock wrote the description.
        """
        if description.get("v") != 1 or description.get("kind") != "kafka":
            raise DefinitionError(
                f"a Kafka sink of version {description.get('v')!r} is not known here", next="use a newer poundlock"
            )
        return cls(
            **{name: description[name] for name in _DESCRIBED if name in description},
            topic=description["topic"] or TopicExpression("topic"),
            transaction_timeout=f"{description['timeout_ms']} ms",
            security=KafkaSecurity(**{n: v for n, v in description["security"].items() if n in _SECURITY}),
        )

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        return committer.inspect(self._asked(), committer.OpenTransaction.of(committable))

    # Portable: a transaction is open within a checkpoint only, so nothing is carried

    def note(self) -> JSON:
        from poundlock.connectors.kafka.sink.output_since import NOTE_S, note

        return {} if self._fixed_topic is None else note(self._topics(NOTE_S), self._fixed_topic)

    def newer(self, state: JSON, note: JSON) -> Newer:
        from poundlock.connectors.kafka.sink.output_since import newer

        if self._fixed_topic is None:
            name = self.describe().partition(" (")[0]
            return Newer(unknown=f"{name}: only a topic of a fixed name can be looked at")
        return newer(self._topics(), self._fixed_topic, note)

    # Auditable

    @property
    def unaudited(self) -> str:
        """Why its output cannot be compared; "" if it can."""
        why = (
            f'it has guarantee="{self.guarantee}": no decision names its messages, and they may be there more than once'
        )
        return "" if self._once else why

    def open_audit(self, scope: AuditScope) -> Reading:
        """Return an audit, which reads its topics."""
        from poundlock.connectors.kafka.audit.read_back import KafkaReading

        return KafkaReading(
            scope,
            asked=self._asked(),
            topics=self._topics(),
            names=self._names,
            topic=self._fixed_topic,
            wait_s=self.audit_wait_s,
        )

    def rows_of(self, committable: JSON) -> int:
        return int(committable["rows"])

    # Measurable

    def measuring(self, folder: str) -> KafkaSink:
        from poundlock.connectors.kafka.sink.dry_run import MeasuringKafkaSink

        return MeasuringKafkaSink(**{part.name: getattr(self, part.name) for part in fields(self)})

    # Parts

    @property
    def _once(self) -> bool:
        return self.guarantee == "exactly-once"

    @property
    def _per_task(self) -> bool:
        return self.commit_mode == "per_task"

    @property
    def _fixed_topic(self) -> str | None:
        return self.topic if isinstance(self.topic, str) else None

    @property
    def _names(self) -> TransactionNames:
        return TransactionNames(self.effective_prefix, self.job_tag, self.sink_tag)

    @property
    def effective_prefix(self) -> str:
        """What the ids begin with, the job's own where the user gave none."""
        return self.transactional_id_prefix or (f"poundlock-{self.job_tag}" if self.job_tag else "poundlock")

    def close(self) -> None:
        """Close the driver's connections; one is made again when it is needed again."""
        for asked in (self._asked(), *self._pool().idle):
            asked.close()

    def _asked(self) -> Transactions:
        return transactions(self.bootstrap_servers, self.security)

    def _pool(self) -> ConnectionPool[Transactions]:
        return transaction_pool(self.bootstrap_servers, self.security)

    def _topics(self, seconds: float = 10) -> TopicLogs:
        from poundlock.connectors.kafka.audit.topic_logs import TopicLogs

        return TopicLogs(self.bootstrap_servers, self.security, seconds=seconds)

    @property
    def timeout_ms(self) -> int:
        """The transactions' timeout, ms."""
        return round(duration(self.transaction_timeout).total_seconds() * 1000)
