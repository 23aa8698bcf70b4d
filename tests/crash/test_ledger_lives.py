"""A driver that is killed anywhere, again and again, leaves a ledger whose every record is read as it was decided.

It reads very many partitions and has very many pending files, so its records say only what changed, and old ones move into the archive
meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.crash.jobs.ledger_lives import pending, position

from poundlock.checkpoint.ledger.archive import Archive
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/ledger_lives.py"
LIVES, PER_FILE = 8, 25


def test_every_record_is_read_as_it_was_decided_after_any_kill(tmp_path: Path) -> None:
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} gives the same kills")
    chance, storage, known = random.Random(seed), LocalStorage(str(tmp_path)), -1
    for _ in range(LIVES):
        known = max(known, _life(tmp_path, chance.randint(3, 20), chance.random() / 50))
        newest = Ledger(storage).newest()
        assert newest is not None
        assert newest.checkpoint >= known, "a decision that was made is gone"
    starts, small = 0, set[str]()
    records = list(Ledger(storage))
    for before, record in zip([None, *records], records, strict=False):
        state, was = record.sinks["files"].state, before.sinks["files"].state if before is not None else {}
        if record.occasion == "start":
            starts += 1
            sources = next((each.sources for each in reversed(records[: record.number]) if each.sources), {})
            assert (record.sources, state) == (sources, was)
            continue
        assert state["steps"] == was.get("steps", -1) + 1
        assert state["parts"] == pending(state["steps"])
        if record.occasion == "roll":
            assert record.sources == {}
            continue
        span = record.sources["in"]
        assert (span.start, span.end) == (position(record.checkpoint - 1), position(record.checkpoint))
    for path in (tmp_path / "ledger").glob("0*.json"):
        raw = json.loads(path.read_text())
        if raw["v"] == 2:
            small.add(raw["occasion"])
            assert path.stat().st_size < 5000, "it says more than what changed"
    assert starts >= LIVES
    assert small >= {"checkpoint", "roll"}, "no such record said only what changed"
    assert Archive(storage).files(), "nothing was archived"


def _life(folder: Path, checkpoints: int, longer_s: float) -> int:
    """Run a driver and kill it in the midst of what it does behind so many checkpoints; return the newest that it noted."""
    command = [sys.executable, str(JOB), str(folder), str(PER_FILE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        noted = -1
        for _ in range(checkpoints):
            line = driver.stdout.readline()
            assert line, "the driver ended by itself"
            noted = int(line)
        time.sleep(longer_s)  # chance, and nothing waits for it
        driver.send_signal(signal.SIGKILL)
    return noted
