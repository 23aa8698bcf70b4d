"""Recorded scripts of Flink SQL that keep state are killed at steps of their checkpoints, and run again: the tables are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from poundlock.failpoints import ENVIRONMENT, Failpoint
from poundlock.testing.job_process import TAG, end_tagged, new_tag
from support.forked_lives import KILLED, live
from support.sql_lives import KILLABLE, checkpoints_of, kept_state, life, restartable, tables_of

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("POUNDLOCK_CRASH_SEED") or random.randrange(1 << 30))
CHOSEN = ("agg.distinct_on_updates", "join.inner", "over.lag_two", "tvf.cumulate")
"""The scripts of an ordinary run, with a kind of state each."""
REST = sorted(set(KILLABLE) - set(CHOSEN))
SCRIPT = "script.sql"
EACH = (
    Failpoint.CHECKPOINT_ENTERED, Failpoint.PREPARE_VERIFIED, Failpoint.DECISION_RECORDED, Failpoint.CHECKPOINT_DONE,
)  # fmt: skip
"""The steps that the driver passes once in each checkpoint."""


@pytest.fixture(autouse=True)
def _seeded() -> None:
    print(f"seed {SEED}: POUNDLOCK_CRASH_SEED={SEED} gives the same kills")


def undisturbed(id: str, root: Path) -> Path:
    """Run a script without kills; return its folder."""
    root.mkdir()
    (root / SCRIPT).write_text(restartable(id, root), encoding="utf-8")
    assert live(life, str(root), (root / SCRIPT).read_text(encoding="utf-8")) == 0
    return root


@pytest.mark.parametrize("id", [*CHOSEN, *(pytest.param(id, marks=pytest.mark.torture) for id in REST)])
def test_a_script_that_is_killed_goes_on_where_it_was(id: str, tmp_path: Path) -> None:
    chance, root = random.Random(f"{id} {SEED}"), tmp_path / "disturbed"
    calm = undisturbed(id, tmp_path / "calm")
    most = checkpoints_of(calm)
    if most < 4 or not kept_state(calm):
        pytest.skip("too few checkpoints, or no state")
    root.mkdir()
    script = restartable(id, root)
    first = f"{chance.choice(EACH).value}:kill@{chance.randint(2, most - 2)}"
    second = (
        f"{chance.choice(list(Failpoint)).value}:{chance.choice(['kill', 'kill', 'enospc'])}@{chance.randint(1, 2)}"
    )
    deaths = [(each, live(life, str(root), script, each), checkpoints_of(root)) for each in (first, second)]
    assert deaths[0][1] == KILLED, deaths
    assert 0 < deaths[0][2] < most, f"it has no state to go on from, or nothing to do: {deaths}"
    assert deaths[1][1] in (0, KILLED), deaths
    assert live(life, str(root), script) == 0
    assert checkpoints_of(root) == most, deaths
    assert tables_of(id, root) == tables_of(id, calm), deaths


def test_a_script_whose_checkpoint_is_lost_begins_again(tmp_path: Path) -> None:
    """The control: what keeps a script from doing all once more is its checkpoint alone."""
    id, root = "agg.group_by", tmp_path / "calm"
    once = tables_of(id, undisturbed(id, root))
    script = (root / SCRIPT).read_text(encoding="utf-8")
    assert live(life, str(root), script) == 0
    assert tables_of(id, root) == once
    shutil.rmtree(root / ".state")
    assert live(life, str(root), script) == 0
    assert tables_of(id, root) != once


def test_a_script_that_runs_twice_at_once_is_done_once(tmp_path: Path) -> None:
    """The one that comes later is refused, and does no harm."""
    id, root = "agg.group_by", tmp_path / "disturbed"
    calm = undisturbed(id, tmp_path / "calm")
    root.mkdir()
    script = restartable(id, root)
    codes: list[int] = []
    waits = f"{Failpoint.PREPARE_VERIFIED.value}:sleep@3"
    other = threading.Thread(target=lambda: codes.append(live(life, str(root), script, waits)))
    other.start()
    while checkpoints_of(root) < 2:
        other.join(0.1)
        assert other.is_alive(), codes
    assert live(life, str(root), script) == 1
    other.join()
    assert codes == [0]
    assert tables_of(id, root) == tables_of(id, calm)


ON_SPARK = "topn.updating"


@pytest.mark.parametrize(
    "id", [ON_SPARK, *(pytest.param(id, marks=pytest.mark.torture) for id in KILLABLE if id != ON_SPARK)]
)
def test_the_command_line_goes_on_where_it_was_killed(id: str, tmp_path: Path) -> None:
    """All of it: `poundlock sql`, its JVM, and the tasks."""
    chance, root, tag = random.Random(f"spark {id} {SEED}"), tmp_path / "disturbed", new_tag()
    calm = undisturbed(id, tmp_path / "calm")
    root.mkdir()
    (root / SCRIPT).write_text(restartable(id, root), encoding="utf-8")
    environment = {**os.environ, "POUNDLOCK_STATE_DIR": f"{root}/.state", "POUNDLOCK_MASTER": "local[2]", TAG: tag}
    point = chance.choice((Failpoint.PREPARE_VERIFIED, Failpoint.DECISION_RECORDED, Failpoint.CHECKPOINT_DONE))
    deaths = f"{point.value}:kill@{chance.randint(2, checkpoints_of(calm) - 1)};once={root}/.hit"
    try:
        for code in (KILLED, 0):
            done = subprocess.run(
                [sys.executable, "-m", "poundlock.cli.main", "sql", "script.sql", "--parallelism", "1"],
                cwd=root, env={**environment, ENVIRONMENT: deaths}, capture_output=True, text=True, timeout=600,
            )  # fmt: skip
            assert done.returncode == code, done.stderr
            assert "Traceback" not in done.stderr
    finally:
        end_tagged(tag)
    assert tables_of(id, root) == tables_of(id, calm), deaths
