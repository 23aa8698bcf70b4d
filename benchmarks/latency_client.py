"""Produces events at a steady rate and reads them from where a job copies them to, noting how long each took.

Arguments: SERVERS SOURCE OUT WARM_UP_S SECONDS NOTES STOP. The warm-up counts from the first arrival; NOTES gets the ms of
every event produced after it, and STOP is made when all have arrived. Whatever was lost, repeated or moved is the exit code.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

RATE = 1000
STEP_S = 0.02
ARRIVAL_S = 120.0


class Arrivals:
    """What has arrived, by the events' own numbers.

    Args:
        servers: host:port.
        topic: where the events come out.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": "latency", "isolation.level": "read_committed",
                "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100,
            }
        )  # fmt: skip
        numbers = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in numbers])
        self.times: dict[
            int, tuple[int, int]
        ] = {}  # number of the event to when it was produced and when it arrived, ns
        self.repeated = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            first = self._consumer.poll(0.1)
            if first is None:
                continue
            # What came with it is there already; to wait for more would be counted as the job's time.
            messages = [first, *self._consumer.consume(10_000, 0)]
            now = time.time_ns()
            for message in messages:
                self._note(message, now)

    def _note(self, message: Any, now: int) -> None:
        if message.error() is not None:
            return
        event = json.loads(message.value())
        self.repeated += event["number"] in self.times
        self.times.setdefault(event["number"], (event["produced_ns"], now))

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()


class SteadyEvents:
    """Produces numbered events, RATE a second from now on.

    Args:
        servers: host:port.
        topic: gets them in its first two partitions, in turn.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 1, "acks": "all"})
        self._topic = topic
        self._begin = time.monotonic()
        self.number = 0  # of the next event

    def step(self) -> None:
        """Produce what is due by now, and wait for the next step."""
        now = time.monotonic()
        due = int((now - self._begin) * RATE)
        while self.number < due:
            event = {"number": self.number, "event": "page_view", "produced_ns": time.time_ns()}
            self._producer.produce(self._topic, json.dumps(event).encode(), partition=self.number % 2)
            self.number += 1
        self._producer.poll(0)
        time.sleep(max(0.0, now + STEP_S - time.monotonic()))

    def end(self) -> int:
        """Wait until the broker has all of them; return how many there are."""
        if self._producer.flush(30):
            raise SystemExit("the broker did not take all events")
        return self.number


def produce(servers: str, topic: str, arrivals: Arrivals, warm_up_s: float, seconds: float) -> tuple[int, int]:
    """Produce until the time is over; return the number of the first event that counts, and how many there are."""
    events = SteadyEvents(servers, topic)
    begin, counted = time.monotonic(), -1
    counts_from = float("inf")
    while (now := time.monotonic()) < counts_from + seconds:
        if now - begin > ARRIVAL_S and not arrivals.times:
            raise SystemExit("nothing arrived")
        if counts_from == float("inf") and arrivals.times:
            counts_from = now + warm_up_s
        if counted < 0 and now >= counts_from:
            counted = events.number
        events.step()
    return counted, events.end()


def fault(times: Mapping[int, object], repeated: int, produced: int) -> str | None:
    """Return what is wrong with what arrived, None if every event did once."""
    if set(times) == set(range(produced)) and not repeated:
        return None
    return f"{len(times)} of {produced} events arrived, {repeated} came again"


def main(servers: str, source: str, out: str, warm_up_s: float, seconds: float, notes: Path, stop: Path) -> None:
    """See above."""
    arrivals = Arrivals(servers, out)
    try:
        counted, produced = produce(servers, source, arrivals, warm_up_s, seconds)
        deadline = time.monotonic() + ARRIVAL_S
        while len(arrivals.times) < produced and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)  # a repetition would come after the original
    finally:
        stop.touch()
        arrivals.end()
    if (wrong := fault(arrivals.times, arrivals.repeated, produced)) is not None:
        raise SystemExit(wrong)
    took = [(arrived - made) / 1e6 for number, (made, arrived) in arrivals.times.items() if number >= counted]
    notes.write_text(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:4], float(sys.argv[4]), float(sys.argv[5]), Path(sys.argv[6]), Path(sys.argv[7]))
