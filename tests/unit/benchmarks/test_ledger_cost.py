"""The long life of a ledger, shortened: its proof passes on what the coordinator wrote and fails for what was tampered with."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from benchmarks.data import WrongOutput
from benchmarks.jobs import ledger_life
from benchmarks.ledger_cost import growth, prove

pytestmark = pytest.mark.slow

LAST, RETENTION_S = 3099, 500


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("life")
    # A thousand records to an archive file: this many, so that one is forgotten and one is kept.
    ledger_life.main(folder / "checkpoints", folder / "bands", RETENTION_S, [100, LAST + 1])
    return folder


@pytest.fixture
def ledger(lived: Path, tmp_path: Path) -> Path:
    shutil.copytree(lived / "checkpoints", tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def proven(folder: Path, retention_s: int = RETENTION_S) -> None:
    prove(folder, last=LAST, retention_ms=retention_s * 1000)


def test_what_was_decided_passes_and_what_is_forgotten_is_not_asked_for(ledger: Path) -> None:
    proven(ledger)
    assert len(list((ledger / "ledger-archive").iterdir())) == 1
    with pytest.raises(WrongOutput, match="not every checkpoint from 0"):
        proven(ledger, retention_s=10_000)


def test_bands_tell_what_a_checkpoint_cost(lived: Path) -> None:
    first, last = json.loads((lived / "bands").read_text())
    assert (first["checkpoint"], last["checkpoint"]) == (100, LAST + 1)
    assert first["calls"] == pytest.approx(7, abs=0.5)  # no archive yet: nothing but the record, its mark and the fence
    assert last["files"] < 2200
    assert min(first["start_ms"], last["cpu_ms"], last["bytes"]) > 0


def test_a_missing_record_is_found(ledger: Path) -> None:
    sorted((ledger / "ledger").iterdir())[5].unlink()
    with pytest.raises(WrongOutput, match="gap"):
        proven(ledger)


def test_a_missing_newest_record_is_found(ledger: Path) -> None:
    for path in sorted((ledger / "ledger").iterdir())[-1 - ledger_life.STARTS :]:  # the starts are behind it
        path.unlink()
    with pytest.raises(WrongOutput, match="not every checkpoint"):
        proven(ledger)


def test_another_range_in_the_archive_is_found(ledger: Path) -> None:
    (path,) = (ledger / "ledger-archive").iterdir()
    lines = gzip.decompress(path.read_bytes()).splitlines()
    record = json.loads(lines[10])
    record["sources"]["events"]["end"]["events"]["0"] += 1
    lines[10] = json.dumps(record).encode()
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    with pytest.raises(WrongOutput, match="is not what was decided"):
        proven(ledger)


def test_growth_is_that_of_the_costliest() -> None:
    before = dict.fromkeys(
        ("ms", "cpu_ms", "calls", "files", "list_newest_ms", "find_ms", "audit_ms", "record_bytes"), 1.0
    )
    before |= {"bytes": 1000, "start_ms": 4.0}
    assert growth(before, {**before, "ms": 9.0}) == 1  # how busy the disk was
    assert growth(before, {**before, "bytes": 3000, "start_ms": 5.0}) == 3
