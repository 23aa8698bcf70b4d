"""What is asked of a running job: it ends once, in the right query, and nobody waits for ever."""

from __future__ import annotations

import threading

import pytest

from poundlock.errors import PoundlockError, TransientError
from poundlock.runtime.requests import Requests
from poundlock.runtime.serving import Serving


def test_a_trigger_ends_once() -> None:
    asked = Requests().trigger("checkpoint")
    assert (asked.status, asked.location, asked.failure, len(asked.id)) == ("IN_PROGRESS", None, None, 32)
    assert not asked.wait(0)
    asked.complete(7)
    asked.fail(PoundlockError("too late"))
    assert (asked.status, asked.location, asked.failure) == ("COMPLETED", 7, None)
    assert asked.wait(0)


def test_triggers_are_taken_in_order_and_found_by_kind() -> None:
    requests = Requests()
    first, second = (
        requests.trigger("checkpoint"),
        requests.trigger("savepoint", directory="/s", then="stop", drain=True),
    )
    noted = requests.trigger("stop")
    assert [requests.take(), requests.take(), requests.take()] == [first, second, None]
    requests.requeue(first)
    assert requests.take() is first
    assert (second.directory, second.then, second.drain) == ("/s", "stop", True)
    assert requests.find(noted.id, "savepoint", "stop") is noted
    assert requests.find(noted.id, "checkpoint") is None
    assert requests.find("0" * 32, "checkpoint") is None


def test_the_end_of_the_job_ends_what_waits() -> None:
    requests = Requests()
    taken, waiting, stop = requests.trigger("checkpoint"), requests.trigger("checkpoint"), requests.trigger("stop")
    assert requests.take() is taken
    requests.close()
    assert [each.status for each in (taken, waiting, stop)] == ["FAILED", "FAILED", "COMPLETED"]
    assert waiting.failure is not None
    assert waiting.failure.next
    assert requests.take() is None
    assert requests.trigger("checkpoint").status == "FAILED"
    requests.requeue(taken)
    assert requests.take() is None


def test_a_job_that_fails_fails_its_stop() -> None:
    requests = Requests()
    stop = requests.trigger("stop")
    requests.close(error := TransientError("the disk is full"))
    assert stop.failure is error


def test_old_triggers_are_forgotten_and_those_that_wait_are_not() -> None:
    requests = Requests()
    waiting = requests.trigger("checkpoint")
    for _ in range(300):
        requests.trigger("stop").complete()
    assert requests.find(waiting.id, "checkpoint") is waiting
    assert len(requests._known) == 100


def test_a_checkpoint_serves_those_who_asked_before_it_began() -> None:
    requests = Requests()
    serving = Serving(requests, threading.Event())
    early = requests.trigger("checkpoint")
    assert serving.take() is early
    serving.checkpoint_wanted(early)
    serving.pause(3600)  # or this test never ends
    served = serving.begin()
    late = requests.trigger("checkpoint")
    serving.checkpoint_wanted(late)
    serving.done(served, 4)
    assert (early.location, late.status, serving.asked) == (4, "IN_PROGRESS", True)
    serving.requeue()
    assert requests.take() is late, "the next life of the query serves it"
    assert not serving.asked


def test_nobody_is_kept_waiting_by_an_end() -> None:
    ended = threading.Event()
    serving = Serving(Requests(), ended)
    ended.set()
    serving.begin()  # takes the wake-up of an end that comes between looking and beginning
    serving.pause(3600)


def test_a_job_that_has_read_nothing_says_so() -> None:
    requests = Requests()
    serving = Serving(requests, threading.Event())
    asked = requests.trigger("checkpoint")
    serving.checkpoint_wanted(asked)
    serving.done(serving.begin(), -1)
    assert asked.failure is not None
    with pytest.raises(PoundlockError, match="read nothing"):
        raise asked.failure


def test_requests_do_not_pile_up_without_end() -> None:
    requests = Requests()
    statuses = [requests.trigger("checkpoint").status for _ in range(101)]
    assert statuses == ["IN_PROGRESS"] * 100 + ["FAILED"]
