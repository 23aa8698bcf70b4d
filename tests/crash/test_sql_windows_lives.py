"""Rows of sessions, windows of moved clocks and aggregates of a user's own: a script that is killed goes on with the state that it had."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from support.forked_lives import KILLED, live
from support.sql_lives import checkpoints_of, kept_state, life
from support.sql_steps import FILES, write_files

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("POUNDLOCK_CRASH_SEED") or random.randrange(1 << 30))
BACK = datetime(2026, 10, 25, 1, tzinfo=UTC)
"""When the clocks of Berlin are put back to 2:00, where it is 3:00."""
OUT = {
    "sessions": "k STRING, n INT, b TIMESTAMP(3)",
    "hours": "k STRING, b TIMESTAMP(3), n BIGINT, s STRING",
    "around": "k STRING, n INT, s STRING, d STRING",
}
INSERTS = """
INSERT INTO sessions SELECT k, n, window_end FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTE));
INSERT INTO hours SELECT k, window_start, COUNT(*), listed(DISTINCT n) FROM
  TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end;
INSERT INTO around SELECT k, n, listed(n) OVER (PARTITION BY k ORDER BY ts), listed(DISTINCT n) OVER (PARTITION BY k ORDER BY ts) FROM t;
"""


def script(root: Path) -> str:
    """Write the rows, three of which are a checkpoint; return the script."""
    dice = random.Random(7)
    minutes = [dice.randint(20 * n - 180, 20 * n - 140) for n in range(24)]
    rows = [
        {"k": dice.choice("ab"), "n": n % 5, "ts": f"{BACK + timedelta(minutes=m):%Y-%m-%d %H:%M:%SZ}"}
        for n, m in enumerate(minutes)
    ]
    write_files(root / "t", [rows[n : n + 3] for n in range(0, len(rows), 3)])
    files = "'connector' = 'filesystem', 'format' = 'json'"
    tables = "".join(
        f"CREATE TABLE {name} ({of}) WITH ({files}, 'path' = '{root}/{name}');\n" for name, of in OUT.items()
    )
    return f"""SET 'table.local-time-zone' = 'Europe/Berlin';
CREATE FUNCTION listed AS 'support.sql_user_functions.Listed' LANGUAGE PYTHON;
CREATE TABLE t (k STRING, n INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '40' MINUTE) WITH ({FILES}, 'path' = '{root}/t');
{tables}EXECUTE STATEMENT SET BEGIN {INSERTS} END;"""


def written(root: Path) -> dict[str, Counter[str]]:
    return {
        name: Counter(
            line
            for path in (root / name).rglob("*")
            if path.is_file() and not path.name.startswith((".", "_"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
        for name in OUT
    }


def test_what_was_kept_of_windows_is_there_again(tmp_path: Path) -> None:
    print(f"seed {SEED}: POUNDLOCK_CRASH_SEED={SEED} gives the same kills")
    chance, calm, root = random.Random(SEED), tmp_path / "calm", tmp_path / "disturbed"
    assert live(life, str(calm), _made(calm)) == 0
    assert all(written(calm).values())
    text, most = _made(root), checkpoints_of(calm)
    for _ in range(2):
        at = chance.choice([Failpoint.CHECKPOINT_ENTERED, Failpoint.PREPARE_VERIFIED, Failpoint.DECISION_RECORDED])
        assert live(life, str(root), text, f"{at.value}:kill@{chance.randint(2, 4)}") == KILLED
    assert kept_state(root)
    assert 0 < checkpoints_of(root) < most
    assert live(life, str(root), text) == 0
    assert written(root) == written(calm)


def _made(root: Path) -> str:
    root.mkdir()
    return script(root)
