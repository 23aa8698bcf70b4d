"""What the demo found, as a value, as a table for the terminal and as JSON; and the tree of what it wrote.

A run is good only if nothing was lost, duplicated or put in a wrong place, and no process stayed behind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.tree import Tree

from poundlock.values import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The result of one demo.

    Args:
        produced, in_files, dead_lettered, lost, duplicated, misplaced, hidden: as in `poundlock.testing.audit.AuditResult`.
        rows_per_s: rows a second between completed checkpoints, over all lives of the driver; start-up is not in it.
        recovery_s: the slowest of `recoveries_s`.
        recoveries_s: for each kill, s from SIGKILL to the first checkpoint completed afterwards, process start included.
        left_behind: command lines of processes that had to be ended after the job.
        duration_s: the whole demo, s.
    """

    produced: int
    in_files: int
    dead_lettered: int
    lost: int
    duplicated: int
    misplaced: int
    hidden: int
    rows_per_s: int
    recovery_s: float
    recoveries_s: Sequence[float]
    kills: int
    checkpoints: int
    files: int
    seed: int
    left_behind: Sequence[str]
    duration_s: float

    @property
    def exit_code(self) -> int:
        """Return 0 if each event is in exactly one right place and nothing stayed behind, else 1."""
        return int(bool(self.lost or self.duplicated or self.misplaced or self.left_behind))

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
