"""A terminal for the tests of compatibility: commands as a user types them, with nothing of the engine known but its command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATIENCE_S = 600.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.compat)


class Terminal:
    """A folder in which commands are typed. The jobs of it are its own.

    Args:
        folder: the working folder; state, checkpoints and output are below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("POUNDLOCK_")}
        kept = {name: os.environ[name] for name in ("POUNDLOCK_CACHE_DIR", "POUNDLOCK_JARS_DIR") if name in os.environ}
        self.environment = {
            **inherited,
            **kept,
            "POUNDLOCK_STATE_DIR": str(folder / "state"),
            "POUNDLOCK_MASTER": "local[2]",
            "POUNDLOCK_DRIVER_MEMORY": "1g",
        }
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, and return at once; a program of Python's by its path."""
        what = arguments if arguments[0].endswith(".py") else ("-m", "poundlock", *arguments)
        log = (self.folder / "terminal.log").open("a")
        process = subprocess.Popen(
            [sys.executable, *what],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        log.close()
        self._running.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> int:
        """Run a command to its end; return its exit code, negative for a signal."""
        return self.start(*arguments, **environment).wait(_PATIENCE_S)

    def succeeds(self, *arguments: str, **environment: str) -> None:
        """Run a command that has to succeed."""
        code = self.run(*arguments, **environment)
        assert code == 0, f"poundlock {' '.join(arguments)} ended with {code}\n{self.log()}"

    def log(self) -> str:
        """Return the last of what the commands printed and the jobs logged."""
        parts = [self.folder / "terminal.log", *sorted((self.folder / "state" / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in parts if path.exists()
        )

    def wait(self, reached: Callable[[], bool], job: subprocess.Popen[str]) -> None:
        """Wait until something holds while a job lives."""
        deadline = time.monotonic() + _PATIENCE_S
        while not reached():
            assert job.poll() is None, f"the job ended with {job.returncode}\n{self.log()}"
            assert time.monotonic() < deadline, f"it did not come\n{self.log()}"
            time.sleep(0.2)

    def stop(self, job: subprocess.Popen[str]) -> None:
        """Stop a job cleanly, by SIGINT as Ctrl-C does."""
        job.send_signal(signal.SIGINT)
        assert job.wait(_PATIENCE_S) == 0, self.log()

    def close(self) -> None:
        """Kill whatever is left of what was started."""
        for process in self._running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            finally:
                process.wait()


def visible_lines(folder: Path) -> list[str]:
    """Return the lines of all finished files below a folder, sorted; hidden files are not looked at."""
    if not folder.exists():
        return []
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    return sorted(line for path in files for line in path.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def finished() -> Callable[[Path], list[str]]:
    """The function that reads finished files."""
    return visible_lines
