"""Which partition a message goes to: Java's hash of its key, whatever the lengths, and turns for those without one."""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from poundlock.connectors.kafka.sink.partitioner import Partitioner, murmur2
from poundlock.connectors.kafka.wire.byte_strings import of_list


@given(st.lists(st.binary(max_size=40), max_size=50))
def test_the_hash_is_that_of_javas_clients(keys: list[bytes]) -> None:
    assert (murmur2(of_list(keys)) & 0x7FFFFFFF).tolist() == [murmur2_of_kafka_python(key) & 0x7FFFFFFF for key in keys]


def test_the_hash_of_known_keys() -> None:
    # From UtilsTest of Apache Kafka.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert murmur2(of_list(list(known))).view(np.int32).tolist() == list(known.values())


def choose(partitioner: Partitioner, keys: list[bytes | None] | None, given: list[int] | None = None) -> list[int]:
    count = len(keys) if keys is not None else 1000
    sizes, led = np.full(count, 10), np.array([0, 2, 3])
    places = None if given is None else np.array(given)
    return partitioner.choose(None if keys is None else of_list(keys), places, sizes, 4, led, 1000).tolist()


def test_messages_without_a_key_go_in_turn_to_partitions_that_have_a_leader() -> None:
    partitioner = Partitioner("murmur2_random")
    first, second = choose(partitioner, None), choose(partitioner, None)
    assert set(Counter(first).values()) <= {300, 400}
    assert set(first) == {0, 2, 3}
    assert [a != b for a, b in pairwise(first)].count(True) == 9, "a batch after the other"
    assert second[0] != first[-1]


def test_a_row_names_its_partition_or_its_key_does() -> None:
    hashed = (murmur2_of_kafka_python(b"k") & 0x7FFFFFFF) % 4
    assert choose(Partitioner("murmur2_random"), [b"k", b"k"], [-1, 1]) == [hashed, 1]
    empty = (murmur2_of_kafka_python(b"") & 0x7FFFFFFF) % 4
    assert choose(Partitioner("murmur2"), [b"", None]) == [empty, empty]


@pytest.mark.parametrize("kind", ["consistent", "consistent_random"])
def test_the_other_hash_of_librdkafka(kind: str) -> None:
    keys: list[bytes | None] = [b"a", b"bc", b"def"]
    assert choose(Partitioner(kind), keys) == [zlib.crc32(key or b"") % 4 for key in keys]


def test_at_random_keys_do_not_count() -> None:
    assert len(set(choose(Partitioner("random"), [b"k"] * 1000))) == 3
