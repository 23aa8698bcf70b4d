"""Child processes that come up in milliseconds and are killed: each is forked from a process that has loaded what they need.

That process connects to nothing and starts no thread, so that a fork of it is as good as a fresh interpreter; the test's own
process is never forked.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
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
        self._server: subprocess.Popen[str] | None = None
        self._left: set[int] = set()
        self._count = 0

    def __enter__(self) -> Children:
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("POUNDLOCK_FAILPOINTS", None)
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-c", "from poundlock.testing.conformance.children import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        return self

    def __exit__(self, *error: object) -> None:
        for pid in list(self._left):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)
        if self._server is not None and self._server.stdin is not None and self._server.stdout is not None:
            self._server.stdin.close()
            self._server.wait(30)
            self._server.stdout.close()
            self._server = None

    def start(self, function: Callable[..., Any], *arguments: Any, failpoints: str = "") -> Child:
        """Start a function of this package, which is found by name, in a process with these POUNDLOCK_FAILPOINTS."""
        self._count += 1
        request = self.folder / f"request-{self._count}"
        answer = self.folder / f"answer-{self._count}"
        request.write_bytes(pickle.dumps((function, arguments, failpoints, str(answer))))
        pid = int(self._ask({"start": str(request)}))
        self._left.add(pid)
        return Child(self, pid, answer)

    def call(self, function: Callable[..., Any], *arguments: Any, failpoints: str = "") -> Any:
        """Start it and return its result."""
        return self.start(function, *arguments, failpoints=failpoints).result()

    def wait(self, pid: int) -> int:
        """Return how a child ended: its exit code, or minus the signal that killed it."""
        if (code := self._ask({"wait": pid})) is None:
            os.kill(pid, signal.SIGABRT)  # its stack goes to the log
            self._ask({"wait": pid})
            raise ChildFailed(f"a process did not end within {_PATIENCE_S} s; its log:\n{self.log_tail()}")
        self._left.discard(pid)
        return int(code)

    def preload(self, modules: Sequence[str]) -> None:
        """Have modules loaded for all children to come."""
        if modules:
            self._ask({"load": modules})

    def log_tail(self) -> str:
        """Return the end of what children wrote to stdout and stderr."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _ask(self, question: dict[str, Any]) -> Any:
        server = self._server
        if server is None or server.stdin is None or server.stdout is None:
            raise RuntimeError("the process that starts children is not running")
        try:
            print(json.dumps(question), file=server.stdin, flush=True)
            answer = server.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ChildFailed(f"the process that starts children has ended; its log:\n{self.log_tail()}")
        return json.loads(answer)


def serve() -> None:
    """Answer questions from stdin until it is closed: start a child, or say how one ended."""
    from importlib import import_module

    for name in _PRELOAD:
        import_module(name)
    gc.freeze()  # a child's collector leaves alone what all of them share
    ended: dict[int, int] = {}
    signal.signal(signal.SIGALRM, _too_long)
    for line in sys.stdin:
        question = json.loads(line)
        if "load" in question:
            for name in question["load"]:
                import_module(name)
            print("null", flush=True)
            continue
        if "start" in question:
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                _work(question["start"])
            ended.pop(pid, None)  # of an earlier child of that number
            print(pid, flush=True)
            continue
        pid = question["wait"]
        if pid not in ended:
            signal.alarm(_PATIENCE_S)
            with suppress(TimeoutError):
                ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            signal.alarm(0)
        print(json.dumps(ended.get(pid)), flush=True)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def _work(path: str) -> None:
    """Do what a request says, in the child, and end it without running what the parent has at exit."""
    code = 1
    faulthandler.enable()
    before = set(sys.modules)
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        function, arguments, failpoints, answer = pickle.loads(Path(path).read_bytes())
        if failpoints:
            os.environ["POUNDLOCK_FAILPOINTS"] = failpoints
        try:
            result: tuple[bool, Any] = (True, function(*arguments))
        except PoundlockError as error:
            result = (False, error)
        except BaseException:
            result = (False, traceback.format_exc())
        loaded = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in _PACKAGES)
        with tempfile.NamedTemporaryFile(dir=Path(answer).parent, delete=False) as file:
            file.write(pickle.dumps((*result, loaded)))
        os.replace(file.name, answer)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
