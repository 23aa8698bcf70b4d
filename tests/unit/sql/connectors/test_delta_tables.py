"""Delta tables in SQL: what their options mean, and jobs that write and read them, whose tasks run here."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table

from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.delta import DeltaTable
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from support.delta_tables import rows_of
from support.in_process import PATCHES
from support.sql_lives import run_in_process
from support.table_formats import definition_of

DAY = datetime.date(2026, 1, 5)
ORDERS = """
CREATE TABLE orders (id INT, who STRING, amount DECIMAL(10, 2), `day` DATE)
WITH ('connector' = 'filesystem', 'path' = '{root}/orders', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');
"""


def context(columns: str, *, is_updating: bool = False, **options: str) -> TableContext:
    given = {"connector": "delta", "table-path": "/lake/t", **{k.replace("__", "."): v for k, v in options.items()}}
    written = ", ".join(f"'{name}' = '{value}'" for name, value in given.items() if value)
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ({written})")
    fields = tuple(Field(c.name, f"{c.name}_x", c.type) for c in definition.columns)  # type: ignore[union-attr]
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False, is_updating=is_updating)


def test_what_the_options_of_a_source_mean() -> None:
    source: Any = DeltaTable().source(context("id INT, n INT", versionAsOf="7")).source
    assert (source.path, source.columns, source.version_as_of, source.watch) == ("/lake/t", ("id", "n"), 7, False)
    streaming = context(
        "id INT", mode="streaming", startingVersion="latest", updateCheckIntervalMillis="250", ignoreChanges="true"
    )
    source = DeltaTable().source(streaming).source
    assert (source.watch, source.starting_version, source.ignore_changes) == (True, "latest", True)
    assert source.discover_every == datetime.timedelta(milliseconds=250)
    feed = DeltaTable().source(context("id INT", mode="streaming", readChangeFeed="true"))
    assert feed.is_updating
    changes = ["insert", "update_preimage", "update_postimage", "delete"]
    rows = pa.record_batch({"id": pa.array([1, 1, 1, 1], pa.int32()), "_change_type": changes})
    made, places = feed.program.run(rows)  # type: ignore[union-attr]
    assert made.column(1).to_pylist() == ["+I", "-U", "+U", "-D"]
    assert places is None


def test_what_the_options_of_a_sink_mean() -> None:
    made = DeltaTable().sink(context("id INT, n INT", mergeSchema="true", delta__appendOnly="true"), overwrite=False)
    assert (made.sink.key, made.sink.merge_schema, made.takes) == (None, True, "append")
    assert made.sink.properties == {"delta.appendOnly": "true"}
    assert made.sink.schema == "id int, n int"
    keyed = DeltaTable().sink(
        context("id INT, n INT, PRIMARY KEY (id) NOT ENFORCED", is_updating=True), overwrite=False
    )
    assert (keyed.sink.key, keyed.sink.delete_when, keyed.takes) == (("id",), "poundlock_deleted", "upsert")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"table-path": ""}, "no option 'table-path'"),
        ({"mode": "both"}, "'mode' = 'both' cannot be"),
        ({"startingVersion": "3"}, "'startingVersion' has no effect where one version is read"),
        ({"mode": "streaming", "startingVersion": "x"}, "'startingVersion' = 'x' cannot be"),
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "both say where to begin"),
        ({"versionAsof": "1"}, "no option 'versionAsof'"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what) as error:
        DeltaTable().source(context("id INT", **options))
    assert error.value.next


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match="takes no INSERT OVERWRITE"):
        DeltaTable().sink(context("id INT"), overwrite=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files of orders, and jobs that run in this process."""
    for patch in PATCHES:
        monkeypatch.setattr(*patch)
    folder = tmp_path / "orders"
    folder.mkdir()
    lines = [f'{{"id": {n}, "who": "w{n % 3}", "amount": {n}.50, "day": "2026-01-0{5 + n % 2}"}}\n' for n in range(8)]
    for number in range(2):
        (folder / f"{number}.json").write_text("".join(lines[number * 4 : number * 4 + 4]))
    return tmp_path


def test_rows_are_written_to_partitions_and_read_again(root: Path) -> None:
    lake = f"""
    CREATE TABLE lake (id INT, who STRING, amount DECIMAL(10, 2), `day` DATE) PARTITIONED BY (`day`)
    WITH ('connector' = 'delta', 'table-path' = '{root}/lake');
    """
    run_in_process(root, f"{ORDERS.format(root=root)}{lake} INSERT INTO lake SELECT * FROM orders;")
    rows = rows_of(str(root / "lake"), ["id"])
    assert [row["id"] for row in rows] == list(range(8))
    assert (str(rows[3]["amount"]), rows[0]["day"]) == ("3.50", DAY)
    assert Table(str(root / "lake")).metadata().partition_columns == ["day"]
    copy = f"CREATE TABLE copy (id BIGINT, n INT) WITH ('connector' = 'delta', 'table-path' = '{root}/copy');"
    run_in_process(
        root, f"{lake}{copy} INSERT INTO copy SELECT id, CAST(amount AS INT) FROM lake WHERE `day` = DATE '2026-01-06';"
    )
    assert [(row["id"], row["n"]) for row in rows_of(str(root / "copy"), ["id"])] == [(1, 1), (3, 3), (5, 5), (7, 7)]


def test_a_query_that_changes_is_merged_by_its_key(root: Path) -> None:
    totals = f"""
    CREATE TABLE totals (who STRING, n BIGINT, PRIMARY KEY (who) NOT ENFORCED)
    WITH ('connector' = 'delta', 'table-path' = '{root}/totals');
    """
    query = "INSERT INTO totals SELECT who, COUNT(*) FROM orders GROUP BY who;"
    run_in_process(root, f"{ORDERS.format(root=root)}{totals}{query}")
    assert {row["who"]: row["n"] for row in rows_of(str(root / "totals"))} == {"w0": 3, "w1": 3, "w2": 2}
    assert Table(str(root / "totals")).version() == 2, "a commit for each checkpoint"
