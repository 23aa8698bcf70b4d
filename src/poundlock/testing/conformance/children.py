"""Child processes that come up in milliseconds and are killed: each is forked from a process that has loaded what they need.

That process connects to nothing and starts no thread, so that a fork of it is as good as a fresh interpreter; the test's own
process is never forked.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from poundlock.errors import PoundlockError

_PATIENCE_S = 240
_PRELOAD = (
    "pandas",
    "pyspark.cloudpickle",
    "poundlock.testing.conformance.lives",
    "poundlock.testing.conformance.source_rig",
)
_PACKAGES = ("poundlock", "pyarrow", "numpy", "msgspec")  # what of these a child had to load is loaded once and for all
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ChildFailed(AssertionError):
    """What ran in the child raised something that is not an error of poundlock's; the text has its stack."""


class Killed(Exception):
    """The child was killed before it came to an end."""


class Child:
    """One process at work."""

    def __init__(self, children: Children, pid: int, answer: Path) -> None:
        self._children, self.pid, self._answer = children, pid, answer

    def kill(self) -> None:
        """SIGKILL it, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._children.wait(self.pid)

    def result(self) -> Any:
        """Wait for the end and return what the function returned.

        Raises:
            Killed: it was killed.
            PoundlockError: the function raised it.
            ChildFailed: the function raised something else, or the process ended without a word.
        """
        code = self._children.wait(self.pid)
        if code == -signal.SIGKILL:
            raise Killed
        if not self._answer.exists():
            raise ChildFailed(f"a process ended with {code}; its log:\n{self._children.log_tail()}")
        good, value, loaded = pickle.loads(self._answer.read_bytes())
        self._children.preload(loaded)
        if good:
            return value
        if isinstance(value, PoundlockError):
            raise value
        raise ChildFailed(value)


class Children:
    """Starts children; use it in a `with` block, at whose end those that are left are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._left: set[int] = set()
        self._count = 0
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("POUNDLOCK_FAILPOINTS", None)
        command = [sys.executable, "-c", "from poundlock.testing.conformance.children import serve; serve()"]
        with (folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *error: object) -> None:
        for pid in list(self._left):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)
        self._server.communicate(timeout=30)  # it ends with its input

    def start(self, function: Callable[..., Any], *arguments: Any, failpoints: str = "") -> Child:
        """Start a function of this package, by its name, in a process with these POUNDLOCK_FAILPOINTS."""
        self._count += 1
        answer = self.folder / f"answer-{self._count}"
        pid = int(self._ask("start", pickle.dumps((function, arguments, failpoints)), answer))
        self._left.add(pid)
        return Child(self, pid, answer)

    def call(self, function: Callable[..., Any], *arguments: Any, failpoints: str = "") -> Any:
        """Start it and return its result."""
        return self.start(function, *arguments, failpoints=failpoints).result()

    def wait(self, pid: int) -> int:
        """Return how a child ended: its exit code, or minus the signal that killed it."""
        if (code := self._ask("wait", pid)) is None:
            os.kill(pid, signal.SIGABRT)  # its stack goes to the log
            self._ask("wait", pid)
            raise ChildFailed(f"a process did not end within {_PATIENCE_S} s; its log:\n{self.log_tail()}")
        self._left.discard(pid)
        return int(code)

    def preload(self, modules: Sequence[str]) -> None:
        """Have modules loaded for all children to come."""
        if modules:
            self._ask("load", modules)

    def log_tail(self) -> str:
        """Return the end of what children wrote to stdout and stderr."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _ask(self, *question: Any) -> Any:
        asked, answers = self._server.stdin, self._server.stdout
        assert asked is not None
        assert answers is not None
        try:
            pickle.dump(question, asked)
            asked.flush()
            return pickle.load(answers)
        except (BrokenPipeError, EOFError):
            raise ChildFailed(f"the process that starts children has ended; its log:\n{self.log_tail()}") from None


def serve() -> None:
    """Answer questions from stdin until it is closed: start a child, say how one ended, or load modules for those to come."""
    for name in _PRELOAD:
        import_module(name)
    gc.freeze()  # a child's collector leaves alone what all of them share
    ended: dict[int, int] = {}
    signal.signal(signal.SIGALRM, _too_long)
    with suppress(EOFError):
        while True:
            answer: int | None = None
            match pickle.load(sys.stdin.buffer):
                case "load", names:
                    for name in names:
                        import_module(name)
                case "start", request, path:
                    if not (child := os.fork()):
                        _work(request, path)
                    ended.pop(child, None)  # of an earlier child of that number
                    answer = child
                case "wait", pid:
                    if pid not in ended and (code := _waited(pid)) is not None:
                        ended[pid] = code
                    answer = ended.get(pid)
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.flush()


def _waited(pid: int) -> int | None:
    signal.alarm(_PATIENCE_S)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def _work(request: bytes, path: Path) -> None:
    """Do what a request says, in the child, and end it without running what the parent has at exit."""
    code = 1
    faulthandler.enable()
    before = set(sys.modules)
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        function, arguments, failpoints = pickle.loads(request)
        if failpoints:
            os.environ["POUNDLOCK_FAILPOINTS"] = failpoints
        try:
            result: tuple[bool, Any] = (True, function(*arguments))
        except PoundlockError as error:
            result = (False, error)
        except BaseException:
            result = (False, traceback.format_exc())
        loaded = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in _PACKAGES)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(pickle.dumps((*result, loaded)))
        os.replace(file.name, path)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
