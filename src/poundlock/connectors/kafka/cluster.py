"""What the driver asks a Kafka cluster, through confluent-kafka: topics, their ids, and group offsets; offsets by our own connections.

Every question ends in bounded time, with an answer or a PoundlockError that names the servers; none reads a record.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.errors import text_of
from poundlock.connectors.kafka.offsets import EARLIEST, LATEST, Offsets, OffsetsOf, Partition
from poundlock.errors import DefinitionError, PoundlockError, TransientError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.wire.fetch_client import FetchClient

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers before 2.8 answer
# How long the end of a job waits for its last offsets: a new cluster makes its offsets topic first.
_LAST_S = 10.0
_CLOSE_S = 2.0
# The alerts by which a server refuses a client's certificate, or TLS with it; they come as a lost connection.
_TLS_ALERT = re.compile(r"SSL alert number (4\d|116)\b")


class Cluster:
    """A connection to a cluster for questions; made cheaply, connects when first asked. Threads may share it.

    `settings` are further ones of confluent-kafka. With `committed_only`, "end" means before the first open transaction, as
    read_committed readers see it. A question takes `timeout` seconds at most.

    Offsets of partitions are asked for by the connections of `own`, at a fiftieth of the cost; where there are none, through
    confluent-kafka as all the rest.
    """

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, str],
        *,
        committed_only: bool = True,
        timeout: float = 10,
        own: FetchClient | None = None,
    ) -> None:
        self.servers, self._own = servers, own
        self._conf = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 1000, **settings}
        self._committed_only, self._timeout = committed_only, timeout
        # What librdkafka reports beside the answers: brokers down, refused logins.
        self._reported: deque[Any] = deque(maxlen=50)
        self._client: Any = None
        self._groups: dict[str, GroupOffsets] = {}
        self._making = threading.Lock()

    def admin(self) -> Any:
        """Return confluent-kafka's client."""
        with self._making:
            if self._client is None:
                self._client = confluent("admin").AdminClient({**self._conf, "error_cb": self._reported.append})
            return self._client

    # -- topics --------------------------------------------------------------------------------------------------------

    def partitions(self, timeout: float | None = None) -> dict[str, list[int]]:
        """Return all topics with their partitions; internal ones are left out. `timeout` is for the first server that answers.

        Raises:
            DefinitionError: the servers refuse this user.
            TransientError: no server answers in time; its `what` names each server and why.
        """
        self._reported.clear()
        admin, end = self.admin(), time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            try:
                # In slices, because a refused login is final and only shows in the callbacks that poll serves.
                topics = admin.list_topics(timeout=max(0.05, min(0.5, end - time.monotonic()))).topics
                there = {t: m for t, m in topics.items() if m.error is None and not t.startswith("__")}
                return {topic: sorted(metadata.partitions) for topic, metadata in there.items()}
            except confluent().KafkaException as error:
                admin.poll(0)
                refused = self._refusal()
                if refused is not None:
                    raise refused from error
                if time.monotonic() >= end:
                    raise self._unreachable(error) from error

    def _refusal(self) -> PoundlockError | None:
        kafka = confluent().KafkaError
        refused = (kafka._AUTHENTICATION, kafka.SASL_AUTHENTICATION_FAILED, kafka.TOPIC_AUTHORIZATION_FAILED)
        for error in self._reported:
            if error.code() in refused:
                return DefinitionError(
                    f"Kafka at {self.servers} refuses this user: {text_of(error)}",
                    next="check username, password and mechanism in KafkaSecurity(…)",
                )
            if error.code() == kafka._SSL or _TLS_ALERT.search(text_of(error)):
                return DefinitionError(
                    f"no TLS connection to Kafka at {self.servers}: {text_of(error)}",
                    next="check protocol, ca, certificate and key in KafkaSecurity(…)",
                )
        return None

    def _unreachable(self, error: BaseException) -> TransientError:
        kafka = confluent().KafkaError
        reasons = {text_of(e): None for e in self._reported if e.code() in (kafka._TRANSPORT, kafka._RESOLVE)}
        why = "; ".join(list(reasons)[:4]) or text_of(error.args[0])
        return TransientError(
            f"no Kafka server answers at {self.servers}: {why}",
            next="check bootstrap_servers, and that the brokers run: `poundlock kafka up` starts one for trials",
            kind="kafka_away",
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic; topics that are not there, or whose broker knows no ids, are left out."""
        kafka, names = confluent(), sorted(topics)
        if not names:
            return {}
        answers = self.admin().describe_topics(kafka.TopicCollection(names), request_timeout=self._timeout)
        missing = {kafka.KafkaError.UNKNOWN_TOPIC_OR_PART}
        described = self._each(answers, missing, lambda name: f"topic {name} cannot be described")
        return {name: str(topic.topic_id) for name, topic in described if str(topic.topic_id) != _NO_ID}

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Return those topics of which the brokers keep the newest record of a key only, as far as this user may know."""
        kafka, resource = confluent(), confluent("admin").ConfigResource
        hidden = {kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, kafka.KafkaError.UNKNOWN_TOPIC_OR_PART}
        wanted = [resource(resource.Type.TOPIC, topic) for topic in sorted(topics)]
        answers = self.admin().describe_configs(wanted, request_timeout=self._timeout) if wanted else {}
        settings = self._each(answers, hidden, lambda topic: f"the settings of topic {topic.name} cannot be looked up")
        return {topic.name for topic, values in settings if "compact" in values["cleanup.policy"].value}

    def _each(
        self, answers: Mapping[_T, Any], skipped: Collection[int], failure: Callable[[_T], str]
    ) -> Iterator[tuple[_T, Any]]:
        """Yield what was asked for with its answer, but for errors that are skipped; any other is a TransientError."""
        for asked, answer in answers.items():
            try:
                yield asked, answer.result(self._timeout + 5)
            except confluent().KafkaException as error:
                if error.args[0].code() not in skipped:
                    raise self._failed(failure(asked), error) from error

    # -- offsets -------------------------------------------------------------------------------------------------------

    def begin(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the first offset of each partition."""
        return self._list(partitions, EARLIEST)

    def end(
        self, partitions: Iterable[Partition], *, timeout: float | None = None, committed: bool | None = None
    ) -> Offsets:
        """Return the offset up to which each partition can be read now; `committed` overrides what the cluster was made for."""
        return self._list(partitions, LATEST, timeout, committed)

    def at(self, partitions: Iterable[Partition], timestamp_ms: int) -> Offsets:
        """Return the offset of the first record from a time on; partitions without one are left out."""
        offsets = self._list(partitions, timestamp_ms)
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def _list(
        self,
        partitions: Iterable[Partition],
        when: int,
        timeout: float | None = None,
        committed: bool | None = None,
    ) -> Offsets:
        """Return the offset that each partition has at a time: EARLIEST, LATEST, or ms since the epoch."""
        wanted, seconds = sorted(partitions), self._timeout if timeout is None else timeout
        if not wanted:
            return {}
        asked = OffsetsOf(when, self._committed_only if committed is None else committed)
        if self._own is None:
            return self._patiently(lambda: self._ask_offsets(wanted, asked, seconds), seconds)
        from poundlock.connectors.kafka.wire.offset_lookup import OffsetsUnknown, look_up

        try:
            return look_up(self._own, wanted, asked, seconds=seconds)
        except OffsetsUnknown as error:
            raise TransientError(f"Kafka at {self.servers}: offsets cannot be looked up: {error}") from error

    def _ask_offsets(self, wanted: Sequence[Partition], asked: OffsetsOf, seconds: float) -> Offsets:
        kafka, specs = confluent(), confluent("admin").OffsetSpec
        level = kafka.IsolationLevel.READ_COMMITTED if asked.committed else kafka.IsolationLevel.READ_UNCOMMITTED
        spec = {EARLIEST: specs.earliest(), LATEST: specs.latest()}.get(asked.time) or specs.for_timestamp(asked.time)
        futures = self.admin().list_offsets(
            {kafka.TopicPartition(t, p): spec for t, p in wanted}, isolation_level=level, request_timeout=seconds
        )
        offsets = {(tp.topic, tp.partition): int(f.result(seconds + 5).offset) for tp, f in futures.items()}
        # A request that timed out comes back without an error, its offsets "invalid". Taken for numbers they would say
        # that nothing waits, or that the topic is shorter than it was and hence another one.
        if kafka.OFFSET_INVALID in offsets.values():
            raise TransientError(f"Kafka at {self.servers}: offsets cannot be looked up: no answer in {seconds:g} s")
        return offsets

    def _patiently(self, ask: Callable[[], _T], timeout: float) -> _T:
        """Ask again while a partition that was just made, or moved, has no leader that says so."""
        kafka = confluent()
        retriable = {
            kafka.KafkaError.NOT_LEADER_FOR_PARTITION, kafka.KafkaError.LEADER_NOT_AVAILABLE,
            kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
            kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS, kafka.KafkaError.NOT_COORDINATOR,
        }  # fmt: skip
        # An admin client keeps the leader epoch it learned for minutes after another took over: ask by a new one.
        stale = {kafka.KafkaError.FENCED_LEADER_EPOCH, kafka.KafkaError.UNKNOWN_LEADER_EPOCH}
        end = time.monotonic() + timeout
        while True:
            try:
                return ask()
            except kafka.KafkaException as error:
                code = error.args[0].code()
                if code not in retriable | stale or time.monotonic() > end:
                    raise self._failed("offsets cannot be looked up", error) from error
                if code in stale:
                    self._client = None
                time.sleep(0.1)

    def _failed(self, what: str, error: BaseException) -> TransientError:
        return TransientError(f"Kafka at {self.servers}: {what}: {text_of(error.args[0])}")

    # -- groups --------------------------------------------------------------------------------------------------------

    def _group(self, group: str) -> GroupOffsets:
        with self._making:
            if group not in self._groups:
                self._groups[group] = GroupOffsets(group, self._conf)
            return self._groups[group]

    def committed(self, partitions: Iterable[Partition], group: str) -> Offsets:
        """Return what a group committed; partitions without are left out."""
        kafka, consumer = confluent(), self._group(group).consumer
        wanted = [kafka.TopicPartition(t, p) for t, p in sorted(partitions)]
        if not wanted:
            return {}
        answer = self._patiently(lambda: consumer.committed(wanted, timeout=self._timeout), self._timeout)
        return {(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    def commit(self, offsets: Mapping[Partition, int], group: str) -> None:
        """Commit offsets for a group, without waiting for the answer; an error becomes a warning."""
        self._group(group).commit(offsets)

    def close(self) -> None:
        """Close all connections; a question asked later makes new ones."""
        groups, self._groups, self._client = list(self._groups.values()), {}, None
        for group in groups:
            group.close()
        if self._own is not None:
            self._own.close()


class GroupOffsets:
    """Commits the offsets of a consumer group, so that lag tools see how far a job has read. Threads may share it.

    One commit is under way at a time. Two at once may be answered in the other order when the broker asks for one of them again,
    as it does while it is about to make its offsets topic, and the group would stay behind.
    """

    def __init__(self, group: str, conf: Mapping[str, Any]) -> None:
        # Never subscribed, so never a member: the group stays empty and anyone may look at it or move it.
        own = {"group.id": group, "enable.auto.commit": False, "error_cb": lambda error: None}
        self.consumer: Any = confluent().Consumer({**conf, **own})
        self._servers = conf["bootstrap.servers"]
        self._changed = threading.Condition()
        self._newest: Mapping[Partition, int] | None = None
        self._missed: Mapping[Partition, int] = {}
        self._sender: threading.Thread | None = None

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets without waiting; of each partition only the newest given is sent. What goes wrong becomes a warning, and is sent with the next."""
        with self._changed:
            self._newest = {**self._missed, **(self._newest or {}), **offsets}
            self._missed = {}
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name="poundlock-group-offsets", daemon=True)
                self._sender.start()

    def _send(self) -> None:
        while True:
            with self._changed:
                offsets, self._newest = self._newest, None
                if offsets is None:
                    self._sender = None
                    self._changed.notify_all()
                    return
            if not self.commit_now(offsets):
                with self._changed:
                    self._missed = {**self._missed, **offsets}

    def commit_now(self, offsets: Mapping[Partition, int]) -> bool:
        """Commit offsets and wait for the answer; what goes wrong becomes a warning, and False."""
        kafka = confluent()
        places = [kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self.consumer.commit(offsets=places, asynchronous=False)
        except (kafka.KafkaException, RuntimeError) as error:  # a closed consumer is a RuntimeError
            _log.warning("group offsets were not committed to Kafka at %s: %s", self._servers, text_of(error.args[0]))
            return False
        return True

    def close(self) -> None:
        """Wait some seconds for what is still to be sent, and close the connection."""
        with self._changed:
            self._changed.wait_for(lambda: self._sender is None, _LAST_S)
        # Closing waits for minutes where no broker answers.
        closing = threading.Thread(target=self.consumer.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
