"""Asking a Kafka cluster about transactions and ending them, from any process, whoever began them.

The only module that knows parts of kafka-python with a leading underscore; a test holds its version.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from poundlock.connectors.commit_threads import ConnectionPool
from poundlock.connectors.kafka.client_loader import admin_client, kafka_python
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.errors import CommitUnknown, TransientError

UNSTABLE = "UNSTABLE"  # a transaction of the marker's group is open
RESOLVED = frozenset(("Empty", "CompleteCommit", "CompleteAbort", "Dead"))
"""The states of a transactional id in which no transaction of it is open or being ended."""
_OFFSETS = "__consumer_offsets"  # where the markers are
_T = TypeVar("_T")
# Answers that say: ask again, the coordinator is busy with this id or has just moved.
_STALE = frozenset(("NotCoordinatorError", "CoordinatorNotAvailableError"))
_AGAIN = _STALE | {"ConcurrentTransactionsError", "CoordinatorLoadInProgressError"}
_ALLOW = "allow it WRITE and DESCRIBE on the transactional ids of the prefix, READ on its groups and the marker topic"
_CONNECTIONS = 8  # to end transactions by
_METADATA_BYTES = 4000  # offset.metadata.max.bytes of brokers is 4096


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id as its coordinator sees it, and the producer that initialised it last."""

    state: str  # "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead" …
    pid: int
    epoch: int
    started_ms: int  # when its transaction began, the broker's clock, ms since the epoch; -1 if there is none
    timeout_ms: int  # how long a transaction of it may be open
    # Per topic, the partitions its transaction has written to; the markers' are left out.
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def is_open(self, pid: int, epoch: int) -> bool:
        """Return whether it is this very transaction that is open, and not another of the same id."""
        return (self.state, self.pid, self.epoch) == ("Ongoing", pid, epoch)

    @property
    def resolved(self) -> bool:
        """Whether no transaction of this id is open or being ended."""
        return self.state in RESOLVED


@dataclass(frozen=True, slots=True)
class Marker:
    """The newest committed transaction of a transactional id, as it names itself; equal if id, pid and epoch are."""

    tid: str
    pid: int
    epoch: int
    checkpoint: int = field(default=-1, compare=False)
    rows: int = field(default=0, compare=False)
    digest: str = field(default="", compare=False)  # of the messages, 16 hex digits
    places: Mapping[str, str] | None = field(
        default=None, compare=False
    )  # see `from_places`; None where it does not say

    @classmethod
    def of(cls, text: str, checkpoint: int) -> Marker:
        """Return the marker of what `marker_text` made."""
        fields, names = json.loads(text), ("tid", "pid", "epoch", "rows", "digest", "places")
        return cls(**{name: fields.get(name) for name in names}, checkpoint=checkpoint)


def marker_text(tid: str, pid: int, epoch: int, rows: int, digest: str, places: Mapping[str, str] | None = None) -> str:
    """Return the metadata of a marker offset; places that are too many for it are left out."""
    value = {"v": 1, "tid": tid, "pid": pid, "epoch": epoch, "rows": rows, "digest": digest}
    texts = [json.dumps(v, separators=(",", ":")) for v in ({**value, "places": places}, value)]
    return texts[0] if places is not None and len(texts[0]) < _METADATA_BYTES else texts[1]


def _described(entry: Any) -> Described:
    places: dict[str, list[int]] = {}
    for place in sorted(entry.topic_partitions):
        if place.topic != _OFFSETS:
            places.setdefault(place.topic, []).append(int(place.partition))
    return Described(
        entry.state.value,
        int(entry.producer_id),
        int(entry.producer_epoch),
        int(entry.transaction_start_time_ms),
        int(entry.transaction_timeout_ms),
        {topic: tuple(partitions) for topic, partitions in places.items()},
    )


def transactions(servers: str, security: KafkaSecurity) -> Transactions:
    """Return this process's connection for questions about transactions; a new connection costs 0.2 s."""
    return transaction_pool(servers, security).first


def transaction_pool(servers: str, security: KafkaSecurity) -> ConnectionPool[Transactions]:
    """Return this process's connections to end transactions by: a broker does what comes by one connection in turn.

    The first of them is that of `transactions`.
    """
    return _pool(os.getpid(), servers, security)


@cache
def _pool(process: int, servers: str, security: KafkaSecurity) -> ConnectionPool[Transactions]:
    make = partial(Transactions, servers, security.kafka_python)
    return ConnectionPool(make(), make, _CONNECTIONS)


class Transactions:
    """A connection, made when first asked and again after it broke. Threads may share it; they ask one after the other.

    `settings` returns further settings of kafka-python; `timeout` is the most seconds for one question.
    """

    def __init__(self, servers: str, settings: Callable[[], Mapping[str, Any]], *, timeout: float = 10) -> None:
        self.servers, self._settings, self._timeout = servers, settings, timeout
        self._client: Any = None
        self._lock = threading.RLock()
        # Connections to coordinators behind which every partition had a leader. Another one is a broker that may just have
        # started: the client makes it by itself, and no question fails.
        self._led: dict[Any, Any] = {}

    def close(self) -> None:
        """Close the connection; a question asked later makes a new one."""
        with self._lock:
            client, self._client, self._led = self._client, None, {}
            if client is not None:
                with contextlib.suppress(Exception):
                    client.close()

    def broker_version(self) -> tuple[int, ...]:
        """Return the version of the protocol the cluster speaks, such as (4, 1)."""
        return tuple(self.ask(lambda admin: admin._manager.broker_version))

    def describe(self, tid: str) -> Described | None:
        """Return a transactional id's state, None if its coordinator does not know it."""
        return self.describe_all([tid]).get(tid)

    def describe_all(self, tids: Sequence[str]) -> dict[str, Described]:
        """Return the state of transactional ids; those that their coordinators do not know are left out."""
        unknown = kafka_python("errors").TransactionalIdNotFoundError

        def ask(admin: Any) -> dict[str, Described]:
            try:
                return {tid: _described(entry) for tid, entry in admin.describe_transactions(tids).items()}
            except unknown:
                one_by_one = tids if len(tids) > 1 else ()
            return {tid: described for each in one_by_one for tid, described in self.describe_all([each]).items()}

        return self.ask(ask) if tids else {}

    def ongoing(self) -> list[str]:
        """Return the transactional ids with an open transaction, of everybody."""
        answers = self.ask(lambda admin: admin.list_transactions(state_filters=["Ongoing"]))
        return sorted(row.transactional_id for rows in answers.values() for row in rows)

    def groups(self) -> list[str]:
        """Return the names of the consumer groups that this user may see, of everybody."""
        return sorted(group["group_id"] for group in self.ask(lambda admin: admin.list_groups()))

    def producers(self) -> dict[str, int]:
        """Return the transactional ids the cluster knows, of everybody, each with the producer that initialised it last."""
        answers = self.ask(lambda admin: admin.list_transactions())
        return {row.transactional_id: int(row.producer_id) for rows in answers.values() for row in rows}

    def end(self, tid: str, pid: int, epoch: int, *, commit: bool) -> str:
        """Commit or abort a transaction; return "NoError", or the name of the error the coordinator answers.

        Sent as version 4 of the request at most: version 5 changes the epoch, so that a repetition would not be known
        for one, and wedges the transaction on a cluster that was upgraded from an old one.
        """
        request = kafka_python("protocol.producer.transaction").EndTxnRequest(
            transactional_id=tid, producer_id=pid, producer_epoch=epoch, committed=commit, max_version=4
        )
        kind = kafka_python("protocol.metadata").CoordinatorType.TRANSACTION
        errors = kafka_python("errors")

        async def send(admin: Any) -> tuple[Any, Any, Any]:
            node = (await admin._find_coordinator_ids([tid], key_type=kind))[tid]
            connection = admin._manager.get_connection(node)
            led = self._led.get(node) is connection
            return node, connection, await admin._manager.send(request, node_id=node) if led else None

        def ask(admin: Any) -> str:
            node, connection, answer = admin._manager.run(send, admin)
            if answer is None:
                self._await_leaders(admin, tid)
                self._led[node] = connection
                _, _, answer = admin._manager.run(send, admin)
            if answer is None:
                raise errors.KafkaConnectionError(f"broker {node} went away")
            return str(errors.for_code(answer.error_code).__name__)

        end = time.monotonic() + self._timeout
        while True:
            answer = self.ask(ask)
            if answer not in _AGAIN or time.monotonic() > end:
                return answer
            if answer in _STALE:
                self.close()
            time.sleep(0.02)

    def _await_leaders(self, admin: Any, tid: str) -> None:
        """Wait until each partition of a transaction has a leader.

        A coordinator that comes up before them would end the transaction and take partitions without a leader for
        deleted ones: what was committed to them would never be seen, and what was aborted would hold readers up.
        """
        errors = kafka_python("errors")
        try:
            partitions = admin.describe_transactions([tid])[tid].topic_partitions
        except errors.TransactionalIdNotFoundError:
            return
        led = {
            (topic["name"], partition["partition_index"])
            for topic in (admin.describe_topics(sorted({p.topic for p in partitions})) if partitions else ())
            for partition in topic["partitions"]
            if partition["leader_id"] >= 0
        }
        if any((p.topic, p.partition) not in led for p in partitions):
            raise errors.LeaderNotAvailableError(f"partitions of {tid} have no leader")

    def marker(self, group: str, topic: str, *, stable: bool) -> Marker | str | None:
        """Return the marker for the marker topic that a group holds, None if it holds none.

        With `stable`, the answer is UNSTABLE while a transaction of the group is open, not what was committed before it.
        """
        fetch = kafka_python("protocol.consumer").OffsetFetchRequest
        group_of, errors = fetch.OffsetFetchRequestGroup, kafka_python("errors")
        topics = [group_of.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        request = fetch(
            groups=[group_of(group_id=group, topics=topics)], require_stable=stable, min_version=8, max_version=8
        )

        async def send(admin: Any) -> Any:
            node = (await admin._find_coordinator_ids([group]))[group]
            return await admin._manager.send(request, node_id=node)

        def ask(admin: Any) -> Marker | str | None:
            answer = admin._manager.run(send, admin).groups[0]
            offset = answer.topics[0].partitions[0] if answer.topics else None
            code = answer.error_code or (offset.error_code if offset is not None else 0)
            if code == errors.UnstableOffsetCommitError.errno:
                return UNSTABLE
            if code:
                raise errors.for_code(code)(f"the offsets of group {group} cannot be read")
            if offset is None or offset.committed_offset < 0:
                return None
            # librdkafka counts the end of its text as a part of it.
            return Marker.of(offset.metadata.rstrip("\0"), offset.committed_offset - 1)

        end = time.monotonic() + self._timeout
        while True:
            try:
                return self.ask(ask, keep=True)
            except errors.BrokerResponseError as error:
                if type(error).__name__ not in _AGAIN or time.monotonic() > end:
                    raise CommitUnknown(f"Kafka at {self.servers}: {error}") from error
                self.close()
                time.sleep(0.05)

    def ask(self, question: Callable[[Any], _T], *, keep: bool = False) -> _T:
        """Return the answer to a question, put again by a new connection until one comes; `keep` lets a broker's error through.

        Raises:
            TransientError: this user may not ask that.
            CommitUnknown: nobody answers.
        """
        errors = kafka_python("errors")
        end = time.monotonic() + self._timeout
        while True:
            try:
                with self._lock:
                    return question(self._admin())
            except errors.AuthorizationError as error:
                what = f"Kafka at {self.servers} refuses this user: {error or type(error).__name__}"
                raise TransientError(what, next=_ALLOW) from error
            except (errors.KafkaError, OSError) as error:
                if keep and isinstance(error, errors.BrokerResponseError):
                    raise
                # A connection that broke stays broken, and a coordinator that moved is remembered: ask by a new one.
                self.close()
                if time.monotonic() > end:
                    raise CommitUnknown(
                        f"no answer from Kafka at {self.servers}: {error or type(error).__name__}",
                        next="see that the brokers run; the job, or its next start, asks again",
                    ) from error
                time.sleep(0.1)

    def _admin(self) -> Any:
        if self._client is None:
            logging.getLogger("kafka").addHandler(logging.NullHandler())
            timeout_ms = int(self._timeout * 1000)
            self._client = admin_client(
                bootstrap_servers=self.servers.split(","),
                request_timeout_ms=timeout_ms,
                bootstrap_timeout_ms=timeout_ms,
                reconnect_backoff_max_ms=500,
                **self._settings(),
            )
        return self._client
