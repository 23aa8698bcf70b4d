"""The walk of an upgrade: cancel with a savepoint, change code and parallelism, go on from it; every row once, state kept."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

JOB = Path(__file__).parent / "jobs" / "keyed.py"
BASE, ROWS, KEYS = 1_545_184_220_000, 30, 5


def put(folder: Path, number: int) -> None:
    """Put one more file of rows into the input folder, whole at once."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"k": f"k{row % KEYS}", "at": BASE + 5_000 * number + row}) + "\n" for row in range(ROWS)]
    (folder / f".{number:05d}.jsonl").write_text("".join(lines))
    (folder / f".{number:05d}.jsonl").rename(folder / f"{number:05d}.jsonl")


def numbers(lines: list[str]) -> Counter[Any]:
    return Counter((row["k"], row["n"]) for row in map(json.loads, lines))


def test_a_job_goes_on_from_its_savepoint_with_other_code_and_parallelism(
    terminal: Any, finished: Callable[[Path], list[str]]
) -> None:
    folder, numbered = terminal.folder, terminal.folder / "numbered"
    shutil.copy(JOB, folder / "job.py")
    put(folder / "in", 0)
    put(folder / "in", 1)
    first = terminal.start("run", "job.py", "-D", "parallelism=2", COMPAT_WATCH="1")
    terminal.wait(lambda: len(finished(numbered)) == 2 * ROWS, first)
    terminal.succeeds("cancel", "-s", "savepoints", "compat-keyed")
    (savepoint,) = (folder / "savepoints").iterdir()
    terminal.succeeds("savepoint", "inspect", str(savepoint))
    put(folder / "in", 2)
    again = ("run", "-s", str(savepoint), "job.py", "-D", "parallelism=3")
    second = terminal.start(*again, COMPAT_WATCH="1", COMPAT_VERSION="2")
    terminal.wait(lambda: len(finished(numbered)) == 3 * ROWS, second)
    terminal.succeeds("stop", "--drain", "-p", "drained", "compat-keyed")
    every = Counter((f"k{key}", n) for key in range(KEYS) for n in range(1, 3 * ROWS // KEYS + 1))
    assert numbers(finished(numbered)) == every, terminal.log()
    counts = [json.loads(line)["n"] for line in finished(folder / "counts")]
    assert sorted(counts) == sorted([2 * ROWS // KEYS] * KEYS + [ROWS // KEYS] * KEYS)
