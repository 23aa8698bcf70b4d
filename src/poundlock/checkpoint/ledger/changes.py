"""What changed from one JSON object to another, as JSON: what was set, what is gone, and what left, came to or changed in a list.

`applied(before, changed(before, after))` is `after`, whatever the two are; the order of names in an object means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from poundlock.checkpoint.participant import JSON

_ENCODED = msgspec.json.Encoder().encode
_KEY = msgspec.json.Encoder(order="sorted").encode
_LISTS = (list, tuple)  # which is which is not written
_LOOK_AHEAD = 16  # so many objects that left are compared with one that came: it may be one of them, changed


class ListChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A list of unlike texts, or of objects. What stays keeps its order.

    Args:
        path: the names that lead to it, from the outermost object on.
        gone: the texts that left it, or the places that objects which left had in the list before.
        new: what came, each with its place in the new list, rising.
        within: the objects that stay and changed, each by its place in the new list.
    """

    path: list[str]
    gone: list[str | int] = []
    new: list[tuple[int, Any]] = []
    within: list[tuple[int, ObjectChange]] = []


class ObjectChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed of an object.

    Args:
        set: an object in it that meets an object is laid over it, name by name; anything else takes the place of what was there.
        gone: as deep as the names lead, null for a name that is gone.
        lists: what else would be in `set` as a whole.
    """

    set: dict[str, Any] = {}
    gone: dict[str, Any] = {}
    lists: list[ListChange] = []


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> ObjectChange:
    """Return what to do to `before` so that it is `after`."""
    lists: list[ListChange] = []
    newer, gone = _compared(before, after, [], lists)
    return ObjectChange(newer, gone, lists)


def _compared(
    before: Mapping[str, Any], after: Mapping[str, Any], path: Sequence[str], lists: list[ListChange]
) -> tuple[JSON, JSON]:
    newer: JSON = {}
    gone: JSON = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            newer[name] = value
            continue
        old = before[name]
        if isinstance(value, dict) and isinstance(old, dict):
            if old == value and _written_alike(old, value):  # as most of what there is
                continue
            deeper, lost = _compared(old, value, [*path, name], lists)
            if deeper:
                newer[name] = deeper
            if lost:
                gone[name] = lost
        elif (each := _of_list(old, value, [*path, name])) is not None:
            if each.gone or each.new or each.within:
                lists.append(each)
        elif not _same(old, value):
            newer[name] = value
    return newer, gone


def _written_alike(one: Any, other: Any) -> bool:
    """Return whether two equal values are written alike, in the same order; False where that is not known."""
    try:
        return _ENCODED(one) == _ENCODED(other)
    except (OverflowError, UnicodeEncodeError):  # JSON can say what msgspec does not
        return False


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are written alike: 1, 1.0 and true are not."""
    if isinstance(one, _LISTS) and isinstance(other, _LISTS):
        return one is other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    return type(one) is type(other) and bool(one == other)


def _of_list(before: Any, after: Any, path: list[str]) -> ListChange | None:
    """Return what changed of a list; None where that is not known to be all, or it is better written whole."""
    if not (isinstance(before, _LISTS) and isinstance(after, _LISTS) and before and after):
        return None
    kinds = {*map(type, before), *map(type, after)}
    change = _of_texts(before, after, path) if kinds == {str} else None
    change = _of_objects(before, after, path) if kinds == {dict} else change
    return change if change is not None and _of_change(before, change) == list(after) else None


def _of_texts(before: Sequence[str], after: Sequence[str], path: list[str]) -> ListChange | None:
    had, has = set(before), set(after)
    if len(had) < len(before) or len(has) < len(after):
        return None
    new = [(index, each) for index, each in enumerate(after) if each not in had]
    return ListChange(path, [each for each in before if each not in has], new)


def _of_objects(before: Sequence[JSON], after: Sequence[JSON], path: list[str]) -> ListChange | None:
    """Return what changed of a list of objects, None where they are in another order. What is alike at both ends is not taken one by one."""
    start = _alike_at_front(before, after)
    end = _alike_at_front(before[start:][::-1], after[start:][::-1])
    left, came = before[start : len(before) - end], after[start : len(after) - end]
    left_keys, came_keys = [_key(each) for each in left], [_key(each) for each in came]
    had, has = set(left_keys), set(came_keys)
    change = ListChange(path, [], [], [])
    i = j = 0
    while i < len(left) or j < len(came):
        i_next = next((n for n in range(i, len(left)) if left_keys[n] in has), len(left))
        j_next = next((n for n in range(j, len(came)) if came_keys[n] in had), len(came))
        _between(change, (left[i:i_next], start + i), (came[j:j_next], start + j))
        i, j = i_next + 1, j_next + 1
        if left_keys[i_next:i] != came_keys[j_next:j]:
            return None
    return change


def _alike_at_front(before: Sequence[JSON], after: Sequence[JSON]) -> int:
    """Return how many objects at the front are written alike."""
    pairs = list(zip(before, after, strict=False))
    alike = next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
    if _written_alike(before[:alike], after[:alike]):  # else some differ in the order of names, or in 1 and true
        return alike
    return next((n for n, pair in enumerate(pairs[:alike]) if not _written_alike(*pair)), alike)


def _key(each: JSON) -> bytes:
    """Return what objects that are written alike have in common."""
    try:
        return _KEY(each)
    except (OverflowError, UnicodeEncodeError):
        return json.dumps(each, sort_keys=True).encode()


def _between(change: ListChange, left: tuple[Sequence[JSON], int], came: tuple[Sequence[JSON], int]) -> None:
    """Add what became of objects between two that stay.

    Args:
        left: those that were there, and the place of the first one in the list before.
        came: those that are, and the place of the first one in the new list.
    """
    (olds, first), (news, place) = left, came
    begin = 0
    for index, value in enumerate(news, place):
        ahead = range(begin, min(begin + _LOOK_AHEAD, len(olds)))
        match = next((n for n in ahead if _may_be(olds[n], value)), None)
        if match is None:
            change.new.append((index, value))
            continue
        change.gone.extend(range(first + begin, first + match))
        change.within.append((index, changed(olds[match], value)))
        begin = match + 1
    change.gone.extend(range(first + begin, first + len(olds)))


def _may_be(before: JSON, after: JSON) -> bool:
    """Return whether one object may be the other, changed: half of what it says is as it was."""
    return 2 * sum(name in before and bool(before[name] == value) for name, value in after.items()) >= len(after)


def _of_change(before: Sequence[Any], change: ListChange) -> list[Any]:
    """Return the new list.

    Raises:
        IndexError: the change is not one of this list.
    """
    gone = set(change.gone)
    kept = [each for n, each in enumerate(before) if n not in gone and not (isinstance(each, str) and each in gone)]
    rest, places = iter(kept), dict(change.new)
    size = len(kept) + len(places)
    if len(kept) + len(gone) != len(before) or not all(0 <= n < size for n in places):
        raise IndexError("what left was not there, or what came has no place")
    result = [places[n] if n in places else next(rest) for n in range(size)] if places else kept
    for place, each in change.within:
        result[place] = applied(result[place], each)
    return result


def applied(before: JSON, change: ObjectChange) -> JSON:
    """Return the object behind a change; `before` stays as it was, and what did not change is shared with it."""
    result = _laid(before, change.set, change.gone)
    for each in change.lists:
        _put(result, before, each)
    return result


def _laid(before: JSON, newer: Mapping[str, Any], gone: Mapping[str, Any]) -> JSON:
    result = dict(before)
    for name in newer.keys() | gone.keys():
        old, deeper = result.get(name), gone.get(name)
        if name not in newer:
            if deeper is None:
                del result[name]
            else:
                result[name] = _laid(result[name], {}, deeper)
            continue
        value = newer[name]
        both = isinstance(value, dict) and isinstance(old, dict)
        result[name] = _laid(old or {}, value, deeper or {}) if both else value
    return result


def _put(result: JSON, before: JSON, change: ListChange) -> None:
    """Put the new list where the old one was; the objects that lead there become `result`'s own."""
    *above, last = change.path
    for name in above:
        result[name] = dict(result[name])
        result, before = result[name], before[name]
    result[last] = _of_change(before[last], change)
