"""Reference events: a seeded stream of JSON page events over two days, some malformed and some far out of order.

The same arguments give the same bytes on every machine, and no record holds a line end; so a run can be audited exactly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

START_S = 1_545_177_600  # 2018-12-19T00:00:00Z, the day of the three sample events
DAY_S = 86_400
END_OF_TIME_MS = 253_402_300_800_000  # 10000-01-01T00:00:00Z: no calendar day can be written after it

_NAMES = ("page_view", "page_view", "page_view", "adv_click", "thumbs_up")

# Each takes the event's time in ms and a serial number that makes the record unlike every other where its kind allows it.
_MALFORMED: dict[str, Callable[[int, int], bytes]] = {
    "not_json": lambda t, n: b"not json %d" % n,
    "truncated": lambda t, n: b'{"timestamp":%d.%03d,"event":"page_view","uuid":"bad-%d' % (*divmod(t, 1000), n),
    "trailing_garbage": lambda t, n: b'{"timestamp":%d.%03d,"uuid":"bad-%d"} tail' % (*divmod(t, 1000), n),
    "no_timestamp": lambda t, n: b'{"event":"page_view","uuid":"bad-%d"}' % n,
    "null_timestamp": lambda t, n: b'{"timestamp":null,"event":"page_view","uuid":"bad-%d"}' % n,
    "quoted_timestamp": lambda t, n: b'{"timestamp":"%d.%03d","uuid":"bad-%d"}' % (*divmod(t, 1000), n),
    "text_timestamp": lambda t, n: b'{"timestamp":"yesterday","event":"page_view","uuid":"bad-%d"}' % n,
    "bool_timestamp": lambda t, n: b'{"timestamp":true,"event":"page_view","uuid":"bad-%d"}' % n,
    "nested_timestamp": lambda t, n: b'{"timestamp":{"seconds":%d},"uuid":"bad-%d"}' % (t // 1000, n),
    "milliseconds_as_seconds": lambda t, n: b'{"timestamp":%d,"event":"page_view","uuid":"bad-%d"}' % (t, n),
    "negative_timestamp": lambda t, n: b'{"timestamp":-%d,"event":"page_view","uuid":"bad-%d"}' % (t // 1000, n),
    "infinite_timestamp": lambda t, n: b'{"timestamp":1e400,"event":"page_view","uuid":"bad-%d"}' % n,
    "nan_timestamp": lambda t, n: b'{"timestamp":NaN,"event":"page_view","uuid":"bad-%d"}' % n,
    "list": lambda t, n: b"[1,%d]" % n,
    "number": lambda t, n: b"%d" % n,
    "empty": lambda t, n: b"",
    "not_utf8": lambda t, n: b'{"timestamp":%d.%03d,"event":"\xff\xfe","uuid":"bad-%d"}' % (*divmod(t, 1000), n),
    "nul_bytes": lambda t, n: b"\x00\x01\x02 %d" % n,
}

MALFORMED_KINDS = tuple(_MALFORMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceEvents:
    """A stream of raw records; iterating gives `bytes`, the same each time.

    Args:
        count: number of records, malformed ones included.
        seed: what the stream depends on besides these arguments.
        malformed: share of malformed records, 0 to 1; their kinds (MALFORMED_KINDS) take turns.
        out_of_order: share of good records whose time is anywhere in the whole span; the others are late by 5 s at most.
        start_s: time of the first event, s since the epoch (UTC).
        days: length of the span.
        first_serial: number of the first record; give batches of one test different ones so that bad records differ too.
    """

    count: int = 200_000
    seed: int = 20_181_219
    malformed: float = 0.005
    out_of_order: float = 0.01
    start_s: int = START_S
    days: int = 2
    first_serial: int = 0

    def __iter__(self) -> Iterator[bytes]:
        rng = random.Random(f"{self.seed}:{self.first_serial}")
        span_ms = self.days * DAY_S * 1000
        start_ms = self.start_s * 1000
        makers = list(_MALFORMED.values())
        bad = 0
        ids = rng.randbytes(16 * self.count).hex()
        chance, below = rng.random, rng.randrange
        for i in range(self.count):
            dice = chance()
            time_ms = start_ms + max(0, i * span_ms // self.count - below(5000))
            if dice < self.malformed:
                yield makers[bad % len(makers)](time_ms, self.first_serial + i)
                bad += 1
                continue
            if dice < self.malformed + self.out_of_order:
                time_ms = start_ms + below(span_ms)
            h = ids[32 * i : 32 * i + 32]
            yield (
                f'{{"timestamp":{time_ms // 1000}.{time_ms % 1000:03d},"event":"{_NAMES[time_ms % 5]}",'
                f'"uuid":"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"}}'
            ).encode()


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def event_time_ms(value: bytes, field: str = "timestamp") -> int | None:
    """Return a record's event time, ms since the epoch rounded down, or None where it has none and belongs to the dead letters.

    Written for being right, not fast: whole-record JSON, strict UTF-8, decimal arithmetic. The sinks are judged by it.
    """
    try:
        record = json.loads(value.decode("utf-8"), parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    seconds = record.get(field) if isinstance(record, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | Decimal):
        return None
    exact_ms = seconds * 1000
    return int(exact_ms // 1) if 0 <= exact_ms < END_OF_TIME_MS else None
