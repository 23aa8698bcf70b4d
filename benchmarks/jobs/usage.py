"""What the process tree of a running job has used so far, asked by the job itself: for what a few checkpoints in its middle take."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def _tree() -> dict[int, list[str]]:
    """Return the fields of /proc/PID/stat, behind the name, of this process and all below it, by their ids."""
    parents: dict[int, list[str]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        parents[int(entry)] = text[text.rindex(")") + 2 :].split(" ")
    tree, todo = dict[int, list[str]](), [os.getpid()]
    while todo:
        pid = todo.pop()
        tree[pid] = parents[pid]
        todo += [child for child, fields in parents.items() if int(fields[1]) == pid]
    return tree


def used() -> tuple[int, int]:
    """Return CPU ms and bytes written of this process and all below it, those that ended included as far as they were waited for."""
    tree = _tree()
    ticks = sum(int(fields[at]) for fields in tree.values() for at in (11, 12, 13, 14))
    written = 0
    for pid in tree:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        written += int(next(line.split()[1] for line in lines if line.startswith("write_bytes:")))
    return ticks * 1000 // _TICKS, written


def anonymous_bytes() -> int:
    """Return the memory of this process and all below it that no file stands behind; pages that forked processes share count in each."""
    found = 0
    for pid in _tree():
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        found += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return found * 1024
