"""State that is larger than what a process may hold: a checkpoint needs memory for what it touches, not for what it merges."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")]

ALLOWED = 64  # MB on top of what is held before
_PROGRAM = """
import random, resource, sys
import numpy as np
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.state import tables
from poundlock.state.hashing import hashes_of
from poundlock.state.inspect import StateReader
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import OPERATOR, ScratchState

KEYS, EACH, TEXT, ALLOWED = 240_000, 3_000, 1_000, int(sys.argv[1]) << 20
if "one group" in sys.argv:
    tables.hashes_of = lambda keys: hashes_of(keys) >> np.uint64(8)  # of 128 groups the first has all keys
store = ScratchState(128, policy=MergePolicy(fan_in=2))  # one task has all groups
operator = RollingOperator(rolling_fold("sum", "n"))
largest = 0

def touch(keys):
    global largest
    batch = GroupBatch(keys, [{"n": 1, "text": f"{key}-" + "x" * TEXT} for key in keys])
    assert sum(map(len, operator.process(store.open(), batch))) == len(keys)
    largest = max(largest, *(report.file.bytes for report in store.write()))

for start in range(0, 4 * EACH, EACH):
    touch(list(range(start, start + EACH)))  # whatever is loaded and made once is there by now
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + ALLOWED, resource.RLIM_INFINITY))
for start in range(4 * EACH, KEYS, EACH):
    touch(list(range(start, start + EACH)))
chance = random.Random(1)
for _ in range(8):
    touch([chance.randrange(KEYS) for _ in range(1_000)])
held = sum(file.bytes for file in store.manifest.files)
assert held > KEYS * TEXT > 3 * ALLOWED, held
assert largest > (2 * ALLOWED if "one group" in sys.argv else ALLOWED // 2), largest  # the longest run of one checkpoint
state = store.open()
wanted = [0, KEYS // 2, KEYS - 1]
state.prefetch(wanted)
table = state.table("rolling")
assert [table[key]["text"][:8] for key in wanted] == [f"{key}-xxxxxxx"[:8] for key in wanted]
print("done", flush=True)
if "all" in sys.argv:  # the control: whoever holds all of it has no room
    held = dict(table.items())
    print("held")
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # What is large is given back when it is freed: the limit is for what is held, not for holes that an allocator keeps.
    allocators = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    environment = {**os.environ, **allocators}
    command = [sys.executable, "-c", _PROGRAM, str(ALLOWED), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("keys", ["of all groups", "one group"])
def test_state_larger_than_memory(keys: str) -> None:
    done = _run(keys)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_the_limit_is_one() -> None:
    done = _run("all")
    assert (done.returncode != 0, done.stdout) == (True, "done\n"), "who holds all of it has no room"
    assert "MemoryError" in done.stderr or "malloc" in done.stderr, done.stderr[-2000:]
