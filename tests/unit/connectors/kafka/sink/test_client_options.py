"""What client_options mean to our own producer, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock import DefinitionError
from poundlock.connectors.kafka.sink.client_options import ProduceSettings, parse


def settings(acks: str = "all", compression: str = "none", **options: Any) -> ProduceSettings:
    return parse({name.replace("_", "."): value for name, value in options.items()}, acks=acks, compression=compression)


def test_nothing_given() -> None:
    assert settings() == ProduceSettings()
    assert settings("0", "lz4") == ProduceSettings(acks=0, compression="lz4")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"message_max_bytes": "2000"}, {"message_bytes": 2000}),
        ({"linger_ms": 0.5}, {"linger_s": 0.0005}),
        ({"queue_buffering_max_kbytes": 64}, {"buffer_bytes": 65536}),
        ({"max_in_flight_requests_per_connection": 1_000_000}, {"most_in_flight": 5}),
        ({"max_in_flight": "1"}, {"most_in_flight": 1}),
        ({"compression_level": -1}, {}),
        ({"compression_level": "3"}, {"compression_level": 3}),
        ({"allow_auto_create_topics": "false"}, {"create_topics": False}),
        ({"partitioner": "random", "client_id": "me"}, {"partitioner": "random", "client_id": "me"}),
        ({"statistics_interval_ms": 5, "debug": "all"}, {}),
    ],
)
def test_options_by_their_names_in_librdkafka(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert settings(**options) == ProduceSettings(**expected)


def test_connections_get_what_concerns_them() -> None:
    made = settings(socket_timeout_ms=7000, client_id="me", socket_send_buffer_bytes=4096).connection
    assert (made.request_timeout_s, made.client_id, made.send_buffer) == (7.0, "me", 4096)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ssl_ca_location": "x"}, r"'ssl.ca.location' belongs into KafkaSecurity"),
        ({"no_such_option": 1}, r"'no.such.option' is not known"),
        ({"batch_size": "many"}, r"'batch.size' is 'many', not a number"),
        ({"partitioner": "fnv1a"}, r"'partitioner' is 'fnv1a'"),
    ],
)
def test_what_means_nothing_is_refused_by_name(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as refused:
        settings(**options)
    assert refused.value.next
