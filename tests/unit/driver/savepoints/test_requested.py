"""Savepoints beside a running job: they are cut between two checkpoints, and fail alone."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.decision import Decision
from poundlock.driver.requests import Requests, Trigger
from poundlock.driver.savepoints.requested import NotDrained, Savepoints
from poundlock.errors import PoundlockError
from poundlock.savepoint.metadata import METADATA, Metadata
from poundlock.savepoint.take import Cut
from poundlock.storage import LocalStorage


@dataclass
class Scene:
    """A job without Spark, between two checkpoints."""

    folder: Path
    fail: Exception | None = None
    held: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)

    def __post_init__(self) -> None:
        self.savepoints = Savepoints(
            cut=self.cut,
            hold=lambda held: self.held.append("hold" if held else "go on"),
            say=self.said.append,
        )

    def cut(self, trigger: Trigger) -> Cut:
        if self.fail is not None:
            raise self.fail
        storage = LocalStorage(str(self.folder / trigger.id))
        made = Cut(
            storage,
            Metadata(
                name="savepoint-000000-000000000000", job="job", job_id="0" * 32, created_ms=0, versions={},
                decision=Decision(
                    number=4, occasion="checkpoint", checkpoint=3, job_id="0" * 32, epoch=1, time_ms=0, sources={}, sinks={}
                ),
                operators={}, sinks={}, files={},
            ),
        )  # fmt: skip
        made.put("file", b"content")
        return made

    def ask(self, **how: Any) -> Trigger:
        trigger = self.requests.trigger("savepoint", **how)
        assert self.requests.take() is trigger
        self.savepoints.want(trigger)
        return trigger

    def until(self, trigger: Trigger) -> Any:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            saved = self.savepoints.step()
            if saved is not None or trigger.status != "IN_PROGRESS":
                return saved
        raise AssertionError("nothing came of it")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_job_goes_on(scene: Scene) -> None:
    trigger = scene.ask()
    assert scene.until(trigger) is None
    assert trigger.status == "COMPLETED"
    assert (Path(str(trigger.location)) / METADATA).exists()
    assert scene.held == []
    assert "7 bytes; checkpoints waited" in scene.said[0]


def test_a_job_that_is_to_end_holds_its_checkpoints_and_tells_at_its_end(scene: Scene) -> None:
    trigger = scene.ask(then="cancel")
    saved = scene.until(trigger)
    assert scene.held == ["hold"]
    assert saved.trigger is trigger
    assert (Path(saved.path) / METADATA).exists()
    assert trigger.status == "IN_PROGRESS"


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("odd"), PoundlockError("no", next="x")]
)
def test_one_that_cannot_be_cut_fails_alone(scene: Scene, error: Exception) -> None:
    scene.fail = error
    trigger = scene.ask(then="stop")
    assert scene.until(trigger) is None
    assert trigger.failure is not None
    assert scene.held == []


def test_pending_files_that_cannot_be_finished_are_for_a_recovery(scene: Scene) -> None:
    scene.fail = NotDrained(OSError(5, "Input/output error"))
    trigger = scene.ask(then="stop", drain=True)
    with pytest.raises(OSError, match="Input/output"):
        scene.until(trigger)
    assert trigger.failure is not None


def test_one_that_cannot_be_made_whole_lets_the_job_go_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStorage, "create_exclusive", full)
    trigger = scene.ask(then="cancel")
    assert scene.until(trigger) is None
    assert scene.held == ["hold", "go on"]
    assert trigger.failure is not None
    assert "disk full" in trigger.failure.what


def test_what_was_not_cut_is_left_to_the_next_life_and_what_was_is_made_whole(scene: Scene) -> None:
    made = scene.ask()
    scene.savepoints._cut(scene.savepoints._waiting.popleft())
    waiting = scene.ask()
    scene.savepoints.requeue(scene.requests)
    assert made.status == "COMPLETED"
    assert waiting.status == "IN_PROGRESS"
    assert scene.requests.take() is waiting


def whole(scene: Scene, **how: Any) -> Trigger:
    """Ask for one and have it cut and made whole, told to nobody yet."""
    trigger = scene.ask(**how)
    scene.savepoints._cut(scene.savepoints._waiting.popleft())
    assert scene.savepoints._making[-1].bytes.exception(30) is None
    return trigger


def test_one_that_a_failing_life_was_to_end_with_is_asked_of_the_next(scene: Scene) -> None:
    trigger = whole(scene, then="stop")
    assert scene.savepoints.ending
    scene.savepoints.requeue(scene.requests)
    assert scene.requests.take() is trigger
    assert trigger.status == "IN_PROGRESS"
    assert not (scene.folder / trigger.id).exists(), "nobody goes on from it"


def test_one_that_the_job_could_not_end_with_is_asked_of_the_next_life_as_well(scene: Scene) -> None:
    trigger = whole(scene, then="stop")
    assert scene.savepoints.step() is not None
    scene.savepoints.requeue(scene.requests)  # the driver found no place for its note, say
    assert scene.requests.take() is trigger


def test_nothing_is_left_of_one_that_could_not_be_made_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStorage, "create_exclusive", full)
    trigger = scene.ask()
    scene.until(trigger)
    assert trigger.failure is not None
    assert not (scene.folder / trigger.id).exists()


def test_a_job_that_ends_waits_for_the_others(scene: Scene) -> None:
    trigger = scene.ask()
    scene.savepoints._cut(scene.savepoints._waiting.popleft())
    scene.savepoints.finish(lambda: False)
    assert trigger.status == "COMPLETED"
    assert len(scene.said) == 1


def test_a_job_that_is_cancelled_waits_for_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr("poundlock.driver.savepoints.requested.finish", lambda cut: go.wait(30))
    trigger = scene.ask()
    scene.savepoints._cut(scene.savepoints._waiting.popleft())
    scene.savepoints.finish(lambda: True)
    assert trigger.status == "IN_PROGRESS"
    go.set()
