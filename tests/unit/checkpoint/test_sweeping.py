"""Leftovers are removed by the driver where they are few; very many wait for the cluster, and its tasks remove them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.checkpoint.participant import JSON, Leftover, Orphan, unchecked
from poundlock.checkpoint.sweeping import remove_left, sweep_all
from poundlock.errors import FencedError, TransientError

THERE: set[str] = set()  # one process plays driver and tasks
LOG: Any = SimpleNamespace(warning=lambda event, **fields: None, info=lambda event, **fields: None)


class Sink:
    """Where more than four are cut into two."""

    def pieces(self, calls: int) -> int:
        return 2 if calls > 4 else 1

    def leftovers(self, state: JSON) -> Sequence[Leftover]:
        named = state.get("named", ())
        return [Leftover(Orphan(f"/out/{name}", 1, 0), {"path": name}) for name in sorted(THERE) if name not in named]

    def remove(self, leftovers: Sequence[Leftover]) -> None:
        for each in leftovers:
            THERE.discard(each.place["path"])
            if each.place["path"] == "refused":
                raise TransientError("not now")


class Old:
    """A sink that finds and removes in one call."""

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        check()
        return [Orphan("/old/x", 1, 0)] if remove else []


class Tasks:
    """Runs everything here, with what crosses to a task pickled."""

    def __init__(self, failing: bool = False) -> None:
        self.pieces: list[int] = []
        self.failing = failing

    def run(self, call: Callable[[list[Any]], list[Any]], pieces: Sequence[list[Any]]) -> list[list[Any]]:
        self.pieces += [len(piece) for piece in pieces]
        if self.failing:
            raise RuntimeError("an executor is lost")
        return [pickle.loads(pickle.dumps(call))(pickle.loads(pickle.dumps(piece))) for piece in pieces]


def left_behind(count: int) -> tuple[dict[str, Sequence[Leftover]], Mapping[str, Any], list[int]]:
    """Sweep so many; return what waits for tasks, the sinks, and how many there were when it was asked who may."""
    THERE.clear()
    THERE.update(f"f{number}" for number in range(count))
    THERE.add("named")
    later: dict[str, Sequence[Leftover]] = {}
    asked: list[int] = []
    sinks: Mapping[str, Any] = {"out": Sink(), "old": Old()}
    found = sweep_all(sinks, lambda name: {"named": ["named"]}, check=lambda: asked.append(len(THERE)), later=later)
    assert [orphan.path for orphan in found["out"]] == [f"/out/f{number}" for number in range(count)]
    assert [orphan.path for orphan in found["old"]] == ["/old/x"]
    return later, sinks, asked


def test_few_are_removed_at_once() -> None:
    later, _, asked = left_behind(4)
    assert later == {}
    assert asked == [5, 1]
    assert {"named"} == THERE


def test_very_many_wait_and_tasks_remove_them() -> None:
    later, sinks, _ = left_behind(9)
    assert len(THERE) == 10
    tasks: Any = Tasks()
    remove_left(sinks, later, check=unchecked, tasks=tasks, log=LOG)
    assert tasks.pieces == [5, 4]
    assert {"named"} == THERE
    assert later == {}


@pytest.mark.parametrize("tasks", [None, Tasks(failing=True)])
def test_where_tasks_fail_or_are_none_the_driver_removes_them(tasks: Any) -> None:
    later, sinks, _ = left_behind(9)
    remove_left(sinks, later, check=unchecked, tasks=tasks, log=LOG)
    assert {"named"} == THERE


def test_nothing_is_removed_where_a_newer_driver_has_taken_over() -> None:
    later, sinks, _ = left_behind(9)

    def fenced() -> None:
        raise FencedError("a newer driver")

    with pytest.raises(FencedError):
        remove_left(sinks, later, check=fenced, tasks=Tasks(), log=LOG)
    assert len(THERE) == 10


def test_what_a_task_cannot_remove_is_raised() -> None:
    later, sinks, _ = left_behind(9)
    later["out"] = [*later["out"], Leftover(Orphan("/out/refused", 1, 0), {"path": "refused"})]
    with pytest.raises(TransientError, match="not now"):
        remove_left(sinks, later, check=unchecked, tasks=Tasks(), log=LOG)
