"""What the processes of a job take: a tree of processes, each with its part of what they share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.control.process_memory import memory_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell")

_CHILD = "held = bytearray(b'x' * (64 << 20)); print('ready', flush=True); input()"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}])"


def test_a_process_and_what_it_started() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    first, second = memory_of(parent.pid)
    assert first.pid == parent.pid
    assert first.program.startswith("python")
    assert second.bytes > 64 << 20
    assert {first.pid, second.pid} <= {each.pid for each in memory_of(os.getpid())}
    parent.communicate(b"\n")
    assert memory_of(parent.pid) == []
