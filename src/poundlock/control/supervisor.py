"""The supervisor of a job, a small process without Spark that starts the job's process again when that one crashes, and the line between the
two: what each tells the other, in lines of JSON over a socket.

There is one such process at a time: the next one is started only after the end of the one before has been seen, and a process ends with
its supervisor, however that one ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

import msgspec

from poundlock.control.process_id import CANCEL
from poundlock.control.registry import JobEnd, Registration, Registry, now_ms
from poundlock.driver.progress import StopRequest
from poundlock.driver.restart import RestartState, RestartStrategy, SameFailure
from poundlock.errors import DefinitionError, FencedError, PoundlockError, TerminalError, TransientError
from poundlock.storage.json_record import ready

VARIABLE = "POUNDLOCK_SUPERVISED"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a process is given by its supervisor when it starts.

    Args:
        pid, process_start: the supervisor; see `process_id.process_start`.
        started_ms: when the supervisor started, ms since the epoch.
        job_id: 32 hex digits that the job gets if it begins with a savepoint; the same for every process of one supervisor.
        troubles: why the processes before this one ended, as (what, ms since the epoch), the newest last.
    """

    pid: int
    process_start: str
    started_ms: int
    job_id: str
    restarts: int = 0
    troubles: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ending(JobEnd):
    """A process's last word; it is final where the job itself decided so: it was stopped, or its restart strategy has given up."""

    final: bool

    def with_code(self, exit_code: int) -> JobEnd:
        """Return it as the job's own, with the exit code that its supervisor ends with."""
        return replace(self, exit_code=exit_code)


class LineBuffer:
    """Takes bytes as they come and gives the whole lines in them, each a JSON value."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Any]:
        """Return the values that are whole with these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line]


class Supervised:
    """The job's end of the line."""

    def __init__(self, line: socket.socket, situation: Situation) -> None:
        self.situation = situation
        self._line = line
        self._lock = threading.Lock()
        self._checkpointed = False

    def tell(self, **message: Any) -> None:
        """Tell the supervisor something; returns whether or not it hears."""
        with self._lock, suppress(OSError):
            self._line.sendall(json.dumps(message, default=str).encode() + b"\n")

    def checkpointed(self) -> None:
        """Tell that this process got somewhere; once is enough."""
        if not self._checkpointed:
            self._checkpointed = True
            self.tell(checkpoint=True)

    def end(self, ending: Ending) -> None:
        self.tell(ended=asdict(ending))

    def listen(self, ask: Callable[[int], None], stop: StopRequest) -> None:
        """Hand on the signals that the supervisor gets, tell it of a stop that others ask for, and end when it is gone."""
        threading.Thread(target=self._forward, args=(ask,), name="poundlock-supervised", daemon=True).start()
        threading.Thread(target=self._watch, args=(stop,), name="poundlock-stop", daemon=True).start()

    def _forward(self, ask: Callable[[int], None]) -> None:
        lines = LineBuffer()
        while data := self._received():
            for number in lines.take(data):
                ask(int(number))
        os.kill(os.getpid(), signal.SIGKILL)

    def _received(self) -> bytes:
        try:
            return self._line.recv(4096)
        except OSError:
            return b""

    def _watch(self, stop: StopRequest) -> None:
        while not stop.wait(3600.0):
            pass
        self.tell(stopping=True)


def supervised() -> Supervised | None:
    """Return this process's line to its supervisor, None if it has none. To be called once, and early.

    Whoever this process starts is not supervised by that supervisor.
    """
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    handle, situation = msgspec.json.decode(text, type=ready(tuple[int, Situation]))
    os.set_inheritable(handle, False)
    _die_with(situation.pid)
    return Supervised(socket.socket(fileno=handle), situation)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process with its parent, where it can; elsewhere the end of the line does it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before it could be asked for
        os.kill(os.getpid(), signal.SIGKILL)


_STOPS = (signal.SIGINT, signal.SIGTERM)
_TROUBLES = 20
_DRAIN_S = 1.0
_HARD = 2  # so many signals mean a hard stop; one more, an end on the spot
# Starting again mends none of these; the last two are a stop that somebody asked for.
_FINAL = frozenset(
    {0, DefinitionError.exit_code, TerminalError.exit_code, FencedError.exit_code, *(128 + number for number in _STOPS)}
)
# Of what kills processes from outside, and passes: the machine was short of memory, somebody meant another process.
_PASSING = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def is_final(code: int, ending: Ending | None) -> bool:
    """Return whether the end of a process is the end of the job; the exit code -N means that signal N killed it."""
    return code in _FINAL or (ending is not None and ending.final)


@dataclass(kw_only=True)
class _Life:
    """One process of the job, and what it has reported."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    stopping: bool = False
    ending: Ending | None = None
    lines: LineBuffer = field(default_factory=LineBuffer)

    def ask(self, number: int) -> None:
        """Hand a signal on. It waits in the line until the process can take it."""
        with suppress(OSError):  # it may be ending
            self.line.sendall(f"{number}\n".encode())

    def kill(self) -> None:
        """End the process and what it started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass(kw_only=True)
class Supervisor:
    """Runs one job until its end.

    Args:
        strategy: when to start again, as far as the settings say; the job says more once it is loaded.
        strategy_of: returns the strategy that plain data from the process stands for.
        say: called with a line for every crash.
    """

    command: Sequence[str]
    registry: Registry
    strategy: RestartStrategy
    situation: Situation
    strategy_of: Callable[[Mapping[str, object]], RestartStrategy]
    say: Callable[[str], None]
    _state: RestartState = field(init=False)
    _asked: list[int] = field(default_factory=list)
    _same: SameFailure | None = None
    _wake: int = -1

    def __post_init__(self) -> None:
        self._state = RestartState(self.strategy)

    def run(self) -> int:
        """Run the job and return its exit code.

        Raises:
            PoundlockError: its process crashed, and the strategy has given up.
        """
        rng = random.Random(self.situation.job_id)
        with self._signals():
            while True:
                life = self._start()
                try:
                    code = self._watch(life)
                finally:
                    if life.process.poll() is None:
                        life.kill()
                    life.line.close()
                if is_final(code, life.ending) or self._asks > _HARD:
                    return self._end(life, code)
                stopping = life.stopping or bool(self._asked)
                error = _error(life, code)
                delay_s = None if stopping else self._delay_s(error, rng, life)
                if delay_s is None:
                    return self._give_up(life, code, error)
                self._again(error, delay_s)
                if not self._wait(delay_s):
                    return self._end(None, 128 + self._newest)

    def _start(self) -> _Life:
        ours, theirs = socket.socketpair()
        message = json.dumps([theirs.fileno(), asdict(self.situation)])
        with theirs:
            process = subprocess.Popen(
                list(self.command),
                env={**os.environ, VARIABLE: message},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # what a terminal sends to its foreground group comes through here, once
            )
        life = _Life(process=process, line=ours)
        for number in self._asked:
            life.ask(number)
        return life

    def _watch(self, life: _Life) -> int:
        """Return the exit code of a process, once it has ended and all it printed is read."""
        open_lines = [life.line.fileno()]
        while life.process.poll() is None:
            ready, _, _ = select.select([self._wake, *open_lines], [], [])
            if life.line.fileno() in ready and not self._poll(life):
                open_lines = []
            if self._wake in ready:
                for number in self._received():
                    life.ask(number)
                    if self._asks > _HARD:
                        life.kill()
        life.line.settimeout(_DRAIN_S)  # whoever it left behind may hold the other end
        while open_lines and self._poll(life):
            pass
        return life.process.returncode

    def _poll(self, life: _Life) -> bool:
        """Take what a process tells; return False at the end of the line."""
        try:
            data = life.line.recv(65536)
        except OSError:
            return False
        for message in life.lines.take(data):
            if "strategy" in message:
                self._state.strategy = self.strategy_of(message["strategy"])
            if "checkpoint" in message:
                self._state.checkpoint_completed()
            if "stopping" in message:
                life.stopping = True
            if "ended" in message:
                life.ending = msgspec.convert(message["ended"], ready(Ending))
        return bool(data)

    def _delay_s(self, error: PoundlockError, rng: random.Random, life: _Life) -> float | None:
        code = life.process.returncode
        transient = code == TransientError.exit_code or (code < 0 and -code in _PASSING)
        try:
            # What to type next may name a file of that process: it is no part of what makes two failures the same.
            delay = self._state.next_delay(now_ms(), rng, PoundlockError(error.what), transient=transient)
        except SameFailure as same:
            self._same = same
            return None
        return None if delay is None else delay.total_seconds()

    def _again(self, error: PoundlockError, delay_s: float) -> None:
        """Note that the job is between two processes."""
        before = self.situation
        troubles = (*before.troubles, (error.what, now_ms()))[-_TROUBLES:]
        self.situation = replace(before, restarts=before.restarts + 1, troubles=troubles)
        if (entry := self._entry()) is not None:
            entry.between(restarts=self.situation.restarts, why=error.what)
        self.say(f"{error.what}; started again in {delay_s:.1f} s (restart {self.situation.restarts} of the process)")

    def _wait(self, seconds: float) -> bool:
        """Wait until the next process is to start. Asked to stop, it starts at once and does that; asked twice, it does not start."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._asked:
            select.select([self._wake], [], [], left)
            self._received()
        return self._asks < _HARD

    @property
    def _asks(self) -> int:
        """How many stops were asked for; a cancel is the second, unless it is a later one."""
        count = 0
        for number in self._asked:
            count = max(count + 1, _HARD) if number == CANCEL else count + 1
        return count

    @property
    def _newest(self) -> int:
        """The stop that was asked for last, by the number that stands in an exit code."""
        return signal.SIGINT if self._asked[-1] == CANCEL else self._asked[-1]

    def _end(self, life: _Life | None, code: int) -> int:
        """Say the job's last word and return its exit code."""
        code = 128 + self._newest if code < 0 and self._asked else code
        state = "FINISHED" if code == 0 else "CANCELED" if code > 128 else "FAILED"
        ending = (life.ending if life is not None else None) or Ending(state=state, exit_code=code, final=False)
        if (entry := self._entry()) is not None:
            entry.end(ending.with_code(code))
        return code

    def _give_up(self, life: _Life, code: int, error: PoundlockError) -> int:
        """End the job with the failure of its last process; what that one has printed already is not printed again."""
        failure = self._same or error
        if (entry := self._entry()) is not None:
            progress = life.ending.progress if life.ending is not None else {}
            exit_code = failure.exit_code if self._same or code < 0 else code
            last = (failure.what, failure.next)
            entry.end(
                JobEnd(state="FAILED", exit_code=exit_code, failure=last, failure_code=failure.code, progress=progress)
            )
        if self._same is None and code > 0:
            return code
        raise failure

    def _entry(self) -> Registration | None:
        return self.registry.own(self.situation.pid, self.situation.started_ms)

    def _received(self) -> list[int]:
        """Return which stops came since the last look, and keep them in mind."""
        try:
            came = [number for number in os.read(self._wake, 4096) if number in (*_STOPS, CANCEL)]
        except BlockingIOError:
            return []
        self._asked += came
        return came

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals, a child's end among them, wake whoever waits; nothing is done in a handler."""
        self._wake, write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(write, False)
        before = {number: signal.signal(number, _noted) for number in (*_STOPS, CANCEL, signal.SIGCHLD)}
        woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                late = number == CANCEL and handler == signal.SIG_DFL
                signal.signal(number, signal.SIG_IGN if late else handler)
            os.close(self._wake)
            os.close(write)


def _error(life: _Life, code: int) -> PoundlockError:
    """Return what to say of a process that ended without being asked to."""
    ending = life.ending
    if ending is not None and ending.failure is not None:
        return PoundlockError(ending.failure[0], next=ending.failure[1], code=ending.failure_code)
    if code < 0:
        return TransientError(
            f"the job's process was killed by {_name(-code)}",
            next="nothing is lost; if nobody killed it, the machine may be short of memory: start the job again",
        )
    return PoundlockError(f"the job's process ended with exit code {code}", next="read what it printed")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Only the number counts, and that is in the pipe already."""
