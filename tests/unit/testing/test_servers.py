"""The life of a server that a test starts, on a small one in Python: it comes, goes, comes back, and says why it does not."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from poundlock.errors import DefinitionError, TransientError
from poundlock.testing.servers import ServerProcess, end_with_children
from support.fixtures import running_or_skipped

# It says which signal stops it.
LISTENS = """
import signal, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    def stop(number, frame):
        print("stopped by", signal.Signals(number).name, flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    while True:
        listening.accept()[0].close()
"""
FAILS = "print('no room'); raise SystemExit(3)"


class Small(ServerProcess):
    title = "the small server"

    start_s = 60

    def __init__(self, home: Path | None = None, *, port: int | None = None, program: str = LISTENS) -> None:
        super().__init__(home, "poundlock-small-", port)
        self._program = program

    def _command(self) -> list[str]:
        return [sys.executable, "-c", self._program, str(self.port)]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with Small(tmp_path) as server:
        yield server


def test_it_comes_back_on_its_port(small: Small) -> None:
    port, pid = small.port, small.pid
    assert small.start().pid == pid, "it ran already"
    small.kill()
    assert (small.running, small.pid) == (False, None)
    small.kill()  # and once more does nothing
    small.restart()
    assert (small.running, small.port) == (True, port)
    assert small.pid not in (pid, None)


def test_it_is_stopped_in_order_where_its_folder_stays(tmp_path: Path) -> None:
    with Small(tmp_path) as server:
        pid = server.pid
    assert (psutil.pid_exists(pid or 0), server.running) == (False, False)
    assert server.log_file.read_text() == "stopped by SIGTERM\n"


def test_a_temporary_folder_goes_with_it() -> None:
    with Small() as server:
        home = server.home
        assert home.is_dir()
    assert not home.exists()


def test_one_that_ends_is_told_with_what_it_said(tmp_path: Path) -> None:
    server = Small(tmp_path, program=FAILS)
    with pytest.raises(TransientError, match=f"the small server in {tmp_path} did not come up: no room"):
        server.start()
    assert not server.running


def test_one_that_never_answers_is_killed_when_the_time_is_up(tmp_path: Path) -> None:
    server = Small(tmp_path, program="import time; print('busy', flush=True); time.sleep(600)")
    with pytest.raises(TransientError, match="did not come up"):
        server.start(timeout=0.2)
    assert not server.running


def test_a_failed_start_leaves_no_temporary_folder() -> None:
    server = Small(program=FAILS)
    with pytest.raises(TransientError), server:
        pytest.fail("it cannot have started")
    assert not server.home.exists()


def test_one_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="the small server could not be started: "):
        Small(tmp_path / "none").start()


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DefinitionError, match=f"port {port} on 127.0.0.1 is taken"):
            Small(tmp_path, port=port).start()


@pytest.mark.slow
def test_its_children_go_along_where_that_is_asked_for(tmp_path: Path) -> None:
    parent = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        end_with_children(process)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_server_that_is_missing_is_skipped_by_name_and_fails_where_all_must_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with (
        pytest.raises(pytest.skip.Exception, match=r"no small server: the small server in .* no room"),
        running_or_skipped("small server", lambda: Small(program=FAILS)),
    ):
        raise AssertionError("it cannot have started")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(TransientError), running_or_skipped("small server", lambda: Small(program=FAILS)):
        raise AssertionError("it cannot have started")
