"""Steps over changelogs in real jobs: aggregates of groups, aggregates of those, joins with what they give, over several checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from poundlock import DataStream, FileSink, FileSource, Job
from poundlock.driver.driver import run
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.stream.changelog_nodes import (
    AggregateCall,
    ChangelogTopNNode,
    GroupAggregateNode,
    JoinKind,
    RegularJoinNode,
)
from poundlock.stream.nodes import SortColumn
from support.changelog_scripts import Change, apply
from support.finished import visible
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

FILES = [
    [("x", 1), ("y", 5), ("x", 3), (None, 7)],
    [("x", 2), ("y", -5), ("z", 4)],
    [("x", 4), ("w", 1)],
]


def grouped(stream: DataStream, name: str, keys: list[str], *calls: AggregateCall, **options: Any) -> DataStream:
    return stream.then(GroupAggregateNode(name, [stream.node], [keys], [None], None, {}, calls, **options))


def joined(
    left: DataStream, right: DataStream, name: str, kind: JoinKind, keys: list[list[str]], **options: Any
) -> Any:
    nodes = [left.node, right.node]
    return left.then(RegularJoinNode(name, nodes, keys, [None, None], None, {}, kind=kind, **options))


def first_of(stream: DataStream, name: str, order: list[SortColumn], **options: Any) -> DataStream:
    return stream.then(ChangelogTopNNode(name, [stream.node], [[]], [None], None, {}, order_by=order, **options))


def call(function: Any, name: str, kind: pa.DataType, column: str | None = None, **options: Any) -> AggregateCall:
    return AggregateCall(function=function, name=name, type=kind, column=column, **options)


def less(pairs: pa.RecordBatch) -> pa.Array:
    return pc.less(pairs.column("total"), pairs.column("n"))


def table_of(folder: Path, columns: list[str]) -> Counter[tuple[Any, ...]]:
    """Return the table that changes in files make; files of one checkpoint are as one, in which what is added may come first."""
    rows = [json.loads(line) for path in visible(folder) for line in path.read_text().splitlines()]
    changes: list[Change] = [(row.get(ROW_KIND, "+I"), tuple(row.get(name) for name in columns)) for row in rows]
    table: Counter[tuple[Any, ...]] = Counter()
    apply(table, sorted(changes, key=lambda change: change[0] in ("-U", "-D")))
    return table


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_changes_of_groups_and_joins_make_their_tables(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(FILES):
        lines = (json.dumps({"k": key, "n": n}) for key, n in rows)
        (tmp_path / "in" / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))
    job = Job(
        "changes", checkpoint_interval="0 s", on_error="fail", parallelism=2, max_parallelism=4, runtime_mode=mode
    )
    source = FileSource(str(tmp_path / "in"), format="json", schema="k string, n bigint", max_files_per_checkpoint=1)
    rows = job.from_source(source, name="in")
    long = pa.int64()
    totals = grouped(rows, "totals", ["k"], call("sum", "total", long, "n"), call("count", "c", long))
    of_totals = grouped(
        totals, "of-totals", [], call("max", "most", long, "total"), call("count", "d", long, "total", distinct=True)
    )
    total_of = totals.with_column("key", "k").select("key", "total", ROW_KIND)
    made = {
        "totals": (totals, ["k", "total", "c"]),
        "of-totals": (of_totals, ["most", "d"]),
        "pairs": (
            joined(rows, total_of, "pairs", "inner", [["lower(k)"], ["lower(key)"]], condition=less),
            ["k", "n", "total"],
        ),
        "others": (joined(total_of, rows, "others", "left", [["total"], ["n"]]), ["key", "total", "k", "n"]),
        "top": (
            first_of(totals, "top", [SortColumn("total", descending=True)], first=2, last=3, rank="place"),
            ["k", "total", "c", "place"],
        ),
        "none": (joined(rows, total_of, "none", "anti", [["n"], ["total"]]), ["k", "n"]),
    }
    for name, (stream, _) in made.items():
        stream.sink_to(FileSink(str(tmp_path / name), format="json"), name=f"{name}-out")
    assert "group aggregate sum(n) AS total, count(*) AS c, by columns" in job.explain()
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    tables = {name: table_of(tmp_path / name, columns) for name, (_, columns) in made.items()}
    every = [row for rows in FILES for row in rows]
    sums = {key: sum(n for of, n in every if of == key) for key, _ in every}
    assert tables["totals"] == Counter((key, total, sum(of == key for of, _ in every)) for key, total in sums.items())
    assert tables["of-totals"] == Counter([(max(sums.values()), len(set(sums.values())))])
    assert tables["pairs"] == Counter((k, n, sums[k]) for k, n in every if k is not None and sums[k] < n)
    ranked = sorted(tables["totals"], key=lambda row: -row[1])
    assert tables["top"] == Counter((*row, place) for place, row in enumerate(ranked[1:3], 2))
    pairs = [(key, total, k, n) for key, total in sums.items() for k, n in every if n == total]
    alone = [(key, total, None, None) for key, total in sums.items() if total not in {n for _, n in every}]
    assert tables["others"] == Counter([*pairs, *alone])
    assert tables["none"] == Counter((k, n) for k, n in every if n not in sums.values())
