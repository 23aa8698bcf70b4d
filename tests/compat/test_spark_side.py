"""What enters Spark: SQL and functions, a stream that Spark reads, a query of the user's own, a session of the user's own."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

JOBS = Path(__file__).parent / "jobs"
AT = 1_545_184_220_000  # 02:00 UTC and a bit, and an evening before that in New York
FILES, ROWS = 3, 20


def begin(terminal: Any, name: str) -> None:
    """Put a job and its input into the terminal's folder; no file comes while the job runs."""
    terminal.environment["PYSPARK_PYTHON"] = sys.executable
    shutil.copy(JOBS / name, terminal.folder)
    folder = terminal.folder / "in"
    folder.mkdir()
    for number in range(FILES):
        rows = [{"k": f"k{n % 4}", "n": n, "at": AT + n} for n in range(ROWS * number, ROWS * (number + 1))]
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_sql_and_a_function(terminal: Any, finished: Callable[[Path], list[str]]) -> None:
    begin(terminal, "segments.py")
    terminal.succeeds("run", "segments.py")
    totals: Counter[str] = Counter()
    days = set()
    for row in map(json.loads, finished(terminal.folder / "out")):
        totals[row["k"]] += row["total"]
        days.add(row["day"])
    expected: Counter[str] = Counter()
    for n in range(FILES * ROWS):
        expected[f"K{n % 4}"] += 2 * n if 2 * n % 3 else 0
    assert totals == expected, terminal.log()
    assert days == {"2018-12-19 01"}


def test_a_stream_that_spark_reads(terminal: Any, finished: Callable[[Path], list[str]]) -> None:
    begin(terminal, "stream.py")
    codes = []
    while not codes or (codes[-1] == -signal.SIGKILL and len(codes) < 4):
        point = f"decision.recorded:kill@2;once={terminal.folder / 'killed'}"
        codes.append(terminal.run("run", "stream.py", POUNDLOCK_FAILPOINTS=point))
    assert codes == [-signal.SIGKILL, 0], f"{codes}\n{terminal.log()}"
    rows = [json.loads(line) for line in finished(terminal.folder / "out")]
    assert sorted(row["n"] for row in rows) == list(range(FILES * ROWS)), terminal.log()
    numbers = Counter((row["k"], row["number"]) for row in rows)
    assert numbers == Counter((f"k{k}", n) for k in range(4) for n in range(1, FILES * ROWS // 4 + 1))


def test_a_query_of_the_users_own(terminal: Any, finished: Callable[[Path], list[str]]) -> None:
    begin(terminal, "own_query.py")
    point = f"decision.recorded:kill@2;once={terminal.folder / 'killed'}"
    assert terminal.run("own_query.py", POUNDLOCK_FAILPOINTS=point) == -signal.SIGKILL, terminal.log()
    assert terminal.run("own_query.py", POUNDLOCK_FAILPOINTS=point) == 0, terminal.log()
    rows = [json.loads(line)["n"] for line in finished(terminal.folder / "out")]
    assert sorted(rows) == list(range(FILES * ROWS)), terminal.log()


def test_a_session_of_the_users_own(terminal: Any, finished: Callable[[Path], list[str]]) -> None:
    begin(terminal, "notebook.py")
    assert terminal.run("notebook.py") == 0, terminal.log()
    previewed, hours, ended, status, own = json.loads((terminal.folder / "seen.json").read_text())
    assert (previewed, hours, ended, status) == (2, [1], True, "FINISHED"), terminal.log()
    assert own == 19, "the zone of the user's session is what it was"
    rows = [json.loads(line) for line in finished(terminal.folder / "out")]
    assert sorted((row["n"], row["hour"]) for row in rows) == [(n, 1) for n in range(FILES * ROWS)]
