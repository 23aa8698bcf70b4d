"""A job dies while windows are open, and gives what it would have given: each window once, the same rows late."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from poundlock.operators.time_values import MAX, MIN
from poundlock.storage import LocalStorage
from support.lives import Lives, failpoint_setting

pytestmark = pytest.mark.crash

BASE, SIZE, DELAY = 1_545_184_220_000, 10_000, 5_000
# Each file goes on by half a window, and brings rows of a window or two before: some in time, some late.
FILES = [
    [(f"k{i % 3}", 5_000 * number + at) for i, at in enumerate((0, 1_500, 4_999, -2_000, -9_000, -21_000))]
    for number in range(5, 13)
]


def expected() -> tuple[Counter[tuple[str, int]], int]:
    """Return (key, end of the window) -> rows, and how many rows are late: those whose window had ended with the file before."""
    counts: Counter[tuple[str, int]] = Counter()
    late, behind, greatest = 0, MIN, MIN
    for rows in FILES:
        for key, at in rows:
            end = at // SIZE * SIZE + SIZE
            if end - 1 <= behind:
                late += 1
            else:
                counts[key, end] += 1
        greatest = max(greatest, *(at for _, at in rows))
        behind = greatest - DELAY - 1
    return counts, late


# Not decided yet; decided and not committed; committed.
POINTS = [Failpoint.SINK_PREPARED, Failpoint.DECISION_RECORDED, Failpoint.CHECKPOINT_DONE]


@pytest.mark.torture
def test_a_job_killed_with_windows_open_gives_what_it_would_have_given(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(FILES):
        lines = [json.dumps({"k": key, "at": BASE + at}) for key, at in rows]
        (tmp_path / f"in/{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    environment = {f"CRASH_{name}": str(tmp_path / name.lower()) for name in ("IN", "OUT", "CHECKPOINTS")}
    deaths = failpoint_setting("kill", tmp_path / "hit", times=3, points=POINTS)
    with Lives(Path(__file__).parent / "jobs/windows.py", environment=environment, folder=tmp_path) as lives:
        lives.run(POUNDLOCK_FAILPOINTS=deaths)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == {point.value for point in POINTS}

    counts, late = expected()
    assert late > 0
    found: Counter[tuple[str, int]] = Counter()
    for path in (tmp_path / "out").rglob("part-*"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = row["k"], row["end"] - BASE
            assert key not in found, "a window is written once"
            found[key] = row["n"]
    assert found == counts
    records = [r for r in Ledger(LocalStorage(str(tmp_path / "checkpoints"))) if r.occasion == "checkpoint"]
    assert sum(r.sinks["out"].counts.late for r in records) == late
    marks = [r.watermarks.watermark for r in records if r.watermarks is not None]
    greatest = [max(at for _, at in rows) for rows in FILES]
    assert marks[: len(FILES) - 1] == [BASE + at - DELAY - 1 for at in greatest[:-1]]
    assert marks[len(FILES) - 1 :] == [MAX]
