"""What changed between two JSON objects gives the second one back, whatever they are, and is small where little changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from poundlock.checkpoint.ledger import changes
from poundlock.checkpoint.ledger.changes import ListChange, ObjectChange, applied, changed
from poundlock.checkpoint.participant import JSON

NAMES = st.sampled_from(["a", "b", "c", "d"])
LEAVES = st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, -3, 2**63 - 1, "", "x"])
LISTS = st.lists(NAMES, max_size=5) | st.lists(LEAVES, max_size=3)
VALUES = st.recursive(LEAVES | LISTS, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=20)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def written(change: ObjectChange) -> ObjectChange:
    return msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(change))), ObjectChange)


@given(before=OBJECTS, after=OBJECTS)
def test_a_change_gives_the_object_behind_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    was = copy.deepcopy(before)
    assert text(applied(before, written(changed(before, after)))) == text(after)
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


# --- lists of objects ------------------------------------------------------------------------------------------------


@st.composite
def two_lists(draw: st.DrawFn) -> tuple[list[JSON], list[JSON]]:
    """Draw a list of objects and what became of it: some left, changed, came, or moved; some are written twice."""
    before = draw(st.lists(OBJECTS, max_size=12))
    after = copy.deepcopy(before)
    for what in draw(st.lists(st.sampled_from(["leave", "come", "change", "move", "odd"]), max_size=6)):
        place = draw(st.integers(0, max(0, len(after) - 1)))
        if what == "come" or not after:
            after.insert(place, draw(OBJECTS))
        elif what == "change":
            after[place] = {**after[place], draw(NAMES): draw(VALUES)}
        elif what == "odd":  # equal, and not the same
            after[place] = {name: True if each == 1 else each for name, each in reversed(after[place].items())}
        else:
            each = after.pop(place)
            if what == "move":
                after.insert(draw(st.integers(0, len(after))), each)
    return before, after


@given(lists=two_lists())
def test_a_list_of_objects_comes_back(lists: tuple[list[JSON], list[JSON]]) -> None:
    before, after = ({"l": each} for each in lists)
    was = copy.deepcopy(before)
    change = changed(before, after)
    assert text(applied(before, written(change))) == text(after)
    assert text(before) == text(was), "what was before stays as it was"
    assert (change == ObjectChange()) == (text(before) == text(after)), "and nothing is written where nothing changed"


def part(number: int, **more: Any) -> JSON:
    """Return a pending file, as a file sink has it."""
    return {"bucket": f"b{number}", "name": f"part-{number}", "rows": 1, "segments": [{"path": f"s-{number}"}], **more}


def test_objects_that_left_came_and_changed_are_named_by_their_places() -> None:
    before = {"parts": [part(n) for n in range(9)]}
    more = [{"path": "s-4"}, {"path": "s-4b"}]
    after = {"parts": [*map(part, (0, 1, 3)), part(4, rows=2, segments=more), *map(part, range(5, 10))]}
    change = changed(before, after)
    grown = ObjectChange({"rows": 2}, {}, [ListChange(["segments"], [], [(1, {"path": "s-4b"})])])
    assert change == ObjectChange({}, {}, [ListChange(["parts"], [2], [(8, part(9))], [(3, grown)])])
    assert applied(before, change) == after


@pytest.mark.parametrize("touched", [0, 1, 5])
@pytest.mark.parametrize("at", [0, 400, 990])
def test_a_change_is_as_large_as_what_was_touched(touched: int, at: int) -> None:
    before = [part(n) for n in range(1000)]
    after = list(before)
    for n in range(at, at + touched):
        after[n] = part(n, rows=2, segments=[{"path": f"s-{n}"}, {"path": f"new-{n}"}])
    del after[at + touched]  # it is finished
    after.append(part(1000))
    change = changed({"parts": before}, {"parts": after})
    assert applied({"parts": before}, change) == {"parts": after}
    assert len(msgspec.json.encode(change)) < 250 + 100 * touched


def test_what_is_alike_at_both_ends_is_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, real = list[JSON](), changes._key
    monkeypatch.setattr(changes, "_key", lambda each: taken.append(each) or real(each))
    before = {"parts": [part(n) for n in range(1000)]}
    after = {"parts": [part(n, rows=2) if n in (500, 510) else part(n) for n in range(1000)]}
    changed(before, after)
    assert len(taken) == 2 * 11


@pytest.mark.parametrize(
    "wrong",
    [
        ListChange(["l"], [9]),
        ListChange(["l"], ["a"]),
        ListChange(["l"], [], [(4, {})]),
        ListChange(["l"], [], [(-1, {})]),
        ListChange(["l"], [], [], [(3, ObjectChange())]),
    ],
)
def test_a_change_of_another_list_is_refused(wrong: ListChange) -> None:
    with pytest.raises(IndexError):
        applied({"l": [part(1), part(2)]}, ObjectChange({}, {}, [wrong]))
