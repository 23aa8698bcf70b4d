"""Transactional ids are told apart wherever their locks are not the same ones, though hosts may be called alike."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from poundlock.connectors.kafka.sink import transaction_ids
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames, slots

NAMES = TransactionNames("p", "0" * 8, "1" * 8)


def first_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    slot = next(slots(NAMES, 0))
    slot.release()
    return slot.tid


def test_neighbouring_checkpoints_share_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of the next one may initialise an id while the transactions of this one are committed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ids = []
    for checkpoint in (6, 7, 8):
        slot = next(slots(NAMES, checkpoint))
        slot.release()
        ids.append(slot.tid)
    assert ids[0] == ids[2] != ids[1]
    assert all(NAMES.ours(tid) for tid in ids)


def test_ids_of_older_versions_are_still_the_sinks_own() -> None:
    assert NAMES.ours("p.00000000-11111111.host-1234.7")
    assert not NAMES.ours("p.00000000-11111111.host-1234.7-2")


def test_machines_of_one_name_have_ids_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    here = first_id(one, monkeypatch)
    assert first_id(one, monkeypatch) == here
    there = first_id(two, monkeypatch)
    assert there != here
    assert NAMES.ours(here)
    assert NAMES.ours(there)


def test_locks_that_nobody_held_for_a_day_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held, kept, gone = (next(slots(TransactionNames("p", name * 8, "1" * 8), 0)) for name in "abc")
    (folder,) = tmp_path.glob("*/transactional-ids")
    (folder / ".tmp-0").touch()
    kept.release()
    gone.release()
    for path in folder.iterdir():
        if kept.tid not in path.name:
            os.utime(path, (0, 0))
    transaction_ids._remove_old.cache_clear()  # another process
    newest = next(slots(NAMES, 0))
    names = {f"{slot.tid}.lock" for slot in (held, kept, newest)}
    assert {path.name for path in folder.iterdir()} == {*names, ".realm"}
    assert next(slots(TransactionNames("p", "a" * 8, "1" * 8), 0)).tid != held.tid, "it is held as before"


def test_a_slot_has_one_holder_while_locks_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads take and release slots, others remove all that is free: no id is ever held twice."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    next(slots(NAMES, 0)).release()
    (folder,) = tmp_path.glob("*/transactional-ids")
    holders, twice, over = set[str](), list[str](), threading.Event()

    def take() -> None:
        for _ in range(100):
            slot = next(slots(NAMES, 0))
            twice.extend([slot.tid] if slot.tid in holders else [])
            holders.add(slot.tid)
            holders.discard(slot.tid)
            slot.release()

    def remove() -> None:
        while not over.is_set():
            for path in folder.glob("*.lock"):
                with suppress(OSError):
                    transaction_ids._remove_free(path)

    takers = [threading.Thread(target=take) for _ in range(4)]
    remover = threading.Thread(target=remove)
    for thread in (remover, *takers):
        thread.start()
    for thread in takers:
        thread.join()
    over.set()
    remover.join()
    assert not twice
