"""A bar for work that takes longer than two seconds: on standard error, on a terminal alone, and gone when the work is done.

Where results are JSON, or standard error is no terminal, there is none. What is shorter is quiet, and loads nothing for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from poundlock.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 2.0
"""Seconds before a bar comes up."""


class ProgressBar:
    """How far one piece of work has come. Threads may share it."""

    def __init__(self, output: Output, what: str) -> None:
        self._output, self._text = output, what
        self._done = 0.0
        self._total: float | None = None
        self._lock = threading.Lock()
        self._shown: Progress | None = None
        self._task: TaskID | None = None
        self._over = False

    def update(self, done: float | None = None, total: float | None = None, text: str | None = None) -> None:
        """Note how much is done of how much, and with what the work is at.

        Args:
            done, total: in one unit, whichever; None = as before. Without a total the bar only moves.
            text: stands in front of the bar; None = as before.
        """
        with self._lock:
            self._done = self._done if done is None else done
            self._total = self._total if total is None else total
            self._text = self._text if text is None else text
            self._draw()

    def of(self, done: int, total: int) -> None:
        """Note how much is done of how much; for who calls with just these."""
        self.update(done, total)

    def at(self, text: str) -> None:
        """Note with what the work is at; for who calls with just that."""
        self.update(text=text)

    def say(self, text: str) -> None:
        """Print a line that stays beside the result, above the bar where one is shown."""
        with self._lock:
            if self._shown is None:
                self._output.note(text)
            else:
                self._shown.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self) -> None:
        """Bring the bar up, unless the work is done."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._over:
                return
            words = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[counted]"))
            text, counted = words
            self._shown = Progress(
                SpinnerColumn("line"),
                text,
                BarColumn(),
                counted,
                TimeElapsedColumn(),
                console=Console(file=self._output.err),
                transient=True,
            )
            self._task = self._shown.add_task(self._text, total=self._total, counted="")
            self._draw()
            self._shown.start()

    def end(self) -> None:
        """Take the bar away."""
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown.stop()

    def _draw(self) -> None:
        if self._shown is not None and self._task is not None:
            counted = "" if self._total is None else f"{self._done:,.0f}/{self._total:,.0f}"
            self._shown.update(
                self._task, completed=self._done, total=self._total, description=self._text, counted=counted
            )


@contextmanager
def progress_bar(output: Output, what: str) -> Iterator[ProgressBar]:
    """Give the bar of a piece of work that is done within the block.

    Args:
        what: the work, in words; stands in front of the bar.
    """
    bar = ProgressBar(output, what)
    timer = threading.Timer(PATIENCE_S, bar.show)
    timer.daemon = True
    if has_bars(output):
        timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        bar.end()


def has_bars(output: Output) -> bool:
    """Return whether bars are shown at all: to a person at a terminal that can draw them."""
    return not output.as_json and output.err.isatty() and os.environ.get("TERM", "dumb") != "dumb"
