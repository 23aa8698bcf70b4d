"""What the demo saw of the job while it ran, and what came of it: as a value, a table for the terminal, JSON, a tree of files.

Of a run only completed checkpoints count; a life that was killed before its first one adds nothing but the time it took. It is
good only if nothing was lost, duplicated or put in a wrong place, and no process stayed behind.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.tree import Tree

from poundlock.testing.audit import AuditResult
from poundlock.testing.job_process import JobProcess, Line, completed
from poundlock.values import format_bytes


class DemoRun:
    """All lives of one job over a topic of so many records."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._lives: list[JobProcess] = []
        self._killed_at: list[float] = []

    def add(self, job: JobProcess) -> JobProcess:
        """Note a new life; return it."""
        self._lives.append(job)
        return job

    def killed(self) -> None:
        """Note that the newest life is killed now."""
        self._killed_at.append(time.monotonic())

    @staticmethod
    def _completed(job: JobProcess) -> list[Line]:
        """Return the line at which each checkpoint of a life was first reported."""
        lines: list[Line] = []
        for line in job.lines():
            if completed(line.value) > (completed(lines[-1].value) if lines else -1):
                lines.append(line)
        return lines

    def checkpoints(self, job: JobProcess) -> int:
        """Return how many checkpoints a life completed."""
        return len(self._completed(job))

    def all_checkpoints(self) -> int:
        """Return how many checkpoints all lives completed."""
        return sum(self.checkpoints(job) for job in self._lives)

    def checkpoint_s(self) -> float:
        """Return how long a checkpoint lately took, s."""
        lines = self._completed(self._lives[-1])
        return float(lines[-1].value["last_ms"]) / 1000 if lines else 0.0

    @staticmethod
    def _lag(job: JobProcess) -> int | None:
        return next((lag for line in reversed(job.lines()) if (lag := line.value.get("lag")) is not None), None)

    @property
    def read(self) -> int:
        """Return how many records are consumed, as far as is known."""
        for job in reversed(self._lives):
            lag = self._lag(job)
            if lag is not None:
                return max(0, self._total - lag)
        return 0

    def consumed(self, job: JobProcess) -> bool:
        """Return whether a life reported, after a checkpoint of its own, that no record waits."""
        return any(line.value.get("lag") == 0 and completed(line.value) >= 0 for line in job.lines())

    def rows_per_s(self) -> int:
        """Return rows a second between completed checkpoints, over all lives."""
        rows, seconds = 0, 0.0
        for job in self._lives:
            lines = self._completed(job)
            if len(lines) > 1:
                rows += int(lines[-1].value["rows_read"]) - int(lines[0].value["rows_read"])
                seconds += lines[-1].at - lines[0].at
        return round(rows / seconds) if seconds else 0

    def recoveries_s(self) -> list[float]:
        """Return, for each kill, the time until the next checkpoint was completed, s."""
        firsts = [line.at for job in self._lives for line in self._completed(job)[:1]]
        return [
            min(at - killed for at in firsts if at > killed)
            for killed in self._killed_at
            if any(at > killed for at in firsts)
        ]

    def note(self, job: JobProcess) -> str:
        """Return a few words on a life for the live display."""
        lines = job.lines()
        if not lines:
            return "starting"
        value = lines[-1].value
        if completed(value) < 0:
            return str(value.get("state", "starting")).lower()
        return (
            f"checkpoint {completed(value)}, {float(value.get('rows_per_s') or 0):,.0f} rows/s, lag {value.get('lag')}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(AuditResult):
    """The result of one demo: what the audit says, and how the job ran.

    Args:
        rows_per_s: rows a second between completed checkpoints, over all lives of the driver; start-up is not in it.
        recovery_s: the slowest of `recoveries_s`.
        recoveries_s: for each kill, s from SIGKILL to the first checkpoint completed afterwards, process start included.
        left_behind: command lines of processes that had to be ended after the job.
        duration_s: the whole demo, s.
    """

    rows_per_s: int
    recovery_s: float
    recoveries_s: Sequence[float]
    kills: int
    checkpoints: int
    seed: int
    left_behind: Sequence[str]
    duration_s: float

    @property
    def exit_code(self) -> int:
        """Return 0 if each event is in exactly one right place and nothing stayed behind, else 1."""
        return int(not self.exact or bool(self.left_behind))

    def save(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def table(self) -> Table:
        """Return the report as a table for people."""
        table = Table()
        table.add_column("audit of every finished file")
        table.add_column("result", justify="right")
        for name, value in (
            ("produced", f"{self.produced:,}"),
            ("in files", f"{self.in_files:,}"),
            ("dead-lettered", f"{self.dead_lettered:,}"),
            ("lost", _verdict(self.lost)),
            ("duplicated", _verdict(self.duplicated)),
            ("in a wrong bucket", _verdict(self.misplaced)),
            ("driver killed (SIGKILL)", f"{self.kills} times"),
            ("checkpoints", f"{self.checkpoints:,}"),
            ("rows/s between checkpoints", f"{self.rows_per_s:,}"),
            ("recovery, s", " and ".join(f"{s:.1f}" for s in self.recoveries_s)),
        ):
            table.add_row(name, value)
        if self.hidden:
            table.add_row("hidden files left", f"[yellow]{self.hidden}[/]")
        for command in self.left_behind:
            table.add_row("process left behind", f"[red]{command}[/]")
        return table


def _verdict(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "[green]0[/]"


def directory_tree(root: Path, *, limit: int = 4) -> Tree:
    """Return the folder as a tree with sizes: at most `limit` files a folder are named, the others counted."""
    tree = Tree(f"[bold]{root.name}/[/]")
    _grow(tree, root, limit)
    return tree


def _grow(tree: Tree, folder: Path, limit: int) -> None:
    entries = sorted(os.scandir(folder), key=lambda entry: _natural(entry.name))
    for entry in (e for e in entries if e.is_dir()):
        _grow(tree.add(f"[bold]{entry.name}/[/]"), Path(entry.path), limit)
    files = [e for e in entries if e.is_file()]
    for entry in files[:limit]:
        tree.add(f"{entry.name}  [dim]{format_bytes(entry.stat().st_size)}[/]")
    if rest := files[limit:]:
        tree.add(f"[dim]… and {len(rest)} more, {format_bytes(sum(e.stat().st_size for e in rest))}[/]")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts part-0-9 before part-0-10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"([0-9]+)", name)]
