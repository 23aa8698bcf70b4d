"""What a start looks at first: all at once, and in the order of what a person has to know."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checkpoint.test_ledger import decision

from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.savepoints.checkpoint_deletion import MARK
from poundlock.driver.savepoints.handover import LEFT
from poundlock.driver.standing import look
from poundlock.errors import DefinitionError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

CLOCK = SystemClock()
AT_ONCE = 7
"""So many questions need no answer to another one: a deletion, two notes, a first edition, whose it is, lives, decisions."""


class Together:
    """A folder whose first calls wait for one another."""

    def __init__(self, folder: Path, first: int) -> None:
        self._kept, self._left = LocalStorage(str(folder)), first
        self._lock, self._barrier = threading.Lock(), threading.Barrier(first)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._kept, name)
        if not callable(value):
            return value

        def call(*arguments: Any) -> Any:
            with self._lock:
                self._left -= 1
                waits = self._left >= 0
            if waits:
                self._barrier.wait(60)
            return value(*arguments)

        return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    storage = LocalStorage(str(tmp_path))
    open_identity(storage, name="job", clock=CLOCK)
    for _ in range(2):
        Epoch.claim(storage, clock=CLOCK).release()
    ledger = Ledger(storage)
    for number in range(3):
        ledger.append(decision(number))
    return tmp_path


def test_all_is_asked_for_at_once(folder: Path) -> None:
    storage: Any = Together(folder, AT_ONCE)
    standing = look(storage, "job.py")
    assert standing is not None
    assert standing.identity is not None
    assert standing.life is not None
    assert (standing.identity.name, standing.life.epoch, standing.newest) == ("job", 2, decision(2))


def test_where_nothing_was_there_is_nothing(tmp_path: Path) -> None:
    standing = look(LocalStorage(str(tmp_path / "new")), "job.py")
    assert standing is not None
    assert (standing.identity, standing.life, standing.newest) == (None, None, None)
    assert not (tmp_path / "new").exists(), "it is only looked at"


def test_a_checkpoint_that_is_being_deleted_counts_for_nothing(folder: Path) -> None:
    (folder / MARK).write_text(json.dumps({"v": 1, "job_id": "0" * 32, "name": "job", "sinks": {}}))
    (folder / "ledger" / f"{1:020d}.json").unlink()
    assert look(LocalStorage(str(folder)), "job.py") is None


def test_a_savepoint_that_was_left_counts_for_more_than_damage(folder: Path) -> None:
    (folder / "ledger" / f"{1:020d}.json").unlink()
    with pytest.raises(TerminalError, match="is missing from the ledger"):
        look(LocalStorage(str(folder)), "job.py")
    (folder / LEFT).write_text(json.dumps({"v": 1, "savepoint": "saved", "job_id": "0" * 32}))
    with pytest.raises(DefinitionError, match="ended with the savepoint saved"):
        look(LocalStorage(str(folder)), "job.py")
