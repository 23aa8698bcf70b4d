"""Which part of the key groups stays where it was, and when tasks are spread again."""

from __future__ import annotations

from collections.abc import Mapping

from poundlock.driver.state_locality import StateLocality
from poundlock.state.directive import PreparedState
from poundlock.tasks.report import TaskReport

GROUPS = 8


def reports(*executors: str, stage: str = "stage-1") -> list[TaskReport]:
    """Reports of as many tasks as executors are named, each with its share of the key groups."""
    each = GROUPS // len(executors)
    made = []
    for task, executor in enumerate(executors):
        prepared = PreparedState(checkpoint=1, first=task * each, stop=(task + 1) * each)
        made.append(TaskReport(1, task, "run", [], {}, {}, (stage, prepared), executor=executor))
    return made


def test_the_share_is_of_key_groups_and_against_what_is_decided() -> None:
    locality = StateLocality()
    assert locality.measured(reports("a", "b")) is None
    assert not locality.decided()
    assert locality.measured(reports("b", "a")) == 0.0
    assert locality.measured(reports("a", "b")) == 1.0, "the checkpoint before was not decided"
    assert not locality.decided()
    assert locality.measured(reports("a", "a", "b", "c")) == 0.75, "as many tasks as there are does not matter"


def test_stages_are_told_apart_and_tasks_without_state_do_not_count() -> None:
    locality = StateLocality()
    locality.measured([*reports("a"), *reports("b", stage="stage-2"), TaskReport(0, 0, "run", [], {}, {})])
    locality.decided()
    assert locality.measured([*reports("a"), *reports("a", stage="stage-2")]) == 0.5


def moves(locality: StateLocality, placed: Mapping[str, str]) -> bool:
    locality.measured(reports(*placed.values()))
    return locality.decided()


def test_tasks_that_keep_moving_are_spread_anew_and_those_that_moved_once_are_not() -> None:
    locality = StateLocality()
    there, here = {"0": "a", "1": "b"}, {"0": "b", "1": "a"}
    assert not any(moves(locality, placed) for placed in [there, here, here, here, here, here, here, here])
    found = [moves(locality, there if number % 2 == 0 else here) for number in range(11)]
    assert found == ([False] * 2 + [True]) * 3 + [False] * 2
