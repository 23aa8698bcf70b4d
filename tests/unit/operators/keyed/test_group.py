"""What operators work on in memory, and the same from runs: tables by name and window, timers, and what of it is left."""

from __future__ import annotations

import pytest

from poundlock.operators.keyed.group import KeyGroup
from poundlock.state.scratch import ScratchState


class Memory:
    """A group that is never written."""

    group = KeyGroup(0)

    def open(self) -> KeyGroup:
        return self.group

    def write(self) -> None: ...


@pytest.fixture(params=["memory", "runs"])
def state(request: pytest.FixtureRequest) -> Memory | ScratchState:
    Memory.group = KeyGroup(0)
    return Memory() if request.param == "memory" else ScratchState(1)


def test_what_is_written_is_read_again(state: Memory | ScratchState) -> None:
    group = state.open()
    group.timer_entries = "keys and windows"
    assert group.is_empty()
    group.prefetch(["a", ("b", None)])
    group.declare("sums", "value")
    group.declare("contents", "panes")
    group.table("sums").update({"a": 1, ("b", None): [2]})
    group.table("contents", (0, 10)).update({"a": 3})
    group.table("contents", (10, 20)).update({"a": 4})
    group.table("never filled")
    group.event_timers.register(9, ("a", (0, 10)))
    group.processing_timers.register(7, (("b", None), None))
    group.processing_timers.register(3, ("a", None))
    state.write()
    group = state.open()
    group.timer_entries = "keys and windows"
    assert dict(group.table("sums").items()) == {"a": 1, ("b", None): [2]}
    assert group.namespaces("contents") == [(0, 10), (10, 20)]
    group.drop("contents", (0, 10))
    state.write()
    group = state.open()
    group.timer_entries = "keys and windows"
    assert group.namespaces("contents") == [(10, 20)]
    assert [group.event_timers.next_time(), group.processing_timers.next_time()] == [9, 3]
    assert list(group.event_timers.due(100)) == [(9, ("a", (0, 10)))]
    assert not group.is_empty()
    assert list(group.processing_timers.due(100)) == [(3, ("a", None)), (7, (("b", None), None))]
    group.drop("contents", (10, 20))
    for key in list(group.table("sums")):
        del group.table("sums")[key]
    assert group.is_empty()


def test_a_snapshot_can_be_read_by_people() -> None:
    state = ScratchState(1)
    group = state.open(0, 99, 1000)
    group.timer_entries = "keys and windows"
    group.prefetch(["a", "b"])
    group.declare("sums", "value")
    group.declare("contents", "panes")
    group.declare("state:seen", "value", 1000, windowed=True)
    group.table("sums").update({"a": 1, "b": [2]})
    group.table("contents", (0, 10)).update({"a": 3})
    group.table("state:seen")["a", (0, 10)] = [1000, 5]
    group.table("never filled")
    group.event_timers.register(9, ("a", (0, 10)))
    group.processing_timers.register(7, ("b", None))
    group.processing_timers.register(3, ("a", None))
    result = ScratchState.of(state.to_files()).described()
    assert (result["watermark"], result["processing_time"]) == (99, 1000)
    assert sorted(result["state"]) == ["contents", "state:seen", "sums"]
    assert sorted(result["state"]["sums"]["entries"], key=lambda entry: str(entry["key"])) == [
        {"key": "a", "window": None, "value": 1, "windowed": False},
        {"key": "b", "window": None, "value": [2], "windowed": False},
    ]
    assert result["state"]["contents"]["entries"] == [{"key": "a", "window": (0, 10), "value": 3, "windowed": True}]
    assert result["state"]["state:seen"] == {
        "kind": "value",
        "ttl_ms": 1000,
        "count": 1,
        "entries": [{"key": "a", "window": (0, 10), "value": [1000, 5], "windowed": True}],
    }
    assert result["event_timers"] == [{"time": 9, "key": "a", "window": (0, 10)}]
    assert result["processing_timers"] == [
        {"time": 3, "key": "a", "window": None},
        {"time": 7, "key": "b", "window": None},
    ]
