"""The offsets of very many partitions: one ListOffsets request to each leader, all sent before the first answer is waited for.

Version 5 is spoken (Kafka 2.3 to 4): its fields have a fixed size, so that requests and answers are arrays. A leader answers for the
epoch that was asked for alone, so that one that was replaced is never believed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.offsets import Offsets, OffsetsOf, Partition
from poundlock.connectors.kafka.wire.connection import BrokerConnection, ConnectionLost
from poundlock.connectors.kafka.wire.fetch_client import Address, FetchClient
from poundlock.errors import TerminalError

LIST_OFFSETS = 2
"""The number of this request."""
VERSION = 5
_ASKED = np.dtype([("partition", ">i4"), ("epoch", ">i4"), ("time", ">i8")])
_ANSWERED = np.dtype([("partition", ">i4"), ("error", ">i2"), ("time", ">i8"), ("offset", ">i8"), ("epoch", ">i4")])
_HEADER = struct.Struct(">hhih")
_TRY_AGAIN = frozenset((3, 5, 6, 7, 8, 9, 13, 56, 72, 74, 75, 76, 77, 78, 89))
"""No such partition yet, no leader or another, a timeout, a disk that failed, an epoch or offset that is not known yet."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.2

Answer = npt.NDArray[np.void]  # of _ANSWERED
Request = npt.NDArray[np.void]  # of _ASKED
ByTopic = dict[str, Request]


class OffsetsUnknown(Exception):
    """Brokers do not say where a partition begins or ends; why is its text."""


def look_up(client: FetchClient, partitions: Iterable[Partition], asked: OffsetsOf, *, seconds: float) -> Offsets:
    """Return the offset of each partition, -1 where no record is from the time asked for or later.

    What has no leader, or another one than was known, is asked for again until the time is over.

    Raises:
        OffsetsUnknown: a broker refuses, or does not answer in time.
    """
    end, pause = time.monotonic() + seconds, _PAUSE_S
    missing, again, result = _by_topic(partitions), False, Offsets()
    while True:
        try:
            by_leader, why = _by_leader(client, missing, again=again)
            answers, refused = _exchange(client, by_leader, asked, max(end - time.monotonic(), 0.05))
            missing, unsure = _taken(result, missing, answers)
            why = unsure or refused or why
        except OSError as error:
            why = str(error) or type(error).__name__
        except TerminalError as error:  # a restart looks more closely, and says what to do
            raise OffsetsUnknown(error.what) from error
        except kafka_python("errors").KafkaError as error:  # this user may not see a topic
            raise OffsetsUnknown(str(error)) from error
        if not missing:
            return result
        if time.monotonic() > end:
            raise OffsetsUnknown(why)
        time.sleep(pause)
        again, pause = True, min(2 * pause, _LONGEST_PAUSE_S)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for topic, partition in partitions:
        result.setdefault(topic, []).append(partition)
    return result


def _by_leader(
    client: FetchClient, wanted: Mapping[str, Sequence[int]], *, again: bool
) -> tuple[dict[Address, ByTopic], str]:
    """Return what to ask each leader, with the epochs in which they lead, and which partition has no leader, "" for none."""
    topics, without = client.topics(list(wanted), again=again), ""
    result: dict[Address, ByTopic] = {}
    for name, partitions in wanted.items():
        its, leaders = topics[name], topics[name].leaders
        led: dict[Address, list[int]] = {}
        for partition in partitions:
            if (address := leaders.get(partition)) is not None:
                led.setdefault(address, []).append(partition)
            else:
                without = (
                    f"{name}-{partition} has no leader"
                    if partition < its.partitions
                    else f"there is no {name}-{partition}"
                )
        for address, places in led.items():
            request = np.empty(len(places), _ASKED)
            request["partition"], request["epoch"] = places, [its.epochs.get(place, -1) for place in places]
            result.setdefault(address, {})[name] = request
    return result, without


def _exchange(
    client: FetchClient, by_leader: Mapping[Address, ByTopic], asked: OffsetsOf, seconds: float
) -> tuple[list[tuple[str, Answer]], str]:
    """Return what the leaders answer, topic by topic, and why one of them did not, "" if all did."""
    answers: list[tuple[str, Answer]] = []
    waiting: list[tuple[Address, BrokerConnection]] = []
    why = ""
    with ExitStack() as lent:
        for address, topics in by_leader.items():
            try:
                connection = lent.enter_context(client.lent(address))
                _send(connection, topics, asked, client.settings.client_id, seconds)
                waiting.append((address, connection))
            except OSError as error:
                why = _broken(client, address, error)
        for address, connection in waiting:
            try:
                answers += decode_answer(connection.receive())
                connection.answer_within(None)
            except OSError as error:
                why = _broken(client, address, error)
    return answers, why


def _broken(client: FetchClient, address: Address, error: OSError) -> str:
    client.forget(address)
    return f"{address[0]}:{address[1]}: {error}"


def _send(connection: BrokerConnection, topics: ByTopic, asked: OffsetsOf, client_id: str, seconds: float) -> None:
    low, high = connection.versions_of(LIST_OFFSETS)
    if not low <= VERSION <= high:
        raise OffsetsUnknown("it is older than version 2.3, or newer than what is known")
    connection.answer_within(seconds)
    connection.send(encode_request(topics, asked, connection.next_correlation(), client_id))


def _taken(
    result: Offsets, missing: Mapping[str, list[int]], answers: Iterable[tuple[str, Answer]]
) -> tuple[dict[str, list[int]], str]:
    """Put the offsets of answers into `result`; return what is still missing, and why, "" if an answer does not say.

    Raises OffsetsUnknown: a broker refuses.
    """
    why = ""
    for topic, answer in answers:
        good = answer[answer["error"] == 0]
        result.update(
            zip(((topic, place) for place in good["partition"].tolist()), good["offset"].tolist(), strict=True)
        )
        for place, code in answer[answer["error"] != 0][["partition", "error"]].tolist():
            why = f"{topic}-{place}: {kafka_python('errors').for_code(code).__name__}"
            if code not in _TRY_AGAIN:
                raise OffsetsUnknown(why)
    left = {topic: [place for place in places if (topic, place) not in result] for topic, places in missing.items()}
    return {topic: places for topic, places in left.items() if places}, why


def encode_request(topics: ByTopic, asked: OffsetsOf, correlation: int, client_id: str) -> bytes:
    """Return the request with its length in front; brokers log `client_id`."""
    client = client_id.encode()
    parts = [_HEADER.pack(LIST_OFFSETS, VERSION, correlation, len(client)), client]
    parts.append(struct.pack(">ibi", -1, int(asked.committed), len(topics)))
    for name, request in topics.items():
        request["time"] = asked.time
        text = name.encode()
        parts += [struct.pack(">h", len(text)), text, struct.pack(">i", len(request)), request.tobytes()]
    frame = b"".join(parts)
    return struct.pack(">i", len(frame)) + frame


def decode_answer(answer: memoryview) -> list[tuple[str, Answer]]:
    """Return the answers by topic, which stay valid; of what was received with bytes to spare behind it. Raises ConnectionLost: it is no such answer."""
    at, result = 8, []  # behind the correlation id and how long the broker has throttled us
    try:
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, at)
            name = str(answer[at + 2 : at + 2 + length], "utf-8")
            (size,) = struct.unpack_from(">i", answer, at + 2 + length)
            at += 6 + length
            result.append((name, np.frombuffer(answer, _ANSWERED, size, at).copy()))
            at += size * _ANSWERED.itemsize
    except (struct.error, ValueError) as error:
        raise ConnectionLost(f"the answer to a question for offsets ends early: {error}") from error
    return result
