from __future__ import annotations

import os
import subprocess
import sys
import time

from poundlock.testing.job_process import TAG, completed, end_tagged, new_tag, tagged


def sleeper(tag: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, TAG: tag})


def test_only_processes_with_the_tag_are_found_and_ended() -> None:
    mine, other = new_tag(), new_tag()
    first, second = sleeper(mine), sleeper(other)
    try:
        deadline = time.monotonic() + 10
        while not tagged(mine) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [p.pid for p in tagged(mine)] == [first.pid]
        stayed = end_tagged(mine, patience_s=0)
        assert len(stayed) == 1
        assert stayed[0].startswith(f"{first.pid} ")
        assert first.wait(10) == -9
        assert second.poll() is None
        assert end_tagged(mine) == []
    finally:
        first.kill()
        second.kill()
        first.wait()
        second.wait()


def test_a_restored_checkpoint_is_not_a_completed_one() -> None:
    assert completed({"state": "INITIALIZING", "checkpoint": None, "last_ms": None}) == -1
    assert completed({"state": "RUNNING", "checkpoint": 7, "last_ms": None}) == -1
    assert completed({"state": "RUNNING", "checkpoint": 0, "last_ms": 12}) == 0
