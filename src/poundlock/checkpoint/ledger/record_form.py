"""How a decision is written: whole, or, where it is large, with only what changed since an earlier record.

What a record may say as a change are its `sources` and its `watermarks`, which name every partition of a job, and the `states` of its
sinks, which name every pending file. A change is relative to what would be there had nothing moved: a source begins where it ended,
event time with what it came to, and a sink has what it had. Rolls and ends, which name no sources, leave those as they are for the
record after them. Every chain of changes begins with a whole record in the same block of numbers, so that few records are read, and
the archive can forget files.

The last field of a record is the checksum of all that stands before its digits, the name of the field included. Records of before
have none, and none of them ends in a text of such a form.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from poundlock.checkpoint.decision import FORMAT, METRICS_FORMAT, Decision
from poundlock.checkpoint.ledger.changes import ObjectChange, applied, changed
from poundlock.checkpoint.participant import JSON
from poundlock.storage.json_record import of_format, typed

CHANGE_FORMAT = 2
"""The format of a record that says what changed; earlier versions refuse it by that number."""
METRICS_CHANGE_FORMAT = 4
"""The same of a record that has metrics of the user, see `METRICS_FORMAT`."""
_WHOLE = {CHANGE_FORMAT: FORMAT, METRICS_CHANGE_FORMAT: METRICS_FORMAT}
"""By the format of a record that says what changed, that of the same record whole."""
_CHANGING = {whole: change for change, whole in _WHOLE.items()}
BLOCK = 50
"""Of so many records, by their numbers, the first is whole."""
LEAST_BYTES = 16_000
"""Smaller records are always whole."""
LEAST_SAVING = 2
"""A record is whole unless it is so many times as small with only what changed."""
_POSITIONS = ("sources", "watermarks")
_CHECKSUM = "crc32"
_END = re.compile(rb'"([0-9a-f]{8})"\}\s*\Z')
_END_BYTES = 32  # the end of a record is looked for in so many bytes


def encoded(value: JSON) -> bytes:
    """Return the bytes of a record, its checksum behind all it says."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    content = text[:-1] + f',"{_CHECKSUM}":"'.encode()
    return content + f'{zlib.crc32(content):08x}"}}\n'.encode()


@dataclass(frozen=True, slots=True)
class _Base:
    """A record that others may build on: its number, its parts, and the size of the whole one that its chain begins with."""

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
        self._base: _Base | None = None  # the newest that is known to stand
        self._made: _Base | None = None

    def record(self, decision: Decision) -> bytes:
        """Return the bytes of a decision; nothing may be made relative to it before `stands` is called."""
        value, base = decision.to_json(), self._base
        if base is not None and not self._reaches(base, decision):
            base = None
        if base is not None and base.whole_bytes >= LEAST_BYTES:
            data, parts = _changing(value, base)
            if LEAST_SAVING * len(data) <= base.whole_bytes:
                self._made = _Base(decision.number, parts, base.whole_bytes)
                return data
        data = encoded(value)
        # The record behind a whole one without positions has to say them all: it is better made relative to an earlier one.
        self._made = base if base is not None and _passes(value) else _Base(decision.number, parts_of(value), len(data))
        return data

    def stands(self) -> None:
        """Take note that the record made last is durable."""
        self._base = self._made

    def _reaches(self, base: _Base, decision: Decision) -> bool:
        return decision.number - decision.number % self._block <= base.number < decision.number


def _passes(value: JSON) -> bool:
    """Return whether a record says nothing of positions, so that those before it stand: a roll or an end."""
    return not value["sources"] and "watermarks" not in value


def _changing(value: JSON, base: _Base) -> tuple[bytes, JSON]:
    """Return a record with only what changed since another one, and its parts."""
    parts, before = parts_of(value), expected(base.parts)
    if passes := _passes(value):
        parts = {**before, "states": parts["states"]}
    sinks = {name: {n: each for n, each in sink.items() if n != "state"} for name, sink in value["sinks"].items()}
    rest = {name: each for name, each in value.items() if passes or name not in _POSITIONS}
    change = msgspec.to_builtins(changed(before, parts))
    return encoded({**rest, "sinks": sinks, "v": _CHANGING[value["v"]], "since": base.number, "change": change}), parts


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
        if raw.get("v") not in _WHOLE:
            return Decision.from_json(raw)
        parts = self._parts(number, raw)
        rest = {name: each for name, each in raw.items() if name not in ("since", "change")}
        sinks = {name: {**sink, "state": parts["states"][name]} for name, sink in raw["sinks"].items()}
        positions = {name: parts[name] for name in _POSITIONS if name in parts and "sources" not in raw}
        return Decision.from_json({**rest, "v": _WHOLE[raw["v"]], **positions, "sinks": sinks})

    def forget(self) -> None:
        """Keep nothing."""
        self._known.clear()

    def _parts(self, number: int, raw: JSON) -> JSON:
        chain: list[tuple[int, JSON]] = []
        while number not in self._known and raw.get("v") in _WHOLE:
            chain.append((number, raw))
            since = raw.get("since")
            if not isinstance(since, int) or not 0 <= since < number:
                raise ValueError(f"it says what changed since record {since!r}")
            number = since
            raw = raw if number in self._known else self._raw(number)
        try:
            if number not in self._known:  # whoever reads on, or back, needs all of a block, and of one only
                self._known = {number: parts_of(raw)}
            for after, each in reversed(chain):
                self._known[after] = _behind(self._known[number], each)
                number = after
        except (AttributeError, LookupError, TypeError):
            raise ValueError(f"what changed since record {number} does not fit that record") from None
        return self._known[number]


def parts_of(value: JSON) -> JSON:
    """Return what of a whole record may be written as a change to another one."""
    states = {name: sink["state"] for name, sink in value["sinks"].items()}
    return {**{name: value[name] for name in _POSITIONS if name in value}, "states": states}


def _behind(parts: JSON, raw: JSON) -> JSON:
    """Return the parts of a record that says what changed, given those of the one it builds on."""
    after = applied(expected(parts), typed(raw.get("change"), ObjectChange))
    given = {name: sink["state"] for name, sink in raw["sinks"].items() if "state" in dict(sink)}
    states = {**after["states"], **given}
    return {**after, "states": {name: states[name] for name in raw["sinks"]}}


def expected(parts: JSON) -> JSON:
    """Return what the parts of a record would be, had nothing moved since another one."""
    spans = {name: {**span, "start": span["end"]} for name, span in parts["sources"].items()}
    result: dict[str, Any] = {"sources": spans, "states": parts["states"]}
    if (times := parts.get("watermarks")) is not None:
        result["watermarks"] = {**times, "directive": {**times["directive"], "state": times["state"]}}
    return result


def raw_record(data: bytes) -> JSON:
    """Return the JSON object of a record's bytes, of either format, without its checksum.

    Raises:
        ValueError: it is none, or another one than was written.
    """
    end = _END.search(data, max(0, len(data) - _END_BYTES))
    if end is not None and zlib.crc32(memoryview(data)[: end.start(1)]) != int(end[1], 16):
        raise ValueError("its checksum (CRC-32) is another than its bytes have")
    value = json.loads(data)
    if isinstance(value, dict) and value.pop(_CHECKSUM, None) is not None and end is None:
        raise ValueError("its checksum (CRC-32) is damaged")
    given = value.get("v") if isinstance(value, dict) else None
    known = (*_WHOLE, *_CHANGING)
    return of_format(value, given if type(given) is int and given in known else FORMAT)
