"""What the peers read, and the proof of what they wrote.

Lines: those of `data.py`, in three partitions. Rows: those of `keyed.py` as JSON, each in the partition of its key, with the key
and the time of its Kafka record; at the end of each partition a row an hour later, which closes the windows: an engine that knows
no end of a topic leaves out these rows and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data import Input, WrongOutput, files, finished, lines_of
from benchmarks.keyed_rows import BASE_MS, columns_of
from benchmarks.topics import PARTITIONS, fill, produce
from poundlock.testing.topics import Topics

__all__ = ["KEYS", "PeerInput", "visible"]

KEYS, SPAN_MS = 100_000, 10_000
_LINES, _ROWS = "peer_lines", "peer_rows"
_CLOSING_MS = BASE_MS + 3_600_000
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}")


class PeerInput:
    """The two topics and what has to come out of them.

    Args:
        folder: where inputs are kept.
        rows: of each topic, an even number.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self.rows = folder, rows
        self._topics: set[str] = set()

    @cached_property
    def lines(self) -> Input:
        """The lines, in files."""
        return files(self._folder, self.rows)

    def lines_topic(self, broker: Topics) -> str:
        """Return the topic with the lines."""
        if _LINES not in self._topics:
            fill(broker, _LINES, lines_of(self.lines))
            self._topics.add(_LINES)
        return _LINES

    def rows_topic(self, broker: Topics) -> str:
        """Return the topic with the rows."""
        if _ROWS not in self._topics:
            produce(broker, _ROWS, self._records())
            self._topics.add(_ROWS)
        return _ROWS

    @cached_property
    def _columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        at, key, value = columns_of(self.rows, KEYS)
        last = np.arange(PARTITIONS, dtype=np.int64)
        return np.append(at, last * 0 + _CLOSING_MS), np.append(key, last), np.append(value, last * 0)

    def _records(self) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
        for at, key, value in zip(*(column.tolist() for column in self._columns), strict=True):
            name = f"user-{key:08d}"
            row = f'{{"timestamp":{at / 1000:.3f},"key":"{name}","value":{value / 4:.2f}}}'
            yield row.encode(), {"key": name.encode(), "partition": key % PARTITIONS, "timestamp": at}

    def prove_lines(self, blocks: Iterable[bytes]) -> Mapping[str, float]:
        """Compare blocks of lines, as they were or rewritten, with those of the topic, by the uuid that is in each.

        Raises:
            WrongOutput: there is another line than was given.
        """
        given = _uuids(b"".join(path.read_bytes() for path in self.lines.folder.iterdir()))
        written, times = np.unique(np.concatenate([_uuids(b""), *map(_uuids, blocks)]), return_counts=True)
        if len(foreign := np.setdiff1d(written, given)):
            raise WrongOutput(f"{len(foreign)} lines came out that were not given")
        return _faults(len(given) - len(written), int(times.sum()) - len(written))

    def prove_sums(self, blocks: Iterable[bytes]) -> Mapping[str, float]:
        """Compare the counts and sums of windows with those of the rows; a result with a `diff` of -1 is taken back.

        Raises:
            WrongOutput: a window is not one of them, or a sum is wrong though the count is right.
        """
        at, key, value = self._columns
        numbers, place = np.unique(at // SPAN_MS, return_inverse=True)
        places = {int(number): i for i, number in enumerate(numbers)}
        size = len(numbers) * KEYS
        cells = place * KEYS + key
        wanted_n, wanted = np.bincount(cells, minlength=size), np.bincount(cells, weights=value / 4, minlength=size)
        n, total, results = np.zeros(size, np.int64), np.zeros(size), 0
        for line in (line for block in blocks for line in block.splitlines()):
            row = json.loads(line)
            number = _start_ms(row["window_start"]) // SPAN_MS
            if number not in places:
                raise WrongOutput(f"there is no window of {line.decode()}")
            cell = places[number] * KEYS + int(row["key"].removeprefix("user-"))
            n[cell] += row["n"] * row.get("diff", 1)
            total[cell] += row["total"] * row.get("diff", 1)
            results += 1
        if len(wrong := np.flatnonzero((n == wanted_n) & (np.abs(total - wanted) > 1e-6))):
            raise WrongOutput(f"{len(wrong)} sums are wrong, such as {total[wrong[0]]} for {wanted[wrong[0]]}")
        less = wanted_n - n
        faults = _faults(int(less[less > 0].sum()), -int(less[less < 0].sum()))
        windows = int(np.count_nonzero(n))
        return faults if results <= windows else {**faults, "results a window": results / windows}


def _faults(lost: int, twice: int) -> Mapping[str, float]:
    return {name: count for name, count in (("rows left out", lost), ("rows counted twice", twice)) if count}


def _uuids(block: bytes) -> npt.NDArray[np.bytes_]:
    return np.array(_UUID.findall(block), "S36")


def _start_ms(start: str | float) -> int:
    """Return when a window begins, in ms; it may be written as a date and time in UTC, in seconds or in milliseconds."""
    if isinstance(start, str):
        moment = datetime.fromisoformat(start)
        start = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return int(start if start > 1e11 else start * 1000)


def visible(folder: Path) -> Iterator[bytes]:
    """Yield what is in each file that a run made visible."""
    return (path.read_bytes() for path in finished(folder))
