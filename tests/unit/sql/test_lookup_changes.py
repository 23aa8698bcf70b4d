"""Lookup joins of rows that change: what is taken back is what came out, though the table has other rows each time that it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import DefinitionError
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.lowering.lookup_changes import LookupRowsProgram
from poundlock.sql.lowering.lookup_rows import LookupJoinProgram
from poundlock.sql.lowering.programs import CalcProgram
from poundlock.sql.relations.changes import upsert_key
from poundlock.sql.relations.tree import LogicalLookupJoin
from poundlock.sql.running.jobs import JobBuilder, new_job
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession
from support.changing_table import ChangingTable
from support.in_process import PATCHES
from support.sql_steps import FILES, answered, write_files

TABLES = """
CREATE TABLE t (k INT, v INT) WITH ({files}, 'path' = '{root}/t');
CREATE TABLE d (id INT, version INT, word STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 'd');
"""
COUNTED = "(SELECT k, SUM(v) AS total, PROCTIME() AS pt FROM t GROUP BY k HAVING COUNT(*) < 4)"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def lookup(builder: JobBuilder, join: LogicalLookupJoin) -> ChangingTable:
        fields = join.table.fields
        return ChangingTable(tuple(f.column for f in fields), tuple(f.type.arrow for f in fields), tmp_path / "asked")

    for patch in PATCHES:
        monkeypatch.setattr(*patch)
    monkeypatch.setattr(JobBuilder, "_lookup", lookup)
    return tmp_path


def asked(root: Path) -> list[int]:
    """Return the keys that the table was asked for, in their order."""
    return [int(key) for key in (root / "asked").read_text("utf-8").splitlines()]


Change = tuple[str, tuple[Any, ...]]


def changes(root: Path, query: str, files: Sequence[Sequence[tuple[int, int]]], settings: str = "") -> Counter[Change]:
    write_files(root / "t", [[{"k": k, "v": v} for k, v in each] for each in files])
    return answered(root, settings + TABLES.format(files=FILES, root=root) + query)


def final(some: Counter[Change]) -> Counter[tuple[Any, ...]]:
    """Return the rows that are left; what is taken back was there, and nothing else."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for (kind, row), count in some.items():
        rows[row] += count if kind in ("+I", "+U") else -count
    assert all(count >= 0 for count in rows.values()), f"taken back, and never came: {rows}"
    return +rows


FOUR = [[(1, 1), (2, 1), (3, 1)], [(1, 5), (3, 2)], [(2, 7)], [(1, 1), (2, 1)], [(1, 1), (2, 0)], [(2, 0)]]
"""After the last one 1 and 2 have four rows and more, and are no row of the query any more."""


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("last", [1, 4, 6])
def test_what_came_out_is_taken_back_by_key(root: Path, kind: str, last: int) -> None:
    files = FOUR[:last]
    got = changes(
        root,
        f"SELECT o.k, o.total, d.id, d.version, d.word FROM {COUNTED} AS o {kind} d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id",
        files,
    )
    rows = [row for each in files for row in each]
    left = {
        key: sum(v for k, v in rows if k == key)
        for key in {k for k, _ in rows}
        if sum(1 for k, _ in rows if k == key) < 4
    }
    table = final(got)
    wanted = Counter({(key, total, key): key for key, total in left.items() if key < 3})
    if kind == "LEFT JOIN":
        wanted += Counter({(key, total, None): 1 for key, total in left.items() if key >= 3})
    assert Counter(row[:3] for row in table.elements()) == wanted
    assert all(word == (None if version is None else f"word {version}") for *_, version, word in table)
    questions = asked(root)
    newest = {key: number for number, key in enumerate(questions, 1)}
    assert all(version == newest[key] for key, _, id, version, _ in table if id is not None), (
        "the answer to the last row"
    )
    removed = {1: 0, 4: 0, 6: 3}[last]  # 1 and 2 with the last but one file, and 2 is nothing with the last one
    assert len(questions) == sum(len({k for k, _ in each}) for each in files) - removed, "what goes is not asked for"


def test_a_row_that_replaces_another_comes_as_an_update(root: Path) -> None:
    query = f"SELECT o.k, o.total FROM {COUNTED} AS o JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id"
    got = changes(root, query, [[(1, 1)], [(1, 2)]])
    assert got == Counter({("+I", (1, 1)): 1, ("-U", (1, 1)): 1, ("+U", (1, 3)): 1})


def test_rows_without_a_key_are_counted(root: Path) -> None:
    pairs = "(SELECT a.k, b.v, PROCTIME() AS pt FROM t AS a LEFT JOIN t AS b ON a.k = b.k AND b.v > 1)"
    files = [[(1, 1), (1, 1), (3, 0)], [(2, 1)], [(1, 2)], [(2, 2), (3, 3)]]
    got = changes(
        root,
        f"SELECT o.k, o.v, d.version FROM {pairs} AS o LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id",
        files,
    )
    rows = [row for each in files for row in each]
    left: Counter[tuple[int, int | None]] = Counter()
    for k, _ in rows:
        for each in [v for other, v in rows if other == k and v > 1] or [None]:
            left[k, each] += max(1, k if k < 3 else 1)
    assert Counter(row[:2] for row in final(got).elements()) == left


def test_one_row_of_all(root: Path) -> None:
    whole = "(SELECT MAX(k) AS k, COUNT(*) AS n, PROCTIME() AS pt FROM t)"
    query = f"SELECT o.n, d.version FROM {whole} AS o LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id"
    got = changes(root, query, [[(1, 1)], [(0, 1)], [(2, 1)], [(3, 1)]])
    assert final(got) == Counter({(4, None): 1})
    assert asked(root) == [1, 1, 2, 3]


def test_in_batch_mode_each_row_comes_once(root: Path) -> None:
    query = f"SELECT o.k, o.total, d.id FROM {COUNTED} AS o JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id"
    write_files(root / "t", [[{"k": 1, "v": 1}], [{"k": 2, "v": 1}, {"k": 1, "v": 2}]])
    options = FILES.rpartition(",")[0]
    mode = "SET 'execution.runtime-mode' = 'batch';"
    got = answered(root, mode + TABLES.format(files=options, root=root) + query)
    assert got == Counter({("+I", (1, 3, 1)): 1, ("+I", (2, 1, 2)): 2})


def test_a_second_join_and_an_aggregate_stand_behind_it(root: Path) -> None:
    query = f"""SELECT x.k, COUNT(*), SUM(x.total) FROM (
        SELECT o.k, o.total, e.version FROM {COUNTED} AS o
        LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id
        LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS e ON d.id = e.id AND e.version > d.version) AS x GROUP BY x.k"""
    assert final(changes(root, query, FOUR[:3])) == Counter({(1, 1, 6): 1, (2, 4, 16 * 2): 1, (3, 1, 3): 1})


# --- what is planned ---------------------------------------------------------------------------------------------------


def planned(query: str, *, reads_all: bool = False) -> Any:
    session, script = SqlSession(), TABLES.format(files=FILES, root="x") + query
    result: Any = None
    for statement in statements_of(script):
        result = session.take(statement, script)
    assert isinstance(result, RunsQuery)
    builder = JobBuilder(new_job("check", {}), session.zone, {}, reads_all=reads_all)
    (relation,) = builder._wanted([result.relation])
    builder._stream(relation)
    return relation


def test_a_join_by_the_primary_key_keeps_the_key_of_its_rows() -> None:
    known = planned(f"SELECT o.k, d.word FROM {COUNTED} AS o LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id")
    key = upsert_key(known)
    assert key is not None
    assert [known.field(column).name for column in key] == ["k"]
    others = planned(
        f"SELECT o.k, d.word FROM {COUNTED} AS o LEFT JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.version"
    )
    assert upsert_key(others) is None, "a key may have several rows then"


def test_the_clock_of_rows_without_a_key_is_refused() -> None:
    pairs = "(SELECT a.k, b.v, PROCTIME() AS pt FROM t AS a LEFT JOIN t AS b ON a.k = b.k)"
    join = f"FROM {pairs} AS o JOIN d FOR SYSTEM_TIME AS OF o.pt AS d ON o.k = d.id"
    planned(f"SELECT o.k, d.word {join}")
    planned(f"SELECT o.k, d.word {join} WHERE d.version > 1", reads_all=True)  # as in a job of Python
    with pytest.raises(DefinitionError, match="that gives pt, the time of the clock, of rows that change"):
        planned(f"SELECT o.k, o.pt, d.word {join}")


def test_updates_are_looked_up_and_what_they_replace_is_left_out(tmp_path: Path) -> None:
    context = EvaluationContext(SqlSession().zone)
    pairs = LookupJoinProgram(
        ChangingTable(("id",), (pa.int32(),), tmp_path / "asked"),
        (("k", "id"),),
        ("k",),
        CalcProgram((), context),
        (),
        ("id",),
        False,
        None,
        context,
    )
    kind = pa.list_(pa.struct([("id", pa.int32())]))
    rows = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([1, 1, 2, 3, None, None, 2, 5], pa.int32()),
            "n": pa.array(range(8), pa.int32()),
            ROW_KIND: ["-U", "+U", "-U", "+U", "-U", "+U", "-D", "-U"],
        }
    )
    made, places = LookupRowsProgram(pairs, ("k", "n"), "found", kind, ("k",)).run(rows)
    assert [tuple(row.values()) for row in made.to_pylist()] == [
        (1, 1, [{"id": 1}], "+I"), (2, 2, [], "-D"), (3, 3, [], "+I"), (None, 5, [], "+I"), (2, 6, [], "-D"), (5, 7, [], "-D"),
    ]  # fmt: skip
    assert places is not None
    assert places.tolist() == [1, 2, 3, 5, 6, 7]
    assert asked(tmp_path) == [1, 3]
