"""A keyed job is killed in mid-checkpoint, and its output is that of a model computed apart."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

JOB = Path(__file__).parent / "jobs" / "keyed.py"
BASE, FILES, ROWS, KEYS, WINDOW_MS = 1_545_184_220_000, 6, 40, 7, 10_000


def write_input(folder: Path, first: int, count: int) -> None:
    """Write files of rows, five seconds of event time each; each file appears whole, and times never fall back."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        lines = [
            json.dumps({"k": f"k{(row * 3 + number) % KEYS}", "at": BASE + 5_000 * number + 100 * row}) + "\n"
            for row in range(ROWS)
        ]
        hidden = folder / f".{number:05d}.jsonl"
        hidden.write_text("".join(lines))
        hidden.rename(folder / f"{number:05d}.jsonl")


def expected(folder: Path) -> tuple[Counter[Any], Counter[Any]]:
    """Return what has to come out of all files: (key, number) of rows, and (key, count, sum of times) of windows."""
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    keys = Counter(row["k"] for row in rows)
    windows: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        windows.setdefault((row["k"], row["at"] // WINDOW_MS), []).append(row["at"])
    numbered = Counter((key, n) for key, count in keys.items() for n in range(1, count + 1))
    return numbered, Counter((key, len(times), sum(times)) for (key, _), times in windows.items())


def read(lines: list[str], *names: str) -> Counter[Any]:
    return Counter(tuple(json.loads(line)[name] for name in names) for line in lines)


@pytest.mark.parametrize("point", ["sink.prepared", "decision.recorded"])
def test_a_keyed_job_that_is_killed(terminal: Any, finished: Callable[[Path], list[str]], point: str) -> None:
    shutil.copy(JOB, terminal.folder / "job.py")
    write_input(terminal.folder / "in", 0, FILES)
    mark = terminal.folder / "killed"
    setting = f"{point}:kill@3;once={mark}"
    codes = []
    while not codes or (codes[-1] == -signal.SIGKILL and len(codes) < 5):
        codes.append(terminal.run("run", "job.py", POUNDLOCK_FAILPOINTS=setting))
    assert mark.exists(), f"nothing was killed\n{terminal.log()}"
    assert codes[-1] == 0, f"{codes}\n{terminal.log()}"
    numbered, counts = expected(terminal.folder / "in")
    assert read(finished(terminal.folder / "numbered"), "k", "n") == numbered
    assert read(finished(terminal.folder / "counts"), "k", "n", "total") == counts
