"""How far a file source may read, and the pieces of work in between: byte ranges of files in the discovery log.

A position says which bytes were read: all of the files before it in the log, and the lines that start before its offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, NamedTuple

from poundlock.connectors.base import Split
from poundlock.connectors.files.source.discovery import DiscoveryLog, FoundFile
from poundlock.storage import Entry
from poundlock.values import Clock

# Opening a file costs about as much as reading this many bytes, so that many small ones do not end up in one task.
_OPEN_COST = 256 * 1024
_PAUSES = 9  # times as long as a look takes


class Position(NamedTuple):
    """The place before the byte `offset` of file number `file` of log file number `log`."""

    log: int = 0
    file: int = 0
    offset: int = 0

    @classmethod
    def of(cls, value: dict[str, Any]) -> Position:
        """Return the position of its JSON form."""
        return cls(int(value["log"]), int(value["file"]), int(value["offset"]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes from `start` to `end` of a file: the work is what starts in them."""

    at: Position
    file: FoundFile
    end: int
    after: Position


@dataclass(frozen=True, slots=True)
class Limits:
    """How work is cut. `splittable` says whether a file may be read from the middle."""

    split_bytes: int
    checkpoint_bytes: int
    checkpoint_files: int
    splittable: Callable[[str], bool]


@dataclass
class FileEnumerator:
    """Driver's half of a file source."""

    log: DiscoveryLog  # what was discovered
    look: Callable[[], tuple[str, Iterator[Entry]]]  # the root and its files now, hidden and unsettled ones left out
    limits: Limits
    _: KW_ONLY
    watch: bool  # whether to look again after the first time
    look_every_ms: int  # least time between two looks
    clock: Clock  # tells when a look is due
    extra: dict[str, Any]  # further payload for every split
    _looked: int | None = None
    _took_ms: int = 0

    def initial(self) -> dict[str, Any]:
        return Position().to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        at = Position.of(start)
        end, full = self._advance(at)
        if not full and self._due():
            begun = self.clock.now_ms()
            root, entries = self.look()
            # What a bounded source reads is what was there at the first look, even if that is nothing.
            self.log.add(root, entries, note_empty=not self.watch)
            self._looked = self.clock.now_ms()
            self._took_ms = max(0, self._looked - begun)
            end, _ = self._advance(at)
        return end.to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        stop = Position.of(end)
        if stop.log:
            self.log.files(stop.log - 1)
        splits: list[Split] = []
        group: list[Piece] = []
        weight = 0
        for piece in self._pieces(Position.of(start)):
            if piece.at >= stop:
                break
            cost = piece.end - piece.at.offset
            if not cost:
                continue
            cost += _OPEN_COST
            if group and weight + cost > self.limits.split_bytes + _OPEN_COST:
                splits.append(self._split(group, weight))
                group, weight = [], 0
            group.append(piece)
            weight += cost
        if group:
            splits.append(self._split(group, weight))
        return splits

    def finished(self, position: dict[str, Any]) -> bool:
        if self.watch or next(self._pieces(Position.of(position)), None) is not None:
            return False
        return self.log.complete

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: the log stays, so that an older savepoint can be read again."""

    def _due(self) -> bool:
        if not self.watch:
            return not self.log.complete
        # A look at very many files takes long, and checkpoints wait for it: it is a tenth of the time at most.
        pause = max(self.look_every_ms, _PAUSES * self._took_ms)
        return self._looked is None or self.clock.now_ms() >= self._looked + pause

    def _advance(self, at: Position) -> tuple[Position, bool]:
        """Return how far the limits let one checkpoint go, and whether they were reached. Always at least one piece."""
        total = files = 0
        end = at
        for piece in self._pieces(at):
            total += piece.end - piece.at.offset
            files += 1 if piece.after.offset == 0 else 0
            too_much = total > self.limits.checkpoint_bytes or files > self.limits.checkpoint_files
            if too_much and end != at:
                return end, True
            end = piece.after
            if too_much:
                return end, True
        return end, False

    def _pieces(self, start: Position) -> Iterator[Piece]:
        """Yield all known work from a position on, in order. Borders lie at multiples of the split size."""
        number, first, offset = start
        step = self.limits.split_bytes
        # A position behind the log is of another workspace, or the log is gone: a new one would count other files. Never read
        # on in silence.
        if first or offset:
            self.log.files(number)
        elif number:
            self.log.files(number - 1)
        while self.log.has(number):
            files = self.log.files(number)
            for i in range(first, len(files)):
                file = files[i]
                nxt = Position(number, i + 1) if i + 1 < len(files) else Position(number + 1)
                whole = not self.limits.splittable(file.path)
                while True:
                    end = file.bytes if whole else min(file.bytes, (offset // step + 1) * step)
                    last = end >= file.bytes
                    after = nxt if last else Position(number, i, end)
                    yield Piece(Position(number, i, offset), file, file.bytes if last else end, after)
                    if last:
                        break
                    offset = end
                offset = 0
            number, first, offset = number + 1, 0, 0

    def _split(self, group: Sequence[Piece], weight: int) -> Split:
        first = group[0].at
        parts = [{**asdict(piece.file), "start": piece.at.offset, "end": piece.end} for piece in group]
        return Split(
            f"{first.log:08d}-{first.file:06d}-{first.offset:014d}",
            {**self.extra, "parts": parts},
            weight,
            sum(p.end - p.at.offset for p in group),
            name=_name(group),
        )


def _name(group: Sequence[Piece]) -> str:
    """Return what people know a split by: its first file, from where, and how many more there are."""
    place = group[0].file.path + (f" from byte {group[0].at.offset}" if group[0].at.offset else "")
    return place if len(group) == 1 else f"{place} and {len(group) - 1} more"
