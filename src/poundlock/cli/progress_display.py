"""How a running job is shown: a live line on a terminal, a line at each change elsewhere, JSON lines for programs.

Showing never slows or fails the job: what cannot be printed is dropped. For people, a job that is refused or fails is reported
by its error alone, so nothing is printed before a job gets going and no line says FAILED.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from poundlock.cli.output import Output, plural, watermark_text
from poundlock.driver.progress import Progress


class Watcher(Protocol):
    """Who is shown how a job goes. `update` is called from the job's threads, `say` from a signal handler too."""

    def update(self, progress: Progress) -> None:
        """Show the newest state."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def done(self, progress: Progress) -> None:
        """Show how it ended."""


@contextmanager
def watcher(job: str, log: Path, output: Output) -> Iterator[Watcher]:
    """Yield the watcher that fits where the output goes."""
    if output.as_json:
        yield _JsonWatcher(output)
    elif output.out.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(file=output.out, highlight=False)
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield _LiveWatcher(job, log, console, live)
    else:
        yield _LineWatcher(job, log, output)


def status_line(progress: Progress) -> str:
    """Return a job's state as one line, such as
    `RUNNING  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  7 files  last 1.2 s`.
    """
    parts: list[str] = [progress.state]
    if progress.checkpoint is not None:
        parts += [f"checkpoint {progress.checkpoint}", f"{progress.rows_per_s:,.0f} rows/s"]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.checkpoint is not None:
        parts.append(f"{progress.rows_read:,} rows")
    if progress.checkpoint is not None or progress.files_finished:
        parts.append(plural(progress.files_finished, "file"))
    for name, count in (("dead letters", progress.dead_lettered), ("skipped", progress.skipped)):
        if count:
            parts.append(f"{count:,} {name}")
    if progress.watermark is not None or progress.held_by is not None:
        held = "" if progress.held_by is None else f" held by {progress.held_by}"
        parts.append(f"watermark {watermark_text(progress.watermark)}{held}")
    if progress.last_ms is not None:
        parts.append(f"last {progress.last_ms / 1000:.1f} s")
    if progress.restarts:
        parts.append(plural(progress.restarts, "restart"))
    return "  ".join(parts)


class _JsonWatcher:
    """One JSON object a change, on standard output; what is for people goes to standard error."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._newest: Progress | None = None

    def update(self, progress: Progress) -> None:
        self._newest = progress
        with suppress(OSError, ValueError):  # the reader is gone; the job is not its business
            self._output.json(progress.line())

    def say(self, text: str) -> None:
        self._output.note(text)

    def done(self, progress: Progress) -> None:
        if progress != self._newest:
            self.update(progress)


class _LineWatcher:
    """A line at each change of state and each message, for logs and pipes."""

    def __init__(self, job: str, log: Path, output: Output) -> None:
        self._output = output
        self._state = "INITIALIZING"  # which every job is at first
        self._heading = f"job {job}, log {log}"

    def _print(self, text: str) -> None:
        lines = [self._heading, text] if self._heading else [text]
        self._heading = ""
        with suppress(OSError, ValueError):
            self._output.line("\n".join(lines))

    def update(self, progress: Progress) -> None:
        if progress.message:
            self._print(f"{progress.state}  {progress.message}")
        elif progress.state not in (self._state, "FAILED"):
            self._print(status_line(progress))
        self._state = progress.state

    def say(self, text: str) -> None:
        self._print(text)

    def done(self, progress: Progress) -> None:
        if progress.state != self._state or progress.message:
            self._print(status_line(progress))


class _LiveWatcher:
    """One line that is redrawn, with messages scrolling by above it."""

    def __init__(self, job: str, log: Path, console: Any, live: Any) -> None:
        self._console = console
        self._live = live
        self._heading = f"job {job}, log {log}"
        self._draw(f"INITIALIZING  {self._heading}")

    def _draw(self, text: str) -> None:
        from rich.spinner import Spinner
        from rich.text import Text

        self._live.update(Spinner("line", Text(text, no_wrap=True, overflow="ellipsis")))

    def update(self, progress: Progress) -> None:
        if progress.state == "FAILED":
            return
        if self._heading or progress.message:
            self.say(progress.message)
        self._draw(status_line(progress))

    def say(self, text: str) -> None:
        lines = [line for line in (self._heading, text) if line]
        self._heading = ""
        self._console.print("\n".join(lines), markup=False, soft_wrap=True)

    def done(self, progress: Progress) -> None:
        self._live.update("")
        self.say(status_line(progress))
