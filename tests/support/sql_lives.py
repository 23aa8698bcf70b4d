"""Recorded scripts of Flink SQL that are killed and run again: scripts whose result is a table, and a life of one.

A query's rows are shown and then gone, so its script writes them into a table as changes instead. The input is in
several files, each of which is a checkpoint, so that there is state to go on from.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.failpoints import ENVIRONMENT
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession
from poundlock.storage import LocalStorage
from support.in_process import PATCHES, InProcess
from support.sql_scripts import CASES, written

__all__ = ["KILLABLE", "checkpoints_of", "kept_state", "life", "restartable", "tables_of"]

OUT = "killed_out"
FILES = 6
"""In how many files, and so checkpoints, the rows of a table come at most."""
_PRINTS = re.compile(r"'connector' *= *'print'(?:, *'(?:print-identifier|standard-error)' *= *'[^']*')*")


def restartable(id: str, root: Path) -> str:
    """Write the input of a recorded script; return the script, which writes its result into tables."""
    case = CASES[id]
    script = written(case, root, file_per_row=True, files=FILES)
    files = f"'connector' = 'filesystem', 'path' = '{root}/printed', 'format' = 'debezium-json'"
    script = _PRINTS.sub(lambda _: files, script)
    *_, last = statements_of(script)
    session = SqlSession()
    results = [session.take(each, script) for each in statements_of(script)]
    if not isinstance(results[-1], RunsQuery):
        return script
    assert isinstance(last, ParsedStatement)
    fields = results[-1].relation.fields
    columns = ", ".join(f"c{number} {str(f.type).replace(' NOT NULL', '')}" for number, f in enumerate(fields))
    table = f"CREATE TABLE {OUT} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{root}/{OUT}', 'format' = 'debezium-json')"
    before = script[: script.rindex(last.text)]
    return f"{before}{table};\nINSERT INTO {OUT} {last.text}"


def life(root: str, script: str, failpoints: str = "") -> None:
    """Run a script in this process, which is one of its own, to its end or until a failpoint kills it."""
    os.chdir(root)
    os.environ[ENVIRONMENT] = failpoints
    with open(os.devnull, "w") as nowhere:
        sys.stdout = nowhere
        for module, name, other in PATCHES:
            setattr(module, name, other)
        run_in_process(Path(root), script)


def run_in_process(root: Path, script: str, parallelism: int = 1, *, settings: Sequence[str] = ()) -> None:
    """Run a script whose tasks run here. `PATCHES` must be in their places.

    Args:
        settings: `KEY=VALUE` of the job, as behind -D.
    """
    given = load_settings([f"state_dir={root}/.state", *settings])
    runner = ScriptRunner(
        "script", lambda *_: None, lambda _: None, settings=given, parallelism=parallelism, spark=InProcess
    )
    runner.run(script)


def _checkpoint_folders(root: Path) -> list[Path]:
    return sorted((root / ".state/checkpoints").glob("*"))


def checkpoints_of(root: Path) -> int:
    """Return how many checkpoints the jobs of a script have decided."""
    newest = [Ledger(LocalStorage(str(folder))).newest() for folder in _checkpoint_folders(root)]
    return sum(each.checkpoint + 1 for each in newest if each is not None)


def kept_state(root: Path) -> bool:
    """Return whether a job of a script has written state."""
    return any(path.is_file() for folder in _checkpoint_folders(root) for path in (folder / "state").rglob("*"))


def tables_of(id: str, root: Path) -> dict[str, Counter[str]]:
    """Return the tables that a script has written, by their folders: of changes what they come to, of lines each line.

    Raises:
        AssertionError: a row was taken away that was not there.
    """
    given = {table["name"] for table in CASES[id]["tables"]}
    tables: dict[str, Counter[str]] = {}
    for folder in sorted(root.iterdir()):
        if folder.name.startswith(".") or folder.name in given or not folder.is_dir():
            continue
        table = tables[folder.name] = Counter()
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
                for line in path.read_text(encoding="utf-8").splitlines():
                    _count(table, f"{path.parent.relative_to(folder)} ", line)
        assert all(count >= 0 for count in table.values()), f"{folder.name}: a row was taken away that was not there"
        tables[folder.name] = +table
    return tables


def _count(table: Counter[str], place: str, line: str) -> None:
    change: Any = None
    if line.startswith("{") and '"op":' in line:
        change = json.loads(line)
    if not isinstance(change, dict) or change.get("op") not in ("c", "d"):
        table[place + line] += 1
    elif change["op"] == "c":
        table[place + json.dumps(change["after"])] += 1
    else:
        table[place + json.dumps(change["before"])] -= 1


KILLABLE = (
    "agg.all_null", "agg.distinct", "agg.distinct_filter", "agg.distinct_on_updates", "agg.group_by", "agg.having", "agg.retraction",
    "agg.rollup", "agg.statistics", "changelog.aggregate", "changelog.join", "dedup.keep_first", "dedup.keep_last", "dedup.then_count",
    "join.full", "join.inner", "join.interval", "join.left", "join.temporal", "join.theta", "join.three_way", "legacy.tumble",
    "match.quantifiers", "match.v_shape", "match.within", "nexmark.q11", "nexmark.q7", "order_by.rowtime", "over.lag_two", "over.range",
    "over.rows", "over.unbounded", "seed.color_count", "seed.count_streaming", "set.except", "set.intersect", "subquery.exists",
    "subquery.in", "subquery.not_in", "topn.global_limit", "topn.per_group", "topn.updating", "tvf.cumulate", "tvf.hop", "tvf.session",
    "tvf.topn_of_aggregate", "tvf.tumble", "tvf.window_dedup", "tvf.window_join", "tvf.window_topn",
)  # fmt: skip
"""Recorded scripts that keep state, of each operator some; they need no Spark but for their tasks."""
