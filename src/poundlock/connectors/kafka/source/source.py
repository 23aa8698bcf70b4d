"""KafkaSource: what a user says about reading Kafka, checked when it is written. The tasks read the brokers themselves.

A source is a value: it holds no connection, can be pickled and compared, and shows no secret.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from poundlock.arguments import MAPPING, NAMES, check_kind
from poundlock.connectors.base import ReplayPromise
from poundlock.connectors.examination import Examination
from poundlock.connectors.kafka.checks import FIELDS, check_source
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.login import Login, login
from poundlock.connectors.kafka.offsets import describe
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.registered import KEY_BYTES, Pins
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.client_properties import parse
from poundlock.connectors.kafka.source.partition_discovery import PartitionDiscovery
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.values import SystemClock, ms_ahead, size

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.base import ReaderContext
    from poundlock.connectors.kafka.source.enumerator import KafkaEnumerator
    from poundlock.connectors.kafka.source.reader import KafkaReader
    from poundlock.connectors.kafka.wire.fetch_client import FetchClient
    from poundlock.formats.decode import Decoder
    from poundlock.storage.base import Storage


Format = Literal["raw", "json", "csv", "avro", "protobuf"]
Isolation = Literal["read_committed", "read_uncommitted"]
_PREFLIGHT_S = 4.5
_QUESTION_S = 10.0
_LOOK_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, init=False)
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
        format: "raw", "json", "csv", "avro" or "protobuf": how a value is written; or a format whose values name their schema in a registry, such as
            AvroConfluent(…).
        schema: columns of the value, such as "ts timestamp, user string"; for json and csv.
        format_options: further options of the format.
        key_format: a format of a registry that keys are written in; their columns stand behind those of the value. A record without a key has
            nulls there.
        key_prefix: what stands before the names of the columns of keys.
        metadata: further columns: name to the field of the record it shows, such as {"kafka_time": "timestamp"} or, with
            a format other than "raw", {"key": "key"}.
        include_headers: whether there is a column `headers`.
        isolation: "read_committed" leaves out records of transactions that were aborted or are open.
        security: how to log in.
        max_records_per_checkpoint: most offsets one checkpoint advances over, so that a backlog is cut into checkpoints;
            offsets of aborted records and transaction markers count too. None = no limit.
        max_bytes_per_checkpoint: most bytes of values in one checkpoint, about, as a number or a text such as "512 MB"; None = no
            limit. A task behind an exchange holds its share of them: with two tasks at most 1 GB each. Bytes are estimated by what was read
            before and by records that are looked at: where they become wider within a checkpoint, it has more.
        min_partitions: least number of pieces that a checkpoint's records are read in; partitions are cut for it. None = a
            partition is cut only where much waits in it.
        options: settings of the consumer in the tasks, such as {"kafka.receive.buffer.bytes": "1048576"}; see
            client_properties.py for those there are. Any other is refused.
        client_options: further settings of confluent-kafka, which the driver uses to ask for topics and offsets.
    """

    bootstrap_servers: str
    topics: tuple[str, ...] | None
    pattern: str | None
    partitions: Mapping[str, Sequence[int]] | None
    start: StartingOffsets
    end: StartingOffsets | None
    group_id: str | None
    format: Format | RegistryFormat
    value_schema: str | None
    format_options: Mapping[str, Any]
    key_format: RegistryFormat | None
    key_prefix: str
    metadata: Mapping[str, str]
    include_headers: bool
    isolation: Isolation
    security: KafkaSecurity
    max_records_per_checkpoint: int | None
    max_bytes_per_checkpoint: str | int | None
    min_partitions: int | None
    options: Mapping[str, Any] = field(repr=False)
    client_options: Mapping[str, Any] = field(repr=False)
    # Set by `bind`: how to log in, with all secrets read; the names of the job and of the source in it; the newest identity.
    who: Login | None = field(default=None, repr=False)
    job: str | None = field(default=None, repr=False)
    name: str | None = field(default=None, repr=False)
    previous: Mapping[str, Any] | None = field(default=None, repr=False)
    pins: Pins = field(default_factory=dict, repr=False)

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topics: str | Sequence[str] | None = None,
        pattern: str | None = None,
        partitions: Mapping[str, Sequence[int]] | None = None,
        start: Any = "earliest",
        end: Any = None,
        group_id: str | None = None,
        format: Format | RegistryFormat = "raw",
        schema: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        key_format: RegistryFormat | None = None,
        key_prefix: str = "",
        metadata: Mapping[str, str] | None = None,
        include_headers: bool = False,
        isolation: Isolation = "read_committed",
        security: KafkaSecurity | None = None,
        max_records_per_checkpoint: int | None = 2_000_000,
        max_bytes_per_checkpoint: str | int | None = "2 GB",
        min_partitions: int | None = None,
        options: Mapping[str, Any] | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_kind("KafkaSource", NAMES, {"topics": topics}, optional=True)
        mappings = {"format_options": format_options, "metadata": metadata, "options": options}
        check_kind("KafkaSource", MAPPING, {**mappings, "client_options": client_options}, optional=True)
        values = {
            "bootstrap_servers": bootstrap_servers,
            "topics": (topics,) if isinstance(topics, str) else None if topics is None else tuple(topics),
            "pattern": pattern,
            "partitions": partitions,
            "start": StartingOffsets.parse(start, "start"),
            "end": None if end is None else StartingOffsets.parse(end, "end"),
            "group_id": group_id,
            "format": format,
            "value_schema": schema,
            "format_options": dict(format_options or {}),
            "key_format": key_format,
            "key_prefix": key_prefix,
            "pins": {},
            "metadata": dict(metadata or {}),
            "include_headers": include_headers,
            "isolation": isolation,
            "security": security or KafkaSecurity(),
            "max_records_per_checkpoint": max_records_per_checkpoint,
            "max_bytes_per_checkpoint": max_bytes_per_checkpoint,
            "min_partitions": min_partitions,
            "options": dict(options or {}),
            "client_options": dict(client_options or {}),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_source(self)
        self.decoder()  # here, a wrong schema or option is reported with the user's line
        parse(self.options)

    # -- what is read --------------------------------------------------------------------------------------------------

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.end is not None

    @property
    def carried(self) -> tuple[str, ...]:
        """The columns of the record that stand beside decoded ones."""
        return (*self.metadata, *(("headers",) if self.include_headers and "headers" not in self.metadata else ()))

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that are made of a record before its value is decoded: by name, the field each shows."""
        if self.format != "raw":
            key = {} if self.key_format is None else {KEY_BYTES: "key"}
            return {"value": "value", **key, **{name: self.metadata.get(name, name) for name in self.carried}}
        return {**{name: name for name in FIELDS if name != "headers" or self.include_headers}, **self.metadata}

    def reads(self, topic: str, partition: int | None = None) -> bool:
        """Return whether a topic, or a partition of it, is one of this source's."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        if self.partitions is not None:
            return topic in self.partitions and (partition is None or partition in self.partitions[topic])
        return topic in (self.topics or ())

    def decoder(self) -> Decoder | None:
        """Return the decoder of `format`, None for raw values."""
        if self.format == "raw":
            return None
        from poundlock.connectors.kafka.schemas.reading import keyed, value_decoder
        from poundlock.formats.decode import decoder

        if isinstance(self.format, RegistryFormat):
            values = value_decoder(self.format, self.pins)
        else:
            values = decoder(self.format, self.value_schema, **self.format_options)
        return values if self.key_format is None else keyed(self.key_format, values, self.pins, self.key_prefix)

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        import pyarrow as pa

        from poundlock.connectors.kafka.source.reader import TYPES

        columns = [pa.field(name, TYPES[field]) for name, field in self.columns.items()]
        decoder = self.decoder()
        if decoder is None:
            return pa.schema(columns)
        decoded = decoder.schema()
        beside = [column for column in columns if column.name in self.carried and column.name not in decoded.names]
        return pa.schema([*decoded, *beside])

    @property
    def known_columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.schema()

    @property
    def _asks_registry(self) -> bool:
        return isinstance(self.format, RegistryFormat) or self.key_format is not None

    @property
    def task_modules(self) -> Sequence[str]:
        """What tasks import that need not be installed with poundlock."""
        formats = [each for each in (self.format, self.key_format) if isinstance(each, RegistryFormat)]
        return ["kafka", "google_crc32c", *dict.fromkeys(module for each in formats for module in each.task_modules)]

    # -- SplitSource ---------------------------------------------------------------------------------------------------

    def bind(
        self, *, job: str | None = None, name: str | None = None, previous: Mapping[str, Any] | None = None
    ) -> KafkaSource:
        """Return this source for one start of a job: it can travel to the tasks with its secrets, which no repr shows.

        Args:
            job: name of the job; the default group is made of it.
            name: name of the source in the job.
            previous: the identity in the newest decision that names this source; None on a first start.

        Raises:
            DefinitionError: a secret or certificate cannot be read.
            TransientError: a schema registry does not answer.
        """
        bound, known = copy.copy(self), dict[str, Any]()
        known |= {"who": login(self.security), "job": job, "name": name, "previous": previous}
        if self._asks_registry:
            from poundlock.connectors.kafka.schemas.reading import fetched

            known["pins"] = fetched(self)
        for field_name, value in known.items():
            object.__setattr__(bound, field_name, value)
        return bound

    @property
    def group(self) -> str | None:
        """The group whose offsets are committed, None or "" for none."""
        if self.group_id is not None:
            return self.group_id
        return f"poundlock-{self.job}" if self.job else None

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives: the same records, or an error that names the range."""
        return ReplayPromise("exact", "offsets always mean the same records, or the job stops and says which are gone")

    @property
    def decodes_objects(self) -> bool:
        """Whether records can be made of values without a dict: of JSON that nothing else of a record stands beside."""
        if self.format != "json" or self.carried:
            return False
        from poundlock.formats.arrays import is_flat

        return is_flat(self.schema())

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return ", ".join(self.topics or self.partitions or ()) or str(self.pattern)

    def read_twice(self, other: object) -> str | None:
        """Return a topic that another source reads as well; None if there is none."""
        if not isinstance(other, KafkaSource):
            return None
        if other is self:
            return self.place
        pairs = ((self, other), (other, self))
        return next((t for a, b in pairs for t in (a.topics or a.partitions or ()) if b.reads(t)), None)

    def cluster(self) -> Cluster:
        """Return a new connection of the driver's; it connects when it is first asked."""
        settings = {**self.security.confluent(), **{name: str(value) for name, value in self.client_options.items()}}
        committed, own = self.isolation == "read_committed", None
        if self.client_options:
            _log.info("offsets are asked for through confluent-kafka: client_options are settings of it alone")
        else:
            own = self._connections()
        return Cluster(self.bootstrap_servers, settings, committed_only=committed, own=own)

    @property
    def max_bytes(self) -> int | None:
        """The number of `max_bytes_per_checkpoint`."""
        return None if self.max_bytes_per_checkpoint is None else size(self.max_bytes_per_checkpoint)

    def looking(self) -> FetchClient:
        """Return connections over which the driver looks at single record batches, or does without soon."""
        from poundlock.connectors.kafka.wire.fetch_client import fetch_client

        settings = replace(parse(self.options), fetch_bytes=1, min_bytes=1, max_wait_ms=0)
        settings = replace(settings, request_timeout_s=_LOOK_S, connect_timeout_s=_LOOK_S, patience_s=_LOOK_S)
        return fetch_client(self.bootstrap_servers, self.who or login(self.security), settings)

    def _connections(self) -> FetchClient:
        """Return the driver's own connections, over which it asks for offsets; they wait as long as a question may take."""
        from poundlock.connectors.kafka.wire.fetch_client import fetch_client

        settings = replace(parse(self.options), request_timeout_s=_QUESTION_S, max_wait_ms=0)
        return fetch_client(self.bootstrap_servers, self.who or login(self.security), settings)

    def preflight(self) -> None:
        """Check within 5 s that the servers answer and the topics and partitions are there.

        Raises:
            DefinitionError: a topic or partition is missing, or the servers refuse this user.
            TransientError: no server answers; names them.
        """
        cluster = self.cluster()
        try:
            PartitionDiscovery(self, cluster).partitions(_PREFLIGHT_S)
        finally:
            cluster.close()
        if self._asks_registry:
            from poundlock.connectors.kafka.schemas.reading import fetched

            fetched(self)

    def examine(self) -> Examination:
        """Do what `preflight` does, which makes nothing, and see whether records are stamped later than it is; see `Examinable`."""
        from poundlock.connectors.kafka.source.newest_record import newest_record_ms

        cluster = self.cluster()
        try:
            partitions = PartitionDiscovery(self, cluster).partitions(_PREFLIGHT_S)
            newest = newest_record_ms(cluster, list(partitions), _PREFLIGHT_S)
        finally:
            cluster.close()
        # A record of the past says nothing of any clock.
        ahead = 0 if newest is None else ms_ahead(newest, newest, SystemClock().now_ms())
        return Examination(ms_ahead=ahead or None, clock=f"the newest record of Kafka at {self.bootstrap_servers}")

    def enumerator(self, workspace: Storage) -> KafkaEnumerator:
        """Return the driver's half. `workspace` keeps what the words of `start` and `end` meant at the first start."""
        from poundlock.connectors.kafka.source.enumerator import KafkaEnumerator

        return KafkaEnumerator(self, self.cluster(), workspace)

    def reader(self, context: ReaderContext) -> KafkaReader:
        """Return the task's half; where the source is not bound, secrets are read where it is called."""
        from poundlock.connectors.kafka.source.reader import KafkaReader
        from poundlock.connectors.kafka.wire.fetch_client import fetch_client

        client = fetch_client(self.bootstrap_servers, self.who or login(self.security), parse(self.options))
        committed = self.isolation == "read_committed"
        return KafkaReader(client, self.columns, self.decoder(), committed=committed, context=context)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log, as Flink prints restored state."""
        return describe(position)
