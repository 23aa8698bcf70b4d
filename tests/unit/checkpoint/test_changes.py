"""What changed between two JSON objects gives the second one back, whatever they are, and is small where little changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from poundlock.checkpoint.ledger.changes import ObjectChange, applied, changed

NAMES = st.sampled_from(["a", "b", "c", "d"])
LEAVES = st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, -3, 2**63 - 1, "", "x"])
LISTS = st.lists(NAMES, max_size=5) | st.lists(LEAVES, max_size=3)
VALUES = st.recursive(LEAVES | LISTS, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=20)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(before=OBJECTS, after=OBJECTS)
def test_a_change_gives_the_object_behind_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    was = copy.deepcopy(before)
    written = json.loads(json.dumps(msgspec.to_builtins(changed(before, after))))
    assert text(applied(before, msgspec.convert(written, ObjectChange))) == text(after)
    assert text(before) == text(was), "what was before stays as it was"


@given(value=OBJECTS)
def test_nothing_is_said_of_what_stays(value: dict[str, Any]) -> None:
    assert changed(value, copy.deepcopy(value)) == ObjectChange()


def test_what_moved_is_named_by_its_way_and_nothing_else() -> None:
    before = {"t": {str(p): {"at": p, "idle": True} for p in range(1000)}, "names": [f"t-{p}" for p in range(1000)]}
    after = copy.deepcopy(before)
    after["t"]["7"] = {"at": 8}
    del after["t"]["9"]
    after["names"].remove("t-9")
    after["names"].insert(3, "t-x")
    change = changed(before, after)
    assert msgspec.to_builtins(change) == {
        "set": {"t": {"7": {"at": 8}}},
        "gone": {"t": {"9": None, "7": {"idle": None}}},
        "lists": [{"path": ["names"], "gone": ["t-9"], "new": [(3, "t-x")]}],
    }
    assert applied(before, change) == after
