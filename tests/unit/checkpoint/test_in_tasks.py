"""Very many commits, aborts and verifications are cut into pieces for tasks; what tasks cannot do the driver does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.checkpoint.committer import Carried, Retry, abort_all, commit_all, verify_all
from poundlock.checkpoint.participant import JSON, CommitOutcome, Committed, Prepared
from poundlock.connectors.files.sink import committer
from poundlock.errors import CommitUnknown, TransientError
from poundlock.storage import LocalStorage
from poundlock.storage.s3 import S3Storage

MANY = [{"v": 1, "n": n} for n in range(10)]
PREPARED = [Prepared("out", n, {"v": 1, "n": n}) for n in range(10)]
DONE: list[tuple[str, int]] = []  # by the driver or a task, which are one process here
UNKNOWN: set[int] = set()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()
    UNKNOWN.clear()


class Sink:
    """Where more than `most` are cut into three."""

    def __init__(self, most: int = 4) -> None:
        self.most = most

    def pieces(self, calls: int) -> int:
        return 3 if calls > self.most else 1

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        for each in committables:
            DONE.append(("commit", each["n"]))
            unknown = each["n"] in UNKNOWN
            UNKNOWN.discard(each["n"])
            yield CommitUnknown(str(each["n"])) if unknown else Committed({"n": each["n"]})

    def abort_many(self, prepared: Iterable[Prepared]) -> Iterator[Exception | None]:
        for each in prepared:
            DONE.append(("abort", each.subtask))
            yield TransientError("not now") if each.subtask == 6 else None

    def verify(self, prepared: Sequence[Prepared]) -> None:
        DONE.extend(("verify", each.subtask) for each in prepared)
        if any(each.subtask in (4, 8) for each in prepared):
            raise TransientError(f"one of {[each.subtask for each in prepared]} is gone")


class Tasks:
    """Runs everything here, with what crosses to a task pickled; the first ones may fail."""

    def __init__(self, failing: bool = False) -> None:
        self.pieces: list[int] = []
        self.failing = failing

    def run(self, call: Callable[[list[Any]], list[Any]], pieces: Sequence[list[Any]]) -> list[list[Any]]:
        self.pieces += [len(piece) for piece in pieces]
        done = [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(call))(piece))) for piece in pieces]
        if self.failing:
            raise RuntimeError("an executor is lost\nat a place")
        return done


class Warnings:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def info(self, event: str, **fields: Any) -> None: ...

    def warning(self, event: str, **fields: Any) -> None:
        self.seen.append(event)


def carried(tasks: Any, log: Warnings, sink: Any = None) -> Carried:
    decision: Any = SimpleNamespace(number=7, checkpoint=7, sinks={"out": SimpleNamespace(committables=MANY)})
    participants: Mapping[str, Any] = {"out": sink or Sink()}
    return commit_all(decision, participants, retry=Retry(), sleep=lambda s: None, log=log, tasks=tasks)


def test_commits_are_cut_into_pieces_and_come_back_in_order() -> None:
    tasks, log = Tasks(), Warnings()
    done = carried(tasks, log)
    assert tasks.pieces == [4, 4, 2]
    assert [each["n"] for each in done.done["out"]] == list(range(10))
    assert done.committed["out"] == MANY


def test_what_is_not_known_is_asked_again_by_the_driver() -> None:
    UNKNOWN.update((2, 9))
    tasks, log = Tasks(), Warnings()
    assert sorted(each["n"] for each in carried(tasks, log).done["out"]) == list(range(10))
    assert tasks.pieces == [4, 4, 2]
    assert DONE[-2:] == [("commit", 2), ("commit", 9)]


def test_where_tasks_fail_the_driver_commits_all_of_it_once_more() -> None:
    tasks, log = Tasks(failing=True), Warnings()
    assert len(carried(tasks, log).done["out"]) == 10
    assert [("commit", n) for n in range(10)] * 2 == DONE
    assert log.seen == ["tasks failed, the driver does it"]


@pytest.mark.parametrize(("tasks", "most"), [(None, 4), (Tasks(), 10)])
def test_few_or_without_a_cluster_the_driver_commits(tasks: Any, most: int) -> None:
    assert len(carried(tasks, Warnings(), Sink(most)).done["out"]) == 10
    assert tasks is None or tasks.pieces == []
    assert [("commit", n) for n in range(10)] == DONE


def test_aborts_by_tasks_say_what_failed_of_them() -> None:
    tasks: Any = Tasks()
    sinks: Mapping[str, Any] = {"out": Sink()}
    failed = [(item.subtask, str(error)) for item, error in abort_all(sinks, PREPARED, log=Warnings(), tasks=tasks)]
    assert failed == [(6, "not now")]
    assert tasks.pieces == [4, 4, 2]
    assert [("abort", n) for n in range(10)] == DONE


def test_what_a_task_cannot_verify_is_raised_the_first_in_order() -> None:
    tasks: Any = Tasks()
    sinks: Mapping[str, Any] = {"out": Sink()}
    with pytest.raises(TransientError, match=r"one of \[4, 5, 6, 7\] is gone"):
        verify_all(sinks, PREPARED, 7, log=Warnings(), tasks=tasks)
    assert len(DONE) == 10


def test_an_abort_of_a_sink_that_is_not_there_is_told_and_keeps_no_other_back() -> None:
    items = [Prepared("gone", 0, {}), *PREPARED]
    sinks: Mapping[str, Any] = {"out": Sink()}
    assert [item.sink for item, _ in abort_all(sinks, items, log=Warnings())] == ["gone", "out"]
    assert len(DONE) == 10


def test_a_store_whose_client_takes_cpu_is_asked_by_tasks_from_some_number_on() -> None:
    assert committer.pieces(LocalStorage("/x"), 1_000_000) == 1
    s3 = S3Storage("bucket")
    assert [committer.pieces(s3, calls) for calls in (1, 1_000, 1_428, 1_430, 10_000)] == [1, 1, 1, 5, 28]
