"""The metrics of a job's functions are exact however often its processes die: each row counts once, where its checkpoint is decided."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from poundlock.metrics.user_totals import HistogramValue
from poundlock.storage import LocalStorage
from support.finished import rows
from support.lives import Lives, failpoint_setting, folders_of

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/user_metrics.py"
ROWS = 50  # of a file, which is a checkpoint
# A task that has counted and dies, and a driver with the sums decided and not committed.
SOME = (Failpoint.SINK_PREPARED, Failpoint.DECISION_RECORDED)


def write(folder: Path, seed: int, files: int) -> None:
    folder.mkdir()
    made = random.Random(seed)
    for number in range(files):
        lines = [{"k": f"k{made.randrange(7)}", "id": number * ROWS + i} for i in range(ROWS)]
        (folder / f"{number:02d}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    ("points", "files"),
    [
        pytest.param(SOME, 4, id="some"),
        # Behind its decision a checkpoint is not repeated, so each such point needs checkpoints of its own to die twice.
        pytest.param(tuple(Failpoint), 12, id="every", marks=pytest.mark.torture),
    ],
)
def test_each_row_counts_once_however_often_the_job_dies(
    tmp_path: Path, points: Sequence[Failpoint], files: int
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    write(tmp_path / "in", seed, files)
    deaths = failpoint_setting("kill", tmp_path / "hit", times=2, points=points)
    with Lives(JOB, environment=folders_of(tmp_path, tmp_path / "in"), folder=tmp_path) as lives:
        exits = lives.run(POUNDLOCK_FAILPOINTS=deaths)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == {point.value for point in points}
    assert len(exits) > 1
    assert Counter(row["k"] for row in rows(tmp_path / "out")).total() == files * ROWS
    ledger = Ledger(LocalStorage(f"{tmp_path}/checkpoints"))
    newest = next(record for record in ledger.back(ledger.newest()) if record.metrics is not None)  # type: ignore[arg-type]
    metrics = newest.metrics
    assert metrics is not None
    assert metrics.counters == {"count": {"seen": files * ROWS}, "per-key": {"keyed": files * ROWS}}, f"seed {seed}"
    assert metrics.gauges["count"]["newest"].value == files * ROWS - 1
    assert metrics.histograms["count"]["sizes"] == HistogramValue(
        (10.0, 100.0, 1000.0), (11, 90, files * ROWS - 101, 0), sum(range(files * ROWS))
    )
