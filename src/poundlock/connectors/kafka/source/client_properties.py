"""Which settings of a Kafka consumer a user may give in `options`, and what each means to our own reader.

Every option is mapped or refused by name: none is taken and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from poundlock.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How tasks talk to brokers."""

    # About how much one answer holds; a larger record batch comes whole. Its rows are worked together: with half or twice as much
    # they cost more (windows of 1,000 keys over ten million lines: 9.2 s of CPU with 1 MB, 8.7 with 2, 9.1 with 4, 10.4 with 0.5).
    fetch_bytes: int = 2 << 20
    min_bytes: int = 1  # so much a broker waits for before it answers, at most `max_wait_ms`
    max_wait_ms: int = 500
    request_timeout_s: float = 30.0  # how long an answer may take, beyond `max_wait_ms`
    connect_timeout_s: float = 10.0  # how long a connection may take, login included
    patience_s: float = 60.0  # how long a range is tried while nothing of it comes
    backoff_s: float = 0.1  # pause before the first new try; it doubles up to `backoff_max_s`
    backoff_max_s: float = 1.0
    receive_buffer: int | None = None  # of the socket, in bytes; None = the system's
    send_buffer: int | None = None
    client_id: str = "poundlock"  # the name that brokers log
    records_per_split: int = 250_000  # so many records of a partition are one task's work at most


def parse(options: Mapping[str, Any]) -> FetchSettings:
    """Return the settings that a user's `options` ask for.

    Raises:
        DefinitionError: an option has no meaning here, or its value is none that it can have.
    """
    settings = FetchSettings()
    fetch_bytes: list[int] = []
    for name, value in options.items():
        key = name.lower()
        if key in _OWN_FIELDS:
            raise DefinitionError(
                f"option {name!r} is set by KafkaSource itself", next=f"use the field {_OWN_FIELDS[key]} of KafkaSource"
            )
        if key in _FETCH_BYTES:
            fetch_bytes.append(_positive(name, value))
        elif key in _MEANINGS:
            field, convert = _MEANINGS[key]
            settings = replace(settings, **{field: convert(name, value)})
        elif key == "kafka.check.crcs":
            if str(value).lower() != "true":
                raise DefinitionError(f"option {name!r}: checksums are always checked", next="leave it out")
        else:
            raise DefinitionError(
                f"option {name!r} {_REFUSED.get(key, 'means nothing to KafkaSource, whose tasks read Kafka themselves')}",
                next=f"leave it out; known are {', '.join(sorted((*_FETCH_BYTES, *_MEANINGS)))}",
            )
    return replace(settings, fetch_bytes=min(fetch_bytes)) if fetch_bytes else settings


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) < 1:
        raise DefinitionError(
            f"option {name!r} is {value!r}, not a positive number", next=f'write {{"{name}": "65536"}}'
        )
    return int(value)


def _seconds(name: str, value: Any) -> float:
    return _positive(name, value) / 1000


def _whole(name: str, value: Any) -> int:
    return 0 if str(value) == "0" else _positive(name, value)


_FETCH_BYTES = ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes")
_MEANINGS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "kafka.fetch.min.bytes": ("min_bytes", _positive),
    "kafka.fetch.max.wait.ms": ("max_wait_ms", _whole),
    "kafka.request.timeout.ms": ("request_timeout_s", _seconds),
    "kafka.socket.connection.setup.timeout.ms": ("connect_timeout_s", _seconds),
    "kafka.default.api.timeout.ms": ("patience_s", _seconds),
    "kafkaconsumer.polltimeoutms": ("patience_s", _seconds),
    "kafka.retry.backoff.ms": ("backoff_s", _seconds),
    "kafka.retry.backoff.max.ms": ("backoff_max_s", _seconds),
    "kafka.receive.buffer.bytes": ("receive_buffer", _positive),
    "kafka.send.buffer.bytes": ("send_buffer", _positive),
    "kafka.client.id": ("client_id", lambda name, value: str(value)),
    "maxrecordsperpartition": ("records_per_split", _positive),
}
_OWN_FIELDS: Mapping[str, str] = {
    "subscribe": "topics", "subscribepattern": "pattern", "assign": "partitions", "startingoffsets": "start",
    "startingtimestamp": "start", "startingoffsetsbytimestamp": "start", "endingoffsets": "end",
    "endingtimestamp": "end", "endingoffsetsbytimestamp": "end", "includeheaders": "include_headers",
    "maxoffsetspertrigger": "max_records_per_checkpoint", "maxbytespertrigger": "max_bytes_per_checkpoint", "minpartitions": "min_partitions",
    "kafka.bootstrap.servers": "bootstrap_servers", "kafka.isolation.level": "isolation",
    "kafka.group.id": "group_id", "groupidprefix": "group_id", "kafka.security.protocol": "security",
    "kafka.sasl.mechanism": "security", "kafka.sasl.jaas.config": "security",
}  # fmt: skip
_REFUSED: Mapping[str, str] = {
    "failondataloss": "cannot be changed: lost data always stops the job",
    "kafka.client.rack": "means nothing: tasks read from the leader of a partition only",
    "kafka.max.poll.records": 'means nothing: records come by the answer, see "kafka.max.partition.fetch.bytes"',
    "minoffsetspertrigger": "means nothing: a checkpoint takes what is there at its time",
    "maxtriggerdelay": "means nothing: a checkpoint takes what is there at its time",
}
