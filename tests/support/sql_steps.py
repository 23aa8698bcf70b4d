"""Scripts of Flink SQL whose rows come one checkpoint after the other, in a job that runs in this process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from support.in_process import InProcess
from support.sql_scripts import Answers

__all__ = ["FILES", "answered", "write_files"]

FILES = "'connector' = 'filesystem', 'format' = 'json', 'source.max-files-per-checkpoint' = '1'"
"""Options of a table each of whose files is a checkpoint; its path is to follow."""


def write_files(folder: Path, files: Iterable[Sequence[Mapping[str, Any]]]) -> None:
    """Write rows as files of lines of JSON, which are read in their order."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        path = folder / f"{number:04}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.utime(path, (1e9 + number, 1e9 + number))


def answered(root: Path, script: str, parallelism: int = 2) -> Counter[tuple[str, tuple[Any, ...]]]:
    """Run a script whose tasks run here; return the rows of its queries with their kinds of change. `PATCHES` must be in their places."""
    answers = Answers()
    settings = load_settings([f"state_dir={root}/.state", "restart-strategy.type=none"])
    ScriptRunner(
        "script", answers.take, answers.known, settings=settings, parallelism=parallelism, spark=InProcess
    ).run(script)
    return Counter((kind, tuple(row)) for kind, row in answers.changes)
