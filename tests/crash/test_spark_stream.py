"""A job whose rows a query of Spark's reads dies at every step of a checkpoint and of a batch, and loses and repeats nothing."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint, StreamFailpoint
from support.finished import lines_by_sink
from support.lives import Lives, failpoint_setting, folders_of

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/spark_stream.py"
BASE = 1_545_184_220_000
ROWS = 40
SOME = [StreamFailpoint.WRITTEN]
EVERY = [*Failpoint, *StreamFailpoint]


def write_input(folder: Path, seed: int, files: int) -> Counter[str]:
    """Write files that go on by some seconds each, rows in no order; return the rows."""
    made, rows = random.Random(seed), Counter[str]()
    folder.mkdir()
    for number in range(files):
        lines = [
            json.dumps({"k": f"k{made.randrange(5)}", "at": BASE + 5_000 * number + made.randrange(5_000)}, separators=(",", ":"))
            for _ in range(ROWS)
        ]  # fmt: skip
        path = folder / f"{number:05d}.json"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (BASE // 1000 + number,) * 2)  # the order in which Spark reads them
        rows.update(lines)
    return rows


@pytest.mark.parametrize(
    ("points", "files"),
    [pytest.param(SOME, 6, id="some"), pytest.param(EVERY, 12, id="every", marks=pytest.mark.torture)],
)
def test_killed_at_steps_of_a_checkpoint_and_of_a_batch(
    tmp_path: Path, points: list[Failpoint | StreamFailpoint], files: int
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rows = write_input(tmp_path / "in", seed, files)
    calm = tmp_path / "calm"
    calm.mkdir()
    with Lives(JOB, environment=folders_of(calm, tmp_path / "in"), folder=calm) as lives:
        assert lives.run() == [0]
    wanted = lines_by_sink(calm / "out")
    assert wanted["rows"] == rows
    ours = {(row["k"], row["end"]): row["n"] for row in map(json.loads, wanted["counts"])}
    sparks = {(row["k"], row["end"]): row["n"] for row in map(json.loads, wanted["sparks"])}
    assert sum(ours.values()) == files * ROWS
    assert len(sparks) >= files
    assert sparks.items() <= ours.items(), "Spark leaves the windows open that the end of the input would close"

    deaths = failpoint_setting("kill", tmp_path / "hit", times=2, points=points)
    with Lives(JOB, environment=folders_of(tmp_path, tmp_path / "in"), folder=tmp_path) as lives:
        lives.run(POUNDLOCK_FAILPOINTS=deaths)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == {point.value for point in points}
    assert lines_by_sink(tmp_path / "out") == wanted, f"seed {seed}"
