"""A decision as the bytes of its file. What a sink carries is written whole now and then, and in between as what changed of it.

A record without changes has format 1, one with changes format 2. A change is written only where it was seen to give the state back, to
the byte, from what stands in the record before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from poundlock.checkpoint.decision import FORMAT, Decision, SinkDecision
from poundlock.checkpoint.ledger.state_change import applied, change_of, encoded
from poundlock.checkpoint.participant import JSON

__all__ = ["Appended", "LedgerRecord"]

WHOLE_EVERY = 25
"""At every so many-th record all states stand whole: whoever reads the newest reads so many files at most."""

SMALL = 4096  # bytes of a state that is always written whole

_CHANGES = 2  # the format of a record with changes


@dataclass(frozen=True)
class LedgerRecord:
    """What a file says."""

    decision: Decision  # the states that are changes are empty
    changes: Mapping[str, JSON] = field(
        default_factory=dict
    )  # per sink, what changed of the state in the record before

    @classmethod
    def of(cls, data: bytes) -> LedgerRecord:
        """Return the record of a file's bytes. Raises ValueError: they are none, or of a format this version does not know."""
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("v") != _CHANGES:
            return cls(Decision.from_json(value))
        sinks, changes = dict(value.get("sinks") or {}), dict[str, JSON]()
        for name, sink in sinks.items():
            if isinstance(sink, dict) and "change" in sink:
                changes[name] = sink["change"]
                sinks[name] = {**{field: each for field, each in sink.items() if field != "change"}, "state": {}}
        return cls(Decision.from_json({**value, "v": FORMAT, "sinks": sinks}), changes)

    def behind(self, before: Decision) -> Decision:
        """Return the decision with all states, given the one before it. Raises ValueError: that is not what it was made from."""
        whole = {
            name: replace(self.decision.sinks[name], state=applied(_state(before, name), change))
            for name, change in self.changes.items()
        }
        return replace(self.decision, sinks={**self.decision.sinks, **whole})


@dataclass(frozen=True)
class Appended:
    """A decision that was written, as the next one may say what changed of it."""

    decision: Decision
    digests: Mapping[str, bytes]  # of the states that are not small: whoever was given one may have changed it since

    @classmethod
    def of(cls, decision: Decision, before: Appended | None) -> tuple[Appended, bytes]:
        """Return a decision as one that is written, and the bytes of its file.

        Args:
            before: the record before it; None = all states stand whole.
        """
        digests: dict[str, bytes] = {}
        changes: dict[str, JSON] = {}
        for name, sink in decision.sinks.items():
            whole = _encoded(sink.state)
            if whole is None or len(whole) < SMALL:
                continue
            digests[name] = _digest(whole)
            change = None if before is None else _change(before, name, sink, whole)
            if change is not None:
                changes[name] = change
        return cls(decision, digests), _bytes(decision, changes)


def _change(before: Appended, name: str, sink: SinkDecision, whole: bytes) -> JSON | None:
    """Return what changed of a state, None where that is not known for certain, or hardly smaller than the state."""
    state = _state(before.decision, name)
    then = _encoded(state)
    if then is None or before.digests.get(name) != _digest(then):
        return None
    change = {} if then == whole else change_of(state, sink.state)
    if 2 * len(encoded(change)) > len(whole) or encoded(applied(state, change)) != whole:
        return None
    return change


def _bytes(decision: Decision, changes: Mapping[str, JSON]) -> bytes:
    left = {name: replace(sink, state={}) if name in changes else sink for name, sink in decision.sinks.items()}
    value = replace(decision, sinks=left).to_json()
    for name, change in changes.items():
        del value["sinks"][name]["state"]
        value["sinks"][name]["change"] = change
    if changes:
        value["v"] = _CHANGES
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _state(decision: Decision, name: str) -> JSON:
    return decision.sinks[name].state if name in decision.sinks else {}


def _encoded(state: JSON) -> bytes | None:
    """Return a state as JSON, None where that is not what the record's own encoder would make of it."""
    try:
        return encoded(state)
    except Exception:  # a number of more than 64 bits, a key that is no text: a sink of the user's may have such
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
