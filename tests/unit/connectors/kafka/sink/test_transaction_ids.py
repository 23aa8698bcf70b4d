"""Transactional ids are told apart wherever their locks are not the same ones, though hosts may be called alike."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

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
