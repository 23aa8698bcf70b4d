"""One statement of a shell while it runs: in a thread of its own, with how it goes on the terminal, until it ends or Ctrl-C ends it.

What the first Ctrl-C means is for the statement to say; a third one ends Spark under it, should it hang. What ends the shell itself
(SIGTERM, or SIGHUP where its terminal goes) ends the statement as Ctrl-C does, and the shell behind it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from poundlock.cli.output import Output
from poundlock.cli.progress_display import status_line
from poundlock.cli.shell.result_views import ResultView
from poundlock.threads import has_ended, in_thread

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from poundlock.driver.progress import Progress, StopRequest

T = TypeVar("T")
_POLL_S = 0.02
_DRAW_S = 0.15
_ENDS_SHELL = (signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S = 0.4  # before a line says that something runs: most statements have ended by then


class StatementRun:
    """Watches a statement.

    Args:
        stop: ends its job.
        kill: ends Spark.
    """

    def __init__(self, output: Output, stop: StopRequest, kill: Callable[[], object]) -> None:
        self._output, self._stop, self._kill = output, stop, kill
        self._lock = threading.Lock()
        self._messages: list[str] = []
        self.progress: Progress | None = None
        """What became of its newest job."""
        self.writes = False
        """Whether it is an INSERT: it is asked to finish first, and then to end at once."""
        self.view: ResultView | None = None
        """Shows the rows of a query."""
        self.interrupts = 0
        """How often it was asked to end."""
        self.ended_by: int | None = None
        """The signal that asks the shell to end, too."""

    # --- from the thread of the job -----------------------------------------------------------------------------------

    def update(self, progress: Progress) -> None:
        """Take how a job goes."""
        with self._lock:
            self.progress = progress
        if progress.message and self.writes:
            self.say(progress.message)

    def say(self, line: str) -> None:
        """Have a line printed that stays."""
        with self._lock:
            self._messages.append(line)

    # --- in the main thread -------------------------------------------------------------------------------------------

    @property
    def is_seen(self) -> bool:
        """Whether the terminal is there."""
        return self.ended_by != signal.SIGHUP

    def run(self, call: Callable[[], T]) -> T:
        """Make a call in a thread and show how it goes until it has ended; return what it returns, and raise what it raises."""
        with self._interruptible(), self._terminal() as (console, live):
            running = in_thread(call, "poundlock-statement")
            begun = drawn = time.monotonic()

            def print_line(text: str) -> None:
                console.print(text, markup=False, highlight=False, soft_wrap=True)

            while not has_ended(running, _POLL_S):
                now = time.monotonic()
                if now - drawn < _DRAW_S or now - begun < _PATIENCE_S:
                    continue
                drawn = now
                try:
                    self._print_new(print_line if self.is_seen else _unseen)
                    if self.is_seen:
                        self._draw(console, live)
                except OSError:  # the terminal is gone, and the signal that says so is on its way
                    self._asked(signal.SIGHUP)
        self._print_new(self._output.line if self.is_seen else _unseen)
        return running.result()

    def _print_new(self, print_line: Callable[[str], None]) -> None:
        self._print_messages(print_line)
        if self.view is not None:
            self.view.print_new(print_line, stopped=lambda: self._stop.stopping)

    def _print_messages(self, print_line: Callable[[str], None]) -> None:
        with self._lock:
            messages, self._messages = self._messages, []
        for message in messages:
            print_line(message)

    def _draw(self, console: Console, live: Live) -> None:
        from rich.text import Text

        lines = [] if self.view is None else self.view.lines(console.height - 2)
        shown = Text("\n".join([*lines, self._status()]), no_wrap=True, overflow="crop")
        if not live.is_started:
            live.start()
        live.update(shown, refresh=True)

    def _status(self) -> str:
        if self.interrupts:
            doing = "finishing the checkpoint and all pending files; Ctrl-C once more to end at once"
            return doing if self.writes and self.interrupts == 1 else "ending"
        progress = self.progress
        if progress is not None and progress.state in ("FINISHED", "CANCELED", "FAILED"):
            return status_line(progress)
        state = "starting" if progress is None or progress.checkpoint is None else status_line(progress)
        return f"{state}  Ctrl-C ends {'the INSERT' if self.writes else 'the query'}"

    @contextmanager
    def _terminal(self) -> Iterator[tuple[Console, Live]]:
        """Yield what draws on the terminal; what was drawn is gone behind it."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._output.out, highlight=False)
        live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        try:
            yield console, live
        finally:
            if live.is_started:
                with suppress(OSError):  # of a terminal that is gone
                    live.stop()

    # --- Ctrl-C -------------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ask the statement to end."""
        self.interrupts += 1
        if self.writes and self.interrupts == 1:
            self._stop.stop()
        elif self.interrupts <= 2:
            self._stop.cancel()
        else:
            threading.Thread(target=self._kill, name="poundlock-kill").start()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        def asked(number: int, frame: FrameType | None) -> None:
            self._asked(number)

        before = {number: signal.signal(number, asked) for number in (signal.SIGINT, *_ENDS_SHELL)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, number: int) -> None:
        if number in _ENDS_SHELL:
            if not self.is_seen:
                return  # that the terminal is gone a signal tells, and an error, too
            self.ended_by = number
        self.interrupt()


def _unseen(text: str) -> None:
    """Take a line that nobody sees: rows have to be taken for the query to end."""
