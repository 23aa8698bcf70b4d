"""Nexmark's events: people, auctions and bids of an auction house, 1 to 3 to 46, as lines of JSON; by the number of events and the seed alone.

The shares, who is popular, how prices, lengths of auctions and sizes of rows are spread follow Nexmark's description; the words are our own.
The events come in the order of their time, 10,000 a second of it as Nexmark has them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Events", "bids_in", "events", "lines", "lines_of", "side_input"]

BASE_MS = 1_767_225_600_000  # 2026-01-01 00:00:00
CHANNELS = 10_000
PER_SECOND = 10_000
_SHARES, _ROUND = (1, 3, 46), 50  # people, auctions and bids of each round of events
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
_ACTIVE_PEOPLE, _IN_FLIGHT, _AHEAD = 1000, 100, 10  # of whom and what the next events are, some not yet known
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS, _HOT_CHANNELS = 4, 2, 4, 2  # one in so many is not a hot one
_HOT_EVERY = 100
_BLOCK = 50_000

_GIVEN = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana", "Kim")
_FAMILY = ("Adler", "Brook", "Costa", "Dahl", "Engel", "Frost", "Gray", "Hill", "Ito")
_CITIES = ("Phoenix", "Palo Alto", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne", "San Mateo")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_HOT_NAMES = ("Google", "Facebook", "Baidu", "Apple")
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Some:
    """Events of one kind.

    Args:
        number: of each, among all events.
        draw: where chance comes from.
        per_second: how many events happen in a second of their time.
    """

    number: _Numbers
    draw: np.random.Generator
    per_second: int

    def __len__(self) -> int:
        return len(self.number)

    def below(self, most: int | _Numbers) -> _Numbers:
        """Return a number from 0 for each, below another."""
        return self.draw.integers(0, most, len(self))

    def word(self, letters: int) -> pa.Array:
        """Return a text of so many letters for each."""
        return self.text(np.full(len(self), letters))

    def text(self, letters: _Numbers) -> pa.Array:
        """Return a text for each, of its own number of letters."""
        ends = np.zeros(len(self) + 1, np.int32)
        np.cumsum(letters, out=ends[1:])
        data = self.draw.integers(97, 123, int(ends[-1]), dtype=np.uint8)
        return pa.StringArray.from_buffers(len(self), pa.py_buffer(ends), pa.py_buffer(data))

    def extra(self, size: int, used: int) -> pa.Array:
        """Return what fills a row up to about a size, a fifth more or less."""
        least, most = int((size - used) * 0.8), int((size - used) * 1.2)
        return self.text(least + self.below(most - least + 1))

    def chosen(self, words: tuple[str, ...]) -> pa.Array:
        """Return one of some words for each."""
        return pa.array(list(words)).take(pa.array(self.below(len(words))))

    def price(self) -> _Numbers:
        """Return a price, from a unit to a million of them in hundredths, evenly by its logarithm."""
        return np.round(10 ** (self.draw.random(len(self)) * 6) * 100).astype(np.int64)

    def time_ms(self) -> _Numbers:
        """Return when each happens."""
        return BASE_MS + self.number * 1000 // self.per_second

    def newest_person(self) -> _Numbers:
        """Return the number of the last person before each event."""
        return self.number // _ROUND

    def newest_auction(self) -> _Numbers:
        """Return the number of the last auction before each event."""
        place = np.clip(self.number % _ROUND - _SHARES[0], -1, _SHARES[1] - 1)
        return np.maximum(self.number // _ROUND * _SHARES[1] + place, 0)

    def some_person(self) -> _Numbers:
        """Return an active person, or one who is about to come."""
        there = self.newest_person() + 1
        active = np.minimum(there, _ACTIVE_PEOPLE)
        return there - active + self.below(active + _AHEAD)

    def some_auction(self) -> _Numbers:
        """Return an auction that goes on, or is about to begin."""
        newest = self.newest_auction()
        oldest = np.maximum(newest - _IN_FLIGHT, 0)
        return oldest + self.below(newest - oldest + 1 + _AHEAD)

    def mostly(self, one_in: int, hot: _Numbers, cold: _Numbers) -> _Numbers:
        """Return the hot ones, but one in so many of the others."""
        return np.where(self.below(one_in) > 0, hot, cold)


def _people(some: _Some) -> dict[str, pa.Array]:
    """Return the columns of people."""
    name = _joined(some.chosen(_GIVEN), " ", some.chosen(_FAMILY))
    card = pc.utf8_slice_codeunits(pc.cast(pa.array(10**16 + some.below(10**16)), pa.string()), 1)
    parts = [pc.utf8_slice_codeunits(card, at, at + 4) for at in (0, 4, 8, 12)]
    return {
        "id": pa.array(_FIRST_ID + some.newest_person()),
        "name": name,
        "emailAddress": _joined(some.word(7), "@", some.word(5), ".com"),
        "creditCard": _joined(parts[0], " ", parts[1], " ", parts[2], " ", parts[3]),
        "city": some.chosen(_CITIES),
        "state": some.chosen(_STATES),
        "dateTime": _times(some.time_ms()),
        "extra": some.extra(200, 70),
    }


def _auctions(some: _Some) -> dict[str, pa.Array]:
    """Return the columns of auctions."""
    person, began, initial = some.newest_person(), some.time_ms(), some.price()
    horizon_ms = _IN_FLIGHT * _ROUND // _SHARES[1] * 1000 // some.per_second
    return {
        "id": pa.array(_FIRST_ID + some.newest_auction()),
        "itemName": some.word(20),
        "description": some.word(100),
        "initialBid": pa.array(initial),
        "reserve": pa.array(initial + some.price()),
        "dateTime": _times(began),
        "expires": _times(began + 1 + some.below(max(2 * horizon_ms, 1))),
        "seller": pa.array(
            _FIRST_ID + some.mostly(_HOT_SELLERS, person // _HOT_EVERY * _HOT_EVERY, some.some_person())
        ),
        "category": pa.array(_FIRST_CATEGORY + some.below(_CATEGORIES)),
        "extra": some.extra(500, 190),
    }


def _bids(some: _Some) -> dict[str, pa.Array]:
    """Return the columns of bids."""
    auction, person = some.newest_auction(), some.newest_person()
    is_hot = pa.array(some.below(_HOT_CHANNELS) > 0)
    number = some.below(CHANNELS)
    path = _joined("https://www.nexmark.com/", some.word(5), "/", some.word(5), "/", some.word(5), "/item.htm?query=1")
    numbered = _joined(path, "&channel_id=", pc.cast(pa.array(number * 7919 % 1_000_003), pa.string()))
    return {
        "auction": pa.array(
            _FIRST_ID + some.mostly(_HOT_AUCTIONS, auction // _HOT_EVERY * _HOT_EVERY, some.some_auction())
        ),
        "bidder": pa.array(
            _FIRST_ID + some.mostly(_HOT_BIDDERS, person // _HOT_EVERY * _HOT_EVERY + 1, some.some_person())
        ),
        "price": pa.array(some.price()),
        "channel": pc.if_else(
            is_hot, some.chosen(_HOT_NAMES), _joined("channel-", pc.cast(pa.array(number), pa.string()))
        ),
        "url": pc.if_else(is_hot, path, numbered),
        "dateTime": _times(some.time_ms()),
        "extra": some.extra(100, 32),
    }


_KINDS = (("person", _people), ("auction", _auctions), ("bid", _bids))


def lines(first: int, count: int, seed: int = 42, per_second: int = PER_SECOND) -> pa.Array:
    """Return events as lines of JSON, each with its end.

    Args:
        first: the number of the first one, a multiple of the block that chance is drawn for.
        count: how many.
        seed: what chance begins with.
        per_second: how many happen in a second of their time.
    """
    number = np.arange(first, first + count)
    place = number % _ROUND
    kind = (place >= _SHARES[0]).astype(np.int64) + (place >= _SHARES[0] + _SHARES[1])
    parts: list[pa.Array] = []
    order = np.empty(count, np.int64)
    made = 0
    for which, (name, columns_of) in enumerate(_KINDS):
        mine = np.flatnonzero(kind == which)
        some = _Some(number[mine], np.random.default_rng((seed, first, which)), per_second)
        parts.append(_objects(which, name, columns_of(some)))
        order[mine] = made + np.arange(len(mine))
        made += len(mine)
    return pa.concat_arrays(parts).take(pa.array(order))


def _objects(kind: int, name: str, columns: dict[str, pa.Array]) -> pa.Array:
    pieces: list[pa.Array | str] = [f'{{"event_type":{kind},"{name}":{{']
    for place, (column, values) in enumerate(columns.items()):
        quote = '"' if pa.types.is_string(values.type) else ""
        text = values if quote else pc.cast(values, pa.string())
        pieces += [f'{"," if place else ""}"{column}":{quote}', text, quote]
    return _joined(*pieces, "}}\n")


def _joined(*pieces: pa.Array | str) -> pa.Array:
    """Return texts bound to one, where a plain text is the same for all."""
    return pc.binary_join_element_wise(*pieces, "")


def _times(ms: _Numbers) -> pa.Array:
    return pc.strftime(pa.array(ms).cast(pa.timestamp("ms")), "%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class Events:
    """A folder of files of events.

    Args:
        count: how many there are.
        bids: how many of them are bids.
    """

    folder: Path
    count: int
    bids: int


def bids_in(count: int) -> int:
    """Return how many of so many events, a multiple of a round, are bids."""
    return count // _ROUND * _SHARES[2]


def events(home: Path, count: int, files: int = 2) -> Events:
    """Return a folder with events, made once.

    Each file has every so-many-th event and all of their time, so that tasks that read a file each are never far apart.

    Args:
        home: where it is.
        count: how many events, a multiple of a round.
        files: how many files.
    """
    folder = home / f"nexmark-{count}-{files}"
    made = Events(folder, count, bids_in(count))
    if folder.exists():
        return made
    partly = _empty(folder)
    opened = [(partly / f"events-{number}.json").open("wb") for number in range(files)]
    try:
        for first in range(0, count, _BLOCK):
            some = lines(first, min(_BLOCK, count - first))
            for number, file in enumerate(opened):
                # Parts of a file are whole rounds, or all people would be in the first one.
                of_file = np.flatnonzero(np.arange(len(some)) // _ROUND % files == number)
                taken = some.take(pa.array(of_file))
                file.write(memoryview(taken.buffers()[2])[: _last(taken)])
    finally:
        for file in opened:
            file.close()
    partly.rename(folder)
    return made


def _last(texts: pa.Array) -> int:
    """Return where the last text ends."""
    return int(np.frombuffer(texts.buffers()[1], np.int32)[len(texts)])


def side_input(home: Path) -> Path:
    """Return a folder with the bounded table that q13 looks bids up in: a word for each remainder of an auction's number."""
    folder = home / "nexmark-side"
    if not folder.exists():
        partly = _empty(folder)
        (partly / "side.csv").write_text(
            "".join(f"{key},word-{key},2025-12-31 00:00:00.000\n" for key in range(CHANNELS))
        )
        partly.rename(folder)
    return folder


def _empty(folder: Path) -> Path:
    """Return an empty folder that is to become another one."""
    partly = folder.with_name(f".{folder.name}")
    shutil.rmtree(partly, ignore_errors=True)
    partly.mkdir(parents=True)
    return partly


def lines_of(given: Events) -> Iterator[list[bytes]]:
    """Yield the lines of all files in the order of their time, a block after the other, without their ends."""
    for first in range(0, given.count, _BLOCK):
        some = lines(first, min(_BLOCK, given.count - first))
        yield memoryview(some.buffers()[2])[: _last(some)].tobytes().splitlines()
