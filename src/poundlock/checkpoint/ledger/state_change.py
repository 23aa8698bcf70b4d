"""What of a JSON object is another than before, as JSON: a change is as large as what changed, not as what there is.

An object's change is an object: "set" has the values of fields that are new or another, "drop" the names of those that are gone, "in" the
changes within fields. A list's is a list: [first, count] stands for items that stay, {"at", "in"} for one that changed within, {"new"} for
items that came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from poundlock.checkpoint.participant import JSON

__all__ = ["applied", "change_of", "encoded"]

_LOOK_AHEAD = 16  # so many items that are gone or changed are compared with one that is not there before

Change = Mapping[str, Any] | Sequence[Any]


def encoded(value: Any) -> bytes:
    """Return a value as JSON, the same for the same value whatever the order of its fields. Raises Exception where JSON cannot say it."""
    return msgspec.json.encode(value, order="sorted")


def change_of(before: JSON, after: JSON) -> JSON:
    """Return what turns one JSON object into another; see `applied`."""
    change: JSON = {}
    fields: JSON = {}
    whole: JSON = {}
    for name, value in after.items():
        if name not in before:
            whole[name] = value
        elif not _same(before[name], value):
            part = _within(before[name], value)
            if part is None:
                whole[name] = value
            else:
                fields[name] = part
    dropped = [name for name in before if name not in after]
    change |= {"set": whole} if whole else {}
    change |= {"in": fields} if fields else {}
    change |= {"drop": dropped} if dropped else {}
    return change


def applied(before: JSON, change: Mapping[str, Any]) -> JSON:
    """Return what a change makes of a JSON object, which stays as it is. Raises ValueError: it is no change of this object."""
    try:
        return _in_object(before, change)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("what it changes is not what stands before it") from error


def _in_object(before: Mapping[str, Any], change: Mapping[str, Any]) -> JSON:
    dropped, fields = set(change.get("drop", ())), change.get("in", {})
    kept = {name: value for name, value in before.items() if name not in dropped}
    kept |= {name: _in_value(before[name], part) for name, part in fields.items()}
    return {**kept, **change.get("set", {})}


def _in_value(before: Any, change: Change) -> Any:
    return _in_object(before, change) if isinstance(change, Mapping) else _in_list(before, change)


def _in_list(before: Sequence[Any], change: Sequence[Any]) -> list[Any]:
    items: list[Any] = []
    for step in change:
        if not isinstance(step, Mapping):
            first, count = step
            if not 0 <= first <= first + count <= len(before):
                raise IndexError(first)
            items += before[first : first + count]
        elif "new" in step:
            items += step["new"]
        else:
            items.append(_in_value(before[step["at"]], step["in"]))
    return items


def _within(before: Any, after: Any) -> Change | None:
    """Return the change within a value, None where it is better said whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        return change_of(before, after)
    if isinstance(before, list) and isinstance(after, list) and before:
        return _of_list(before, after)
    return None


def _of_list(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    same, most = 0, min(len(before), len(after))
    while same < most and _same(before[same], after[same]):
        same += 1
    end = 0
    while end < most - same and _same(before[-1 - end], after[-1 - end]):
        end += 1
    steps: list[Any] = [[0, same]] if same else []
    steps += _of_middle(before[same : len(before) - end], after[same : len(after) - end], same)
    return [*steps, [len(before) - end, end]] if end else steps


def _of_middle(left: Sequence[Any], came: Sequence[Any], first: int) -> list[Any]:
    """Return the steps for what is between the items at both ends that are as they were. `first`: the place of the first one before."""
    if not left or not came:
        return [{"new": list(came)}] if came else []
    keys = [encoded(item) for item in came]
    still = set(keys)
    places: dict[bytes, int] = {}
    gone: list[int] = []  # of those that are left, what is not there as it was
    steps: list[Any] = []
    for place, item in enumerate(left):
        key = encoded(item)
        places.setdefault(key, place)
        if key not in still:
            gone.append(place)
    next_gone = 0
    for item, key in zip(came, keys, strict=True):
        if key in places:
            _stays(steps, first + places[key])
            continue
        for number in range(next_gone, min(next_gone + _LOOK_AHEAD, len(gone))):
            part = _within(left[gone[number]], item) if _alike(left[gone[number]], item) else None
            if part is not None:
                steps.append({"at": first + gone[number], "in": part})
                next_gone = number + 1
                break
        else:
            _comes(steps, item)
    return steps


def _stays(steps: list[Any], place: int) -> None:
    last = steps[-1] if steps else None
    if isinstance(last, list) and last[0] + last[1] == place:
        last[1] += 1
    else:
        steps.append([place, 1])


def _comes(steps: list[Any], item: Any) -> None:
    if steps and isinstance(steps[-1], dict) and "new" in steps[-1]:
        steps[-1]["new"].append(item)
    else:
        steps.append({"new": [item]})


def _alike(before: Any, after: Any) -> bool:
    """Return whether one item may be the other as it was: half of its fields are the same."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return False
    return 2 * sum(name in before and _same(before[name], value) for name, value in after.items()) >= len(after)


def _same(before: Any, after: Any) -> bool:
    # 1, 1.0 and True are equal, and not the same JSON; deeper down whoever writes a change looks for that.
    return type(before) is type(after) and bool(before == after)
