"""Transactional ids are told apart wherever their locks are not the same ones, though hosts may be called alike."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames, slots

NAMES = TransactionNames("p", "0" * 8, "1" * 8)


def first_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    slot = next(slots(NAMES))
    slot.release()
    return slot.tid


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
