"""The meter against programs whose cost is known: they count their own CPU time. Nothing here asserts wall time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import Usage, UsageLost, run

pytestmark = pytest.mark.slow

BURN = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))
"""


def burned(tmp_path: Path, body: str, **options: float) -> Usage:
    program = tmp_path / "program.py"
    program.write_text(BURN + body)
    return run([sys.executable, program], log=tmp_path / "log", **options)


def test_own_cpu_is_counted(tmp_path: Path) -> None:
    usage = burned(tmp_path, "burn(0.5)")
    assert 0.5 <= usage.cpu_s < 0.9
    assert usage.code == 0


def test_a_waited_for_child_is_counted(tmp_path: Path) -> None:
    assert 0.6 <= burned(tmp_path, "pid = os.fork()\nburn(0.3)\nif pid: os.waitpid(pid, 0)").cpu_s < 1.0


def test_an_orphan_of_an_orphan_is_counted_after_its_parents_ended(tmp_path: Path) -> None:
    body = "if os.fork() == 0:\n    if os.fork() == 0:\n        burn(0.4)\n        os._exit(0)\n    os._exit(0)\n"
    assert 0.4 <= burned(tmp_path, body).cpu_s < 0.8


def test_a_child_in_a_session_of_its_own_is_counted(tmp_path: Path) -> None:
    body = "if os.fork() == 0:\n    os.setsid()\n    burn(0.4)\n    os._exit(0)\n"
    assert 0.4 <= burned(tmp_path, body).cpu_s < 0.8


def test_children_of_a_parent_that_ignores_their_end_are_seen_by_sampling(tmp_path: Path) -> None:
    body = (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "pid = os.fork()\nif pid == 0:\n    burn(1.0)\n    os._exit(0)\n"
        "try: os.waitpid(pid, 0)\nexcept ChildProcessError: pass"
    )
    assert 0.7 <= burned(tmp_path, body).cpu_s < 1.4


def test_peak_memory_is_the_sum_over_the_tree(tmp_path: Path) -> None:
    body = "pid = os.fork()\nb = bytearray(os.urandom(1)) * (100 << 20)\nburn(0.4)\nif pid: os.waitpid(pid, 0)"
    assert 200 <= burned(tmp_path, body).peak_mb < 320


def test_a_page_that_two_processes_have_counts_once(tmp_path: Path) -> None:
    body = "b = bytearray(os.urandom(1)) * (200 << 20)\npid = os.fork()\nburn(0.6)\nif pid: os.waitpid(pid, 0)"
    assert 200 <= burned(tmp_path, body).peak_mb < 320


def test_the_parts_name_who_used_the_cpu(tmp_path: Path) -> None:
    usage = burned(tmp_path, "pid = os.fork()\nburn(0.8)\nif pid: os.waitpid(pid, 0)")
    assert usage.parts["python program.py"] == pytest.approx(usage.cpu_s, abs=0.8)


def test_a_failing_command_has_no_figures(tmp_path: Path) -> None:
    with pytest.raises(UsageLost, match=r"exit code 3.*\n.*so sad"):
        burned(tmp_path, "print('so sad'); sys.exit(3)")


def test_what_outlives_the_command_is_killed_and_refused(tmp_path: Path) -> None:
    body = "pid = os.fork()\nif pid == 0:\n    time.sleep(600)\nprint(pid)"
    with pytest.raises(UsageLost, match="1 left behind"):
        burned(tmp_path, body, grace_s=0.3)
    pid = int((tmp_path / "log").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_the_time_limit_kills_the_tree(tmp_path: Path) -> None:
    with pytest.raises(UsageLost, match="exit code -9"):
        burned(tmp_path, "subprocess = __import__('subprocess')\nsubprocess.run(['sleep', '600'])", timeout_s=0.5)
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listing
