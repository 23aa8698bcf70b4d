"""INSERT OVERWRITE: what was there is replaced once, also where the process dies at the decision, or behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint

pytestmark = pytest.mark.engine

SCRIPT = """
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE t (id INT, k STRING) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
CREATE TABLE whole (id INT, k STRING) WITH ('connector' = 'filesystem', 'path' = 'whole', 'format' = 'json');
CREATE TABLE parts (id INT, k STRING, z STRING) PARTITIONED BY (k, z) WITH ('connector' = 'filesystem', 'path' = 'parts', 'format' = 'json');
CREATE TABLE more WITH ('path' = 'more') LIKE parts;
EXECUTE STATEMENT SET BEGIN
INSERT OVERWRITE whole SELECT id, k FROM t;
INSERT OVERWRITE parts PARTITION (z = '1') SELECT id, k FROM t WHERE k <> 'c';
INSERT OVERWRITE more PARTITION (k = 'c', z = '2') SELECT id FROM t WHERE id > 100;
END
"""


def rows(folder: Path) -> dict[str, list[int]]:
    """Return the ids of each folder's files."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            name = path.parent.relative_to(folder).as_posix()
            found.setdefault(name, []).extend(json.loads(line)["id"] for line in path.read_text().splitlines())
    return {name: sorted(ids) for name, ids in found.items()}


def test_all_is_new_whenever_the_process_dies(tmp_path: Path) -> None:
    lines = [{"id": number, "k": "abc"[number % 3]} for number in range(6)]
    (tmp_path / "t").mkdir()
    (tmp_path / "t/x.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
    for old in (
        "whole/part-0-0",
        "parts/k=a/z=1/x",
        "parts/k=a/z=9/x",
        "parts/k=c/z=1/x",
        "more/k=c/z=2/x",
        "more/k=c/z=3/x",
    ):
        (tmp_path / old).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / old).write_text('{"id": -1}\n')
    (tmp_path / "script.sql").write_text(SCRIPT)
    died = 0
    deaths = [f"{Failpoint.DECISION_RECORDED.value}:kill@2", f"{Failpoint.SINK_COMMITTED.value}:kill", ""]
    for setting in ({"POUNDLOCK_FAILPOINTS": death} for death in deaths):
        command = [sys.executable, "-m", "poundlock", "sql", "script.sql", "-D", "state_dir=state"]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **setting}, capture_output=True, text=True, check=False
        )
        died += done.returncode != 0
    assert (died, done.returncode) == (2, 0), done.stderr[-2000:]
    assert rows(tmp_path / "whole") == {".": [0, 1, 2, 3, 4, 5]}
    assert rows(tmp_path / "parts") == {"k=a/z=1": [0, 3], "k=a/z=9": [-1], "k=b/z=1": [1, 4], "k=c/z=1": [-1]}
    assert rows(tmp_path / "more") == {"k=c/z=3": [-1]}
