"""Instants to bucket names in a zone, many at a time: each short slot of time is looked up once.

A slot in which the zone's offset changes is looked up by the second, so borders are exact whatever the zone's history.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from poundlock.connectors.files.buckets.assigners import DatePattern

_UNKNOWN, _MIXED = -9, -2
_WIDEST = 1 << 20
_FEW = 256


class SlotTable:
    """Bucket numbers of instants, of which `per_second` units are a second: 1.0 for s, 1000.0 for ms.

    Numbers index `names` and stay the same for the life of the table.
    """

    def __init__(self, pattern: DatePattern, zone: str, per_second: float) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._pattern = pattern
        self._zone = ZoneInfo(zone)
        self._slot_s = min(900, pattern.resolution_s)
        self._slot = self._slot_s * per_second
        self._per_second = per_second
        self._base = 0
        self._codes = np.empty(0, np.int32)
        self._seconds: dict[int, int] = {}

    def lookup(self, times: npt.NDArray[np.float64], low: float, high: float) -> int | npt.NDArray[np.int32]:
        """Return the bucket number of each time (at least one, all valid), or one number if all have the same; low and high bound them."""
        # Dividing by a whole number never rounds up to the next whole number, so this floor is exact.
        first, last = int(low // self._slot), int(high // self._slot)
        if last - first < _FEW:
            self._reserve(first, last)
            window = self._codes[first - self._base : last - self._base + 1]
            self._fill(window, first, np.flatnonzero(window == _UNKNOWN))
            if window[0] >= 0 and (window == window[0]).all():
                return int(window[0])
        codes = self._dense(times, first, last) if last - first < _WIDEST else self._sparse(times)
        if codes.min() < 0:
            mixed = np.flatnonzero(codes == _MIXED)
            seconds = np.floor(times[mixed] / self._per_second).astype(np.int64)
            codes[mixed] = [self._of_second(s) for s in seconds.tolist()]
        return codes

    def _dense(self, times: npt.NDArray[np.float64], first: int, last: int) -> npt.NDArray[np.int32]:
        slots = times / self._slot
        slots -= first  # exact, and not negative: cutting the fraction off is the floor
        index = slots.astype(np.intp)
        self._reserve(first, last)
        window = self._codes[first - self._base : last - self._base + 1]
        codes = window[index]
        if codes.min() == _UNKNOWN:
            self._fill(window, first, np.unique(index[codes == _UNKNOWN]))
            codes = window[index]
        return codes

    def _sparse(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        slots = np.floor(times / self._slot).astype(np.int64)
        distinct, inverse = np.unique(slots, return_inverse=True)
        codes = np.array([self._of_slot(slot) for slot in distinct.tolist()], np.int32)
        return codes[inverse]

    def _reserve(self, first: int, last: int) -> None:
        """Make the table cover these slots; what is known outside is dropped when it would grow too wide."""
        end = self._base + len(self._codes)
        if len(self._codes) and self._base <= first and last < end:
            return
        low, high = (min(first, self._base), max(last + 1, end)) if len(self._codes) else (first, last + 1)
        low, high = low - _FEW, high + _FEW
        fresh = high - low > _WIDEST + 4 * _FEW
        if fresh:
            low, high = first - _FEW, last + 1 + _FEW
        codes = np.full(high - low, _UNKNOWN, np.int32)
        if not fresh and len(self._codes):
            codes[self._base - low : end - low] = self._codes
        self._base, self._codes = low, codes

    def _fill(self, window: npt.NDArray[np.int32], first: int, missing: npt.NDArray[np.int64]) -> None:
        for i in missing.tolist():
            window[i] = self._of_slot(first + i)

    def _of_slot(self, slot: int) -> int:
        start = slot * self._slot_s
        try:
            begin = datetime.fromtimestamp(start, self._zone)
            end = datetime.fromtimestamp(start + self._slot_s - 1, self._zone)
        except (OverflowError, ValueError, OSError):
            return _MIXED  # only neighbours of the last accepted times can be beyond the calendar
        name = self._pattern.format(begin)
        if begin.utcoffset() != end.utcoffset() or name != self._pattern.format(end):
            return _MIXED
        return self._number(name)

    def _of_second(self, second: int) -> int:
        number = self._seconds.get(second)
        if number is None:
            if len(self._seconds) >= _WIDEST:
                self._seconds.clear()
            moment = datetime.fromtimestamp(second, self._zone)
            number = self._seconds[second] = self._number(self._pattern.format(moment))
        return number

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number
