"""A decision is carried out by all sinks at once, each committable until its outcome is known."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.checkpoint.committer import Carried, Retry, commit_all, verify_all
from poundlock.checkpoint.outcome import StandardLog
from poundlock.checkpoint.participant import JSON, Aborted, CommitOutcome, Committed, Prepared
from poundlock.errors import CommitUnknown, TerminalError, TransientError
from poundlock.failpoints import Failpoint

ONE, TWO, THREE = ({"v": 1, "n": n} for n in (1, 2, 3))


class One:
    """Commits one by one; `answers` by number, the first ones first, then it is committed."""

    def __init__(self, answers: Mapping[int, Sequence[Any]] | None = None) -> None:
        self.answers = {n: list(each) for n, each in (answers or {}).items()}
        self.asked: list[int] = []
        self.threads: set[int] = set()
        self.verifies: Exception | None = None

    def commit(self, committable: JSON) -> Committed | Aborted:
        n = committable["n"]
        self.asked.append(n)
        self.threads.add(threading.get_ident())
        answer = self.answers[n].pop(0) if self.answers.get(n) else Committed({"n": n})
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Committed | Aborted)
        return answer

    def verify(self, prepared: Sequence[Prepared]) -> None:
        self.threads.add(threading.get_ident())
        if self.verifies is not None:
            raise self.verifies


class Many(One):
    """Commits many at once."""

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        for committable in committables:
            try:
                yield self.commit(committable)
            except Exception as error:
                yield error


class Other(One):
    """Another class of sinks."""


def carried(sinks: Mapping[str, Any], committables: Sequence[JSON] = (ONE, TWO, THREE)) -> tuple[Carried, list[float]]:
    pauses: list[float] = []
    decision: Any = SimpleNamespace(
        number="7.0", checkpoint=7, sinks={name: SimpleNamespace(committables=committables) for name in sinks}
    )
    log = StandardLog()
    return commit_all(decision, sinks, retry=Retry(attempts=2), sleep=pauses.append, log=log), pauses


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[Failpoint]:
    passed: list[Failpoint] = []
    monkeypatch.setattr("poundlock.checkpoint.committer.hit", passed.append)
    return passed


@pytest.mark.parametrize("kind", [One, Many])
def test_every_committable_passes_both_points_once(kind: type[One], hits: list[Failpoint]) -> None:
    unknown = CommitUnknown("nobody knows")
    sink = kind({2: [unknown, unknown], 3: [Aborted("timed out")]})
    result, pauses = carried({"out": sink})
    assert result.committed == {"out": [ONE, TWO]}
    assert result.aborted == {"out": [THREE]}
    assert sorted(str(detail["n"]) for detail in result.done["out"]) == ["1", "2"]
    assert sorted(sink.asked) == [1, 2, 2, 2, 3]
    assert pauses == [0.05, 0.1]
    assert hits.count(Failpoint.SINK_COMMITTING) == 3
    assert hits.count(Failpoint.SINK_COMMITTED) == 2


@pytest.mark.parametrize("kind", [One, Many])
def test_a_failure_keeps_no_other_from_being_tried(kind: type[One]) -> None:
    failing = kind({1: [OSError("disk")], 2: [TerminalError("is gone", next="mend it")]})
    sinks = {"failing": failing, "well": Other()}
    with pytest.raises(TerminalError, match="is gone") as caught:
        carried(sinks)
    assert caught.value.checkpoint == 7
    assert failing.asked == [1, 2, 3]
    assert sinks["well"].asked == [1, 2, 3]


@pytest.mark.parametrize("kind", [One, Many])
def test_an_outcome_that_stays_unknown_is_an_error(kind: type[One]) -> None:
    sink = kind({1: [CommitUnknown("nobody knows")] * 9})
    with pytest.raises(TransientError, match="whether checkpoint 7 reached sink 'out' is not known: nobody knows"):
        carried({"out": sink})
    assert sink.asked.count(1) == 3
    assert sink.asked.count(3) == 1


@pytest.mark.parametrize("kind", [One, Many])
def test_a_fault_of_the_sink_is_not_swallowed(kind: type[One]) -> None:
    with pytest.raises(KeyError):
        carried({"out": kind({1: [KeyError("fault")]}), "well": Other()})


class Meeting(One):
    """Goes on only when the sinks that share its barrier are under way too."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def commit(self, committable: JSON) -> Committed | Aborted:
        self.barrier.wait(20)
        return super().commit(committable)

    def verify(self, prepared: Sequence[Prepared]) -> None:
        self.barrier.wait(20)
        super().verify(prepared)


class OtherMeeting(Meeting):
    """Another class, so another connector."""


def test_sinks_of_several_connectors_commit_and_verify_at_once() -> None:
    barrier = threading.Barrier(2)
    sinks = {"a": Meeting(barrier), "b": OtherMeeting(barrier)}
    assert set(carried(sinks)[0].committed) == {"a", "b"}
    verify_all(sinks, [Prepared("a", 0, {"v": 1}), Prepared("b", 0, {"v": 1})], 7, log=StandardLog())  # type: ignore[arg-type]


def test_sinks_of_one_connector_share_a_thread_unless_they_declare_that_they_need_not() -> None:
    sinks = {"a": One(), "b": One(), "c": Other(), "d": Many(), "e": Many()}
    carried(sinks)
    assert sinks["a"].threads == sinks["b"].threads
    others = [sinks[name].threads for name in "acde"]
    assert all(len(each) == 1 for each in others)


def test_one_sink_is_asked_by_the_thread_that_takes_the_checkpoint() -> None:
    sink = One()
    carried({"out": sink})
    assert sink.threads == {threading.get_ident()}


def test_verify_raises_for_the_first_sink_when_all_have_ended() -> None:
    sinks = {"a": One(), "b": Other(), "c": Many()}
    sinks["b"].verifies = TransientError("b is gone")
    sinks["c"].verifies = TransientError("c is gone")
    with pytest.raises(TransientError, match="b is gone"):
        verify_all(sinks, [Prepared(name, 0, {"v": 1}) for name in sinks], 7, log=StandardLog())  # type: ignore[arg-type]
    assert all(sink.threads for sink in sinks.values())
