"""Two live drivers on one checkpoint folder of a Kafka job, and the warning of a driver that commits late."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from poundlock import KafkaSink
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Aborted, Committed, Counts, Prepared
from poundlock.control.logs import open_log
from poundlock.errors import FencedError
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.values import SystemClock
from support.kafka_rig import Rig, values

pytestmark = pytest.mark.services


@pytest.fixture
def rig(tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> Iterator[Rig]:
    made = Rig(tmp_path, kafka_broker, new_topic(2))
    yield made
    made.stop()


def checkpoint(driver: Coordinator, n: int, write: Callable[[], list[Prepared]], rows: int = 20) -> None:
    def run(directive: Any) -> TaskResults:
        prepared = [] if directive.decided else write()
        return TaskResults(prepared=prepared, counts={"out": Counts(read=rows, written=rows)}, rows_read={"in": rows})

    driver.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)


def assert_once(rig: Rig, checkpoints: int) -> None:
    expected = Counter(value for n in range(checkpoints) for value in values(n, 0)["value"])
    found = Counter(record.value for record in rig.broker.read(str(rig.sink.topic)))
    assert found == expected, f"lost {(expected - found).total()}, duplicated {(found - expected).total()}"
    report = rig.audit()
    assert report.agrees, report.disagreements
    assert [tid for tid in rig.sink._asked().ongoing() if tid.startswith(rig.sink.transactional_id_prefix)] == []


def test_a_driver_that_slept_before_its_decision_is_fenced_and_leaves_the_newer_one_alone(rig: Rig) -> None:
    """A lock kept nobody out, as on a mount without locks: the newer driver's tasks are writing when the older one wakes."""
    older = rig.driver()
    checkpoint(older, 0, lambda: rig.write(0, [values(0, 0)]))
    asleep, awake = threading.Event(), threading.Event()
    ends: list[BaseException] = []

    def slow() -> list[Prepared]:
        prepared = rig.write(1, [values(1, 0)])
        asleep.set()
        assert awake.wait(300)
        return prepared

    def old_life() -> None:
        try:
            checkpoint(older, 1, slow)
        except BaseException as error:
            ends.append(error)

    sleeper = threading.Thread(target=old_life)
    sleeper.start()
    assert asleep.wait(300)
    newer = rig.driver()

    written: list[str] = []

    def disturbed() -> list[Prepared]:
        prepared = rig.write(1, [values(1, 0)])
        awake.set()
        sleeper.join(60)
        told = rig.sink._asked().describe(prepared[0].payload["tid"])
        written.append("" if told is None else told.state)
        return prepared

    checkpoint(newer, 1, disturbed)
    assert [type(error) for error in ends] == [FencedError], ends
    assert written == ["Ongoing"], "the older driver ended a transaction of the newer one"
    checkpoint(newer, 2, lambda: rig.write(2, [values(2, 0)]))
    assert_once(rig, 3)


class Stalling(KafkaSink):
    """Sleeps in its commit, as long as it takes others to do something."""

    def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
        if (meanwhile := MEANWHILE.pop(self.transactional_id_prefix, None)) is not None:
            meanwhile()
        return super().commit(committable)


MEANWHILE: dict[str, Callable[[], None]] = {}


@pytest.mark.parametrize("goes_on", [False, True], ids=["newer takes over", "newer goes on"])
def test_a_driver_that_slept_between_decision_and_commit_commits_the_same_or_nothing(rig: Rig, goes_on: bool) -> None:
    older = rig.driver(Stalling)
    checkpoint(older, 0, lambda: rig.write(0, [values(0, 0)]))
    newer: list[Coordinator] = []

    def take_over() -> None:
        newer.append(rig.driver())
        if goes_on:  # with the same transactional id, whose older transaction the sleeper then commits once more
            checkpoint(newer[0], 2, lambda: rig.write(2, [values(2, 0)]))

    MEANWHILE[rig.sink.transactional_id_prefix] = take_over
    if goes_on:
        # How far the newer transaction of that id has come says what the coordinator answers: that it was committed, or, with
        # the newer one's marker in its place, nothing that tells; then it is not this driver's to go on.
        with suppress(FencedError):
            checkpoint(older, 1, lambda: rig.write(1, [values(1, 0)]))
    else:
        checkpoint(older, 1, lambda: rig.write(1, [values(1, 0)]))
    with pytest.raises(FencedError):
        checkpoint(older, 2, lambda: rig.write(2, [values(2, 0)]))
    if not goes_on:
        checkpoint(newer[0], 2, lambda: rig.write(2, [values(2, 0)]))
    checkpoint(newer[0], 3, lambda: rig.write(3, [values(3, 0)]))
    assert_once(rig, 4)


class Later(SystemClock):
    """A clock that is ahead by half a minute."""

    def now_ms(self) -> int:
        return super().now_ms() + 30_000


class Late(KafkaSink):
    clock = Later()


def test_a_commit_after_half_of_the_timeout_is_warned_of_in_the_log(rig: Rig, tmp_path: Path) -> None:
    rig.settings["transaction_timeout"] = "50 s"
    with open_log("rig", tmp_path / "log", level="warning") as log:
        checkpoint(rig.driver(), 0, lambda: rig.write(0, [values(0, 0)]))
        assert "a transaction was open" not in log.path.read_text()
        checkpoint(rig.driver(Late), 1, lambda: rig.write(1, [values(1, 0)]))
        (line,) = [line for line in log.path.read_text().splitlines() if "a transaction was open for" in line]
    assert "of at most 50000 ms; make checkpoints more frequent or the timeout longer" in line
    assert '"level": "warning"' in line or '"level":"warning"' in line
    assert_once(rig, 2)
