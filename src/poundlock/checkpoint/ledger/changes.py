"""What changed from one JSON object to another, as JSON: what was set, what is gone, and which texts left or came to a list.

`applied(before, changed(before, after))` is `after`, whatever the two are; the order of names in an object means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from poundlock.checkpoint.participant import JSON

_ENCODED = msgspec.json.Encoder().encode
_LISTS = (list, tuple)  # which is which is not written


class ListChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A list of unlike texts that keep their order.

    Args:
        path: the names that lead to it, from the outermost object on.
        gone: the texts that left it.
        new: the texts that came, each with its index in the new list, rising.
    """

    path: list[str]
    gone: list[str] = []
    new: list[tuple[int, str]] = []


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
        elif not _same(old, value):
            if (each := _of_list(old, value, [*path, name])) is not None:
                lists.append(each)
            else:
                newer[name] = value
    return newer, gone


def _written_alike(one: JSON, other: JSON) -> bool:
    """Return whether two equal objects are written alike, in the same order; False where that is not known."""
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
    """Return what changed of a list; None where it is no list of unlike texts, or they are in another order."""
    if not (isinstance(before, _LISTS) and isinstance(after, _LISTS)):
        return None
    if not all(isinstance(each, str) for each in (*before, *after)):
        return None
    had, has = set(before), set(after)
    if len(had) < len(before) or len(has) < len(after):
        return None
    new = [(index, each) for index, each in enumerate(after) if each not in had]
    change = ListChange(path, [each for each in before if each not in has], new)
    return change if _of_change(before, change) == list(after) else None


def _of_change(before: Sequence[str], change: ListChange) -> list[str]:
    gone = set(change.gone)
    result = [each for each in before if each not in gone]
    if not change.new:
        return result
    kept, places = iter(result), dict(change.new)
    return [places[i] if i in places else next(kept, "") for i in range(len(result) + len(places))]


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
