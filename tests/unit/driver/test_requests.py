"""What is asked of a running job: it ends once, in the right query, and nobody waits for ever."""

from __future__ import annotations

from poundlock.driver.requests import Requests
from poundlock.errors import PoundlockError, TransientError


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


def test_requests_do_not_pile_up_without_end() -> None:
    requests = Requests()
    statuses = [requests.trigger("checkpoint").status for _ in range(101)]
    assert statuses == ["IN_PROGRESS"] * 100 + ["FAILED"]
    refused = requests.trigger("savepoint")
    assert requests.find(refused.id, "savepoint") is refused, "whoever asked can see why"
    assert len(requests._known) == 101
