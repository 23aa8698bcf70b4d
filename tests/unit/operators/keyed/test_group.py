"""Key groups: which key is in which, what a blob gives back, what can be read of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import read_head
from poundlock.operators.keyed.group import MIN, KeyGroup, describe_group
from poundlock.operators.keyed.keys import group_of, groups_of_instance, instance_of, normal


def test_a_key_is_in_the_same_group_for_all_time() -> None:
    keys = [None, True, 0, -1, 1 << 70, "", "user", "ä", b"x", 0.5, ("a", 1), ("a", None)]
    # State on disk is found by these numbers: they must never change.
    assert [group_of(key, 128) for key in keys] == [52, 112, 10, 39, 97, 55, 113, 38, 55, 64, 126, 55]
    assert group_of(0.0, 128) == group_of(-0.0, 128)
    nan, zero, other = normal([float("nan"), -0.0, 3])
    assert group_of(nan, 128) == group_of(float("nan"), 128)
    assert (str(zero), other) == ("0.0", 3)


def test_keys_are_spread_evenly() -> None:
    for keys in (
        [f"user-{i}" for i in range(20_000)],
        list(range(0, 20_000 * 128, 128)),
        [(i, "x") for i in range(20_000)],
    ):
        sizes = [0] * 16
        for key in keys:
            sizes[group_of(key, 16)] += 1
        assert 1000 < min(sizes) <= max(sizes) < 1500


@given(st.integers(1, 200), st.data())
def test_every_group_has_one_instance(groups: int, data: st.DataObject) -> None:
    instances = data.draw(st.integers(1, groups))
    ranges = [groups_of_instance(i, groups, instances) for i in range(instances)]
    assert [g for some in ranges for g in some] == list(range(groups))
    assert all(instance_of(g, groups, instances) == i for i, some in enumerate(ranges) for g in some)
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_more_instances_than_groups_are_refused() -> None:
    with pytest.raises(DefinitionError, match="9 instances of 8 key groups"):
        groups_of_instance(0, 8, 9)


def example() -> KeyGroup:
    group = KeyGroup(5, watermark=99, processing_time=1000, timer_entries="keys and windows")
    group.declare("sums", "value")
    group.declare("contents", "panes")
    group.declare("state:seen", "value", 1000, windowed=True)
    group.table("sums").update({"a": 1, ("b", None): [2]})
    group.table("contents", (0, 10)).update({"a": 3})
    group.table("contents", (10, 20)).update({"a": 4})
    group.table("state:seen")["a", (0, 10)] = [1000, 5]
    group.table("never filled")
    group.event_timers.register(9, ("a", (0, 10)))
    group.processing_timers.register(7, ("b", None))
    group.processing_timers.register(3, ("a", None))
    return group


def test_a_blob_gives_the_group_back() -> None:
    data = example().encode()
    group = KeyGroup.decode(data)
    assert group.encode() == data
    assert (group.number, group.watermark, group.processing_time) == (5, 99, 1000)
    assert group.table("sums") == {"a": 1, ("b", None): [2]}
    assert group.namespaces("contents") == [(0, 10), (10, 20)]
    group.drop("contents", (0, 10))
    assert KeyGroup.decode(group.encode()).namespaces("contents") == [(10, 20)]
    assert list(group.event_timers.due(100)) == [(9, ("a", (0, 10)))]
    assert not group.is_empty()
    assert KeyGroup.decode(KeyGroup(1).encode()).is_empty()


def test_the_head_is_read_without_the_state() -> None:
    head = read_head(example().encode())
    assert (head.group, head.watermark, head.next_event_timer, head.next_processing_timer) == (5, 99, 9, 3)
    head = read_head(KeyGroup(1).encode())
    assert (head.watermark, head.next_event_timer, head.next_processing_timer) == (MIN, None, None)


def test_a_table_that_was_not_looked_at_stays_bytes() -> None:
    group = KeyGroup.decode(example().encode())
    group.table("contents", (0, 10))["b"] = 9
    held = group._tables["contents"]
    assert (type(held[0, 10]), type(held[10, 20])) == (dict, memoryview)
    again = KeyGroup.decode(group.encode())
    assert (again.table("contents", (0, 10)), again.table("contents", (10, 20))) == ({"a": 3, "b": 9}, {"a": 4})


def test_a_blob_can_be_read_by_people() -> None:
    said = describe_group(example().encode())
    assert {k: said[k] for k in ("format", "group", "watermark", "processing_time")} == {
        "format": 1,
        "group": 5,
        "watermark": 99,
        "processing_time": 1000,
    }
    assert said["state"]["sums"] == {
        "kind": "value",
        "ttl_ms": None,
        "entries": [
            {"key": "a", "window": None, "value": 1, "windowed": False},
            {"key": ("b", None), "window": None, "value": [2], "windowed": False},
        ],
    }
    assert said["state"]["contents"]["entries"] == [
        {"key": "a", "window": (0, 10), "value": 3, "windowed": True},
        {"key": "a", "window": (10, 20), "value": 4, "windowed": True},
    ]
    assert said["state"]["state:seen"] == {
        "kind": "value",
        "ttl_ms": 1000,
        "entries": [{"key": "a", "window": (0, 10), "value": [1000, 5], "windowed": True}],
    }
    assert said["event_timers"] == [{"time": 9, "key": "a", "window": (0, 10)}]
    assert said["processing_timers"] == [
        {"time": 3, "key": "a", "window": None},
        {"time": 7, "key": "b", "window": None},
    ]
    assert "never filled" not in said["state"]
