"""A driver that waits for a broker keeps no file open for each try, with no help of the garbage collector."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHILD = Path(__file__).parent / "admin_client_child.py"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that nobody listens at, nor can while it is held."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def left(what: str, address: str) -> tuple[int, int]:
    """Return how many files and threads are left in a process of their own: other tests' clients come and go in this one."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CHILD), what, address], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    files, threads = done.stdout.split()
    return int(files), int(threads)


def test_a_socket_that_cannot_connect_is_closed(nobody: str) -> None:
    assert left("direct", nobody) == (0, 0)


def test_kafka_python_alone_leaves_them_open(nobody: str) -> None:
    files, _ = left("alone", nobody)
    assert files > 25, "it closes them by now: direct() can go"  # of 50 tries


@pytest.mark.slow
def test_no_answer_leaves_neither_file_nor_thread(nobody: str) -> None:
    assert left("question", nobody) == (0, 0)
