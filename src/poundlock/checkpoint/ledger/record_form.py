"""How a decision is written: whole, or, where a job reads very many partitions, with only what moved since an earlier record.

What a record may say as a change are its `sources` and its `watermarks`, which name every partition of a job. A change is relative
to what would be there had nothing moved: a source begins where it ended, and event time with what it came to. Every chain of
changes begins with a whole record in the same block of numbers, so that few records are read, and the archive can forget files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from poundlock.checkpoint.decision import FORMAT, Decision
from poundlock.checkpoint.ledger.changes import ObjectChange, applied, changed
from poundlock.checkpoint.participant import JSON
from poundlock.storage.json_record import of_format, typed

CHANGE_FORMAT = 2
"""The format of a record that says what changed; earlier versions refuse it by that number."""
BLOCK = 50
"""Of so many records, by their numbers, the first with sources is whole."""
LEAST_BYTES = 16_000
"""Smaller records are always whole."""
_PARTS = ("sources", "watermarks")


def encoded(value: JSON) -> bytes:
    """Return the bytes of a record."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _Base:
    """The newest record with sources that is known to stand: its number, its parts, and the size of the whole one before it."""

    number: int
    parts: JSON
    whole_bytes: int


class RecordWriter:
    """Makes the records of one driver, one after the other.

    Args:
        block: see `BLOCK`.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._base: _Base | None = None
        self._made: _Base | None = None

    def record(self, decision: Decision) -> bytes:
        """Return the bytes of a decision; nothing may be made relative to it before `stands` is called."""
        value, base = decision.to_json(), self._base
        parts = {name: value[name] for name in _PARTS if name in value}
        data = None
        if base is not None and base.whole_bytes >= LEAST_BYTES and decision.sources and self._reaches(base, decision):
            change = msgspec.to_builtins(changed(expected(base.parts), parts))
            rest = {name: each for name, each in value.items() if name not in _PARTS}
            data = encoded({**rest, "v": CHANGE_FORMAT, "since": base.number, "change": change})
        if data is None or base is None or 2 * len(data) > base.whole_bytes:
            data = encoded(value)
            self._made = _Base(decision.number, parts, len(data))
        else:
            self._made = _Base(decision.number, parts, base.whole_bytes)
        return data

    def stands(self, decision: Decision) -> None:
        """Take note that the record made last is durable. Rolls and ends name no sources: nothing is relative to them."""
        if self._made is not None and decision.sources:
            self._base = self._made

    def _reaches(self, base: _Base, decision: Decision) -> bool:
        return decision.number - decision.number % self._block <= base.number < decision.number


class RecordReader:
    """Reads records, whole or not, and keeps what it took to make one of a change.

    Args:
        raw: returns the JSON object of a record, as it is written.
    """

    def __init__(self, raw: Callable[[int], JSON]) -> None:
        self._raw = raw
        self._known: dict[int, JSON] = {}  # the parts of records of one block, by number

    def decision(self, number: int, raw: JSON) -> Decision:
        """Return the decision of a record.

        Raises:
            ValueError: it is damaged, or of a format this version does not know.
            TerminalError: an earlier record, which it builds on, is missing or damaged.
        """
        if raw.get("v") != CHANGE_FORMAT:
            return Decision.from_json(raw)
        rest = {name: each for name, each in raw.items() if name not in ("since", "change")}
        return Decision.from_json({**rest, "v": FORMAT, **self._parts(number, raw)})

    def forget(self) -> None:
        """Keep nothing."""
        self._known.clear()

    def _parts(self, number: int, raw: JSON) -> JSON:
        chain: list[tuple[int, JSON]] = []
        while number not in self._known and raw.get("v") == CHANGE_FORMAT:
            chain.append((number, raw))
            since = raw.get("since")
            if not isinstance(since, int) or not 0 <= since < number:
                raise ValueError(f"it says what changed since record {since!r}")
            number = since
            raw = raw if number in self._known else self._raw(number)
        if number not in self._known:  # whoever reads on, or back, needs all of a block, and of one only
            self._known = {number: {name: raw[name] for name in _PARTS if name in raw}}
        parts = self._known[number]
        for n, each in reversed(chain):
            try:
                parts = self._known[n] = applied(expected(parts), typed(each.get("change"), ObjectChange))
            except (AttributeError, KeyError, TypeError):
                raise ValueError(f"what changed since record {each['since']} does not fit that record") from None
        return parts


def expected(parts: JSON) -> JSON:
    """Return what the parts of a record would be, had nothing moved since another one."""
    result: dict[str, Any] = {
        "sources": {name: {**span, "start": span["end"]} for name, span in parts["sources"].items()}
    }
    if (times := parts.get("watermarks")) is not None:
        result["watermarks"] = {**times, "directive": {**times["directive"], "state": times["state"]}}
    return result


def raw_record(data: bytes) -> JSON:
    """Return the JSON object of a record's bytes, of either format. Raises ValueError: it is none."""
    value = json.loads(data)
    changes = isinstance(value, dict) and value.get("v") == CHANGE_FORMAT
    return of_format(value, CHANGE_FORMAT if changes else FORMAT)
