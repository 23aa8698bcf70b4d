"""Which settings of confluent-kafka's producer a user may give in `client_options`, and what each means to our own.

Every option is used, or is known to have nothing to set here, or is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """How a task writes to brokers."""

    acks: int = -1  # how many replicas have to have a batch: -1 all that are in sync; 0: nobody is asked
    compression: str = "none"
    compression_level: int | None = None
    partitioner: str = "murmur2_random"
    create_topics: bool = True  # whether brokers that make topics on demand are asked for that
    message_bytes: int = 1_000_000  # what is larger is refused
    batch_bytes: int = 1_000_000
    batch_records: int = 10_000
    linger_s: float = 0.005  # how long rows wait for others while something is on its way
    most_in_flight: int = 5  # requests to a broker; it remembers as many batches of a producer
    request_bytes: int = 1 << 20  # about; a larger batch is sent alone
    buffer_bytes: int = 16 << 20  # batches that no broker has yet; whoever writes more waits
    backoff_s: float = 0.1  # pause before the first new try; it doubles up to `backoff_max_s`
    backoff_max_s: float = 1.0
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 30.0
    client_id: str = "poundlock"
    send_buffer: int | None = None  # of the socket, in bytes; None = the system's
    receive_buffer: int | None = None

    @property
    def connection(self) -> FetchSettings:
        """What a connection needs of them."""
        names = {field.name for field in fields(FetchSettings)} & {
            "request_timeout_s",
            "connect_timeout_s",
            "client_id",
            "send_buffer",
            "receive_buffer",
        }
        return FetchSettings(**{name: getattr(self, name) for name in names})


def parse(options: Mapping[str, Any], *, acks: str, compression: str) -> ProduceSettings:
    """Return the settings that a user's options ask for, beside the fields of the sink.

    Raises:
        DefinitionError: an option has no meaning here, or its value is none that it can have.
    """
    settings = ProduceSettings(acks=-1 if acks == "all" else int(acks), compression=compression)
    for name, value in options.items():
        key = name.lower()
        if key in _MEANINGS:
            field, convert = _MEANINGS[key]
            settings = replace(settings, **{field: convert(name, value)})
        elif key not in _NOTHING_TO_SET:
            why = "belongs into KafkaSecurity(…)" if key.startswith(("ssl.", "sasl.", "security.")) else "is not known"
            raise DefinitionError(
                f"client option {name!r} {why}", next=f"leave it out; known are {', '.join(sorted(_MEANINGS))}"
            )
    if settings.most_in_flight > 5:
        return replace(settings, most_in_flight=5)
    return settings


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise DefinitionError(f"client option {name!r} is {value!r}, not a number", next=f'write {{"{name}": "1000"}}')
    return int(value)


def _positive(name: str, value: Any) -> int:
    return max(_number(name, value), 1)


def _seconds(name: str, value: Any) -> float:
    try:
        return float(value) / 1000
    except ValueError:
        return _number(name, value) / 1000


def _kilobytes(name: str, value: Any) -> int:
    return _positive(name, value) << 10


def _level(name: str, value: Any) -> int | None:
    return None if str(value) == "-1" else _number(name, value)


def _partitioner(name: str, value: Any) -> str:
    known = ("murmur2_random", "murmur2", "consistent_random", "consistent", "random")
    if value not in known:
        raise DefinitionError(f"client option {name!r} is {value!r}", next=f"use one of {', '.join(known)}")
    return str(value)


def _truth(name: str, value: Any) -> bool:
    return str(value).lower() == "true"


_MEANINGS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "message.max.bytes": ("message_bytes", _positive),
    "batch.size": ("batch_bytes", _positive),
    "batch.num.messages": ("batch_records", _positive),
    "linger.ms": ("linger_s", _seconds),
    "queue.buffering.max.ms": ("linger_s", _seconds),
    "queue.buffering.max.kbytes": ("buffer_bytes", _kilobytes),
    "queue.buffering.max.messages": ("batch_records", _positive),
    "max.in.flight": ("most_in_flight", _positive),
    "max.in.flight.requests.per.connection": ("most_in_flight", _positive),
    "request.timeout.ms": ("request_timeout_s", _seconds),
    "socket.timeout.ms": ("request_timeout_s", _seconds),
    "socket.connection.setup.timeout.ms": ("connect_timeout_s", _seconds),
    "retry.backoff.ms": ("backoff_s", _seconds),
    "retry.backoff.max.ms": ("backoff_max_s", _seconds),
    "compression.level": ("compression_level", _level),
    "partitioner": ("partitioner", _partitioner),
    "allow.auto.create.topics": ("create_topics", _truth),
    "client.id": ("client_id", lambda name, value: str(value)),
    "socket.send.buffer.bytes": ("send_buffer", _positive),
    "socket.receive.buffer.bytes": ("receive_buffer", _positive),
}
_NOTHING_TO_SET = frozenset((
    "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.jitter", "socket.keepalive.enable", "socket.nagle.disable",
    "socket.max.fails", "topic.metadata.refresh.interval.ms", "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms", "metadata.max.age.ms", "connections.max.idle.ms",
    "broker.address.ttl", "broker.address.family", "client.dns.lookup", "client.rack", "message.copy.max.bytes",
    "receive.message.max.bytes", "queue.buffering.backpressure.threshold", "sticky.partitioning.linger.ms",
    "statistics.interval.ms", "log_level", "log.connection.close", "log.thread.name", "debug", "enable.gapless.guarantee",
    "enable.metrics.push", "api.version.request", "api.version.request.timeout.ms", "broker.version.fallback",
))  # fmt: skip
"""Tuning of its own threads, queue and log, which our producer does not have; nothing that is written changes by them."""
