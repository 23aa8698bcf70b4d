"""DeltaSink on a local table: one commit a decision, however often it is asked for, and whatever others do to the table."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import CommitUnknown, DeltaSink
from poundlock.checkpoint.participant import Occasion, Prepared
from poundlock.connectors.delta.loading import open_folder, open_table
from poundlock.connectors.delta.log import read_commit
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.formats.chunk import Batch
from support.delta_tables import SinkRig, rows_of
from support.duckdb_reader import duckdb_query

SCHEMA = "id bigint, day string, word string"


def made(tmp_path: Path, **settings: Any) -> SinkRig:
    return SinkRig(DeltaSink(str(tmp_path / "t"), **{"schema": SCHEMA, **settings}))


def table(rig: SinkRig) -> Any:
    return open_table(open_folder(rig.sink.path))


def ids(rig: SinkRig) -> list[int]:
    return [row["id"] for row in rows_of(rig.sink.path, ["id"])]


def rows(first: int, count: int = 3) -> dict[str, Any]:
    numbers = range(first, first + count)
    return {"id": list(numbers), "day": [f"d{n % 2}" for n in numbers], "word": [f"w{n}" for n in numbers]}


def parquet(rig: SinkRig) -> list[str]:
    return sorted(entry.path for entry in rig.sink.storage().list() if entry.path.endswith(".parquet"))


def test_all_tasks_of_a_checkpoint_are_one_commit_and_a_repetition_finds_it(tmp_path: Path) -> None:
    rig = made(tmp_path, partition_by=["day"])
    committables = rig.decide(rows(0), rows(3))
    assert len(committables) == 1
    assert ids(rig) == [], "nothing is there before the decision"
    for _ in range(3):
        rig.sink.commit(committables[0])
    assert ids(rig) == [0, 1, 2, 3, 4, 5]
    assert table(rig).version() == 1
    rig.end(rows(6))
    rig.sink.commit(committables[0])  # by a driver that slept
    assert ids(rig) == list(range(9))
    assert table(rig).transaction_version(rig.sink.app) == 1


def test_the_log_has_partitions_and_statistics(tmp_path: Path) -> None:
    columns = "id bigint, day date, at timestamp, n decimal(9,2), t string, f double, inner struct<a: int>"
    rig = made(tmp_path, schema=columns, partition_by=["day", "at"])
    day, at = datetime.date(2026, 2, 28), datetime.datetime(2026, 2, 28, 1, 2, 3, 4, datetime.UTC)
    rig.end({
        "id": [1, 5, None], "day": [day, day, day], "at": [at, at, at], "n": [decimal.Decimal("1.25"), None, decimal.Decimal("-3.00")],
        "t": ["x" * 40, "a", None], "f": [1.0, float("nan"), 2.0], "inner": [{"a": 1}, None, {"a": 2}],
    })  # fmt: skip
    commit = read_commit(rig.sink.storage(), 1)
    assert commit is not None
    [file] = commit.files
    assert file.values == {"day": "2026-02-28", "at": "2026-02-28T01:02:03.000004Z"}
    assert file.rows == 3
    actions = pa.table(table(rig).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["min.id"], actions["max.id"], actions["null_count.id"]) == (1, 5, 1)
    assert (actions["min.t"], actions["max.t"]) == ("a", "x" * 32 + "\U0010ffff")
    assert actions.get("max.f") is None, "a NaN is above all numbers"
    first = rows_of(rig.sink.path, ["id"])[0]
    assert (first["day"], first["at"], first["n"]) == (day, at, decimal.Decimal("1.25"))


def test_partitions_of_any_text(tmp_path: Path) -> None:
    rig = made(tmp_path, partition_by=["day"])
    words = ["a b/ü%=x", "..", None, "", "é:*", "100%25"]
    rig.end({"id": list(range(6)), "day": words, "word": words})
    assert {row["id"]: row["day"] for row in rows_of(rig.sink.path)} == {
        number: word for number, word in enumerate(words) if word != ""
    }
    assert [reject.reason for reject in rig.rejects] == [
        "column 'day' is an empty text, which Delta takes for null in a partition"
    ]


def test_rows_that_do_not_fit_are_rejected_and_the_others_written(tmp_path: Path) -> None:
    rig = made(tmp_path, schema="id int NOT NULL, word string")
    rig.end({"id": pa.array([1, None, 1 << 40, 4], pa.int64()), "word": ["a", "b", "c", "d"]})
    assert [row["id"] for row in rows_of(rig.sink.path, ["id"])] == [1, 4]
    assert [reject.reason.partition(":")[0] for reject in rig.rejects] == [
        "column 'id' is null, and must not be",
        "column 'id'",
    ]


def test_files_are_cut_by_size_and_compacted(tmp_path: Path) -> None:
    rig = made(tmp_path, target_file_size=2000, compact_every=1)
    writer = rig.sink.open_writer(rig.context())
    for first in range(0, 40_000, 20_000):
        numbers = list(range(first, first + 20_000))
        writer.write(
            Batch(pa.record_batch({"id": numbers, "day": ["d"] * 20_000, "word": [str(n * 7919) for n in numbers]}))
        )
    prepared = [Prepared("out", 0, payload) for payload in writer.prepare()]
    assert sum(len(item.payload["files"]) for item in prepared) == 2
    staged = rig.sink.stage({}, prepared, Occasion.CHECKPOINT, 0)
    rig.checkpoint += 1
    assert "compaction" in rig.sink.commit(dict(staged.committables[0])).detail
    rig.state = dict(staged.state)
    rig = SinkRig(DeltaSink(rig.sink.path, compact_every=1), "d" * 32)
    rig.end(rows(50_000))
    assert len(table(rig).file_uris()) == 1
    assert len(rows_of(rig.sink.path)) == 40_003


def test_a_foreign_append_is_no_conflict_and_a_foreign_change_of_columns_is(tmp_path: Path) -> None:
    from deltalake import Field, write_deltalake

    rig = made(tmp_path)
    [first] = rig.decide(rows(0))
    write_deltalake(rig.sink.path, pa.table(rows(100)), mode="append")
    rig.sink.commit(first)
    assert ids(rig) == [0, 1, 2, 100, 101, 102]
    [second] = rig.decide(rows(3))
    table(rig).alter.add_columns([Field("more", "integer")])
    rig.sink.commit(second)
    assert len(ids(rig)) == 9
    [third] = rig.decide(rows(6))
    write_deltalake(rig.sink.path, pa.table({"id": pa.array(["text"])}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TerminalError, match=r"was changed since.*column '\w+' (has another type|is gone)"):
        rig.sink.commit(third)
    assert [row["id"] for row in rows_of(rig.sink.path)] == ["text"]


def test_an_answer_that_is_lost_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable

    rig = made(tmp_path)
    [committable] = rig.decide(rows(0))
    real = DeltaTable.create_write_transaction

    def lost(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("the connection was closed")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", lost)
        with pytest.raises(CommitUnknown, match="is not known"):
            rig.sink.commit(committable)
    assert rig.sink.commit(committable).detail["already_there"]
    assert ids(rig) == [0, 1, 2]
    assert table(rig).version() == 1


def test_a_driver_that_slept_before_its_commit_finds_that_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    rig = made(tmp_path)
    [committable] = rig.decide(rows(0))
    real = DeltaTable.create_write_transaction

    def late(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        rig.sink.commit(committable)  # the newer driver, between the look and the commit of this one
        real(*args, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    assert rig.sink.commit(committable).detail["already_there"]
    assert ids(rig) == [0, 1, 2]


def test_another_decision_with_the_same_number_is_refused(tmp_path: Path) -> None:
    rig = made(tmp_path)
    rig.end(rows(0))
    rig.checkpoint = 0  # as where an older copy of the checkpoint folder was put back
    [other] = rig.decide(rows(10))
    with pytest.raises(TerminalError, match="has another commit of checkpoint 0 of this job, in version 1"):
        rig.sink.commit(other)
    assert ids(rig) == [0, 1, 2]
    assert [finding.problem for finding in rig.sink.inspect(other)] == ["foreign"]


def test_files_that_were_removed_before_their_commit_stop_the_job(tmp_path: Path) -> None:
    rig = made(tmp_path)
    prepared = rig.prepare(rows(0))
    staged = rig.sink.stage({}, prepared, Occasion.CHECKPOINT, 0)
    assert [finding.problem for finding in rig.sink.inspect(dict(staged.committables[0]))] == ["pending"]
    table(rig).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert parquet(rig) == []
    with pytest.raises(TransientError, match="is not as its task left it"):
        rig.sink.verify(prepared)
    with pytest.raises(TerminalError, match="is gone before its commit"):
        rig.sink.commit(dict(staged.committables[0]))
    assert [finding.problem for finding in rig.sink.inspect(dict(staged.committables[0]))] == ["missing"]


def test_aborted_and_orphaned_files_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    rig = made(tmp_path)
    neighbour = SinkRig(DeltaSink(rig.sink.path), "b" * 32)
    rig.end(rows(0))
    theirs = neighbour.decide(rows(50))
    kept = parquet(rig)
    for item in rig.prepare(rows(3)):
        rig.sink.abort(item)
        rig.sink.abort(item)
    assert parquet(rig) == kept
    rig.prepare(rows(3))  # of a task that died before the decision
    rig.checkpoint = 0
    rig.prepare(rows(3))  # of a task that was given up while another's rows were decided
    assert len(rig.sink.sweep(rig.state, remove=False)) == 2
    rig.sink.sweep(rig.state, remove=True)
    assert parquet(rig) == kept
    neighbour.sink.commit(theirs[0])
    assert ids(rig) == [0, 1, 2, 50, 51, 52]


def test_columns_are_added_where_that_is_wanted(tmp_path: Path) -> None:
    given = {**rows(0), "more": pa.array([1, 2, 3], pa.int32())}
    rig = made(tmp_path)
    with pytest.raises(TerminalError, match="has no column 'more'"):
        rig.prepare(given)
    rig = SinkRig(DeltaSink(rig.sink.path, merge_schema=True))
    rig.end(rows(0), given)
    assert sorted(row["more"] or 0 for row in rows_of(rig.sink.path)) == [0, 0, 0, 1, 2, 3]
    assert [field.name for field in table(rig).schema().fields] == ["id", "day", "word", "more"]
    rig.end(given)
    assert len(ids(rig)) == 9


def test_rows_are_merged_by_key_in_one_commit(tmp_path: Path) -> None:
    rig = made(tmp_path, key=["id"], delete_when="gone", partition_by=["day"])
    rig.end({**rows(0, 6), "gone": [False] * 6})
    assert ids(rig) == list(range(6))
    [committable] = rig.decide(
        {
            "id": [1, 1, 2, 9],
            "day": ["d1", "d1", None, "d1"],
            "word": ["a", "b", None, None],
            "gone": [False, False, True, True],
        },
        {"id": [7, 3], "day": ["d1", "d0"], "word": ["new", "moved"], "gone": [None, False]},
    )
    for _ in range(2):
        rig.sink.commit(committable)
    found = {row["id"]: (row["day"], row["word"]) for row in rows_of(rig.sink.path)}
    assert found == {
        0: ("d0", "w0"),
        1: ("d1", "b"),
        3: ("d0", "moved"),
        4: ("d0", "w4"),
        5: ("d1", "w5"),
        7: ("d1", "new"),
    }
    assert table(rig).version() == 2
    assert [path for path in parquet(rig) if path.startswith("_poundlock")] == []


def test_a_merge_changes_only_the_columns_that_come(tmp_path: Path) -> None:
    rig = made(tmp_path, key=["id"])
    rig.end(rows(0))
    rig.end({"id": [1, 8], "word": ["other", "new"]})
    found = {row["id"]: (row["day"], row["word"]) for row in rows_of(rig.sink.path)}
    assert found == {0: ("d0", "w0"), 1: ("d1", "other"), 2: ("d0", "w2"), 8: (None, "new")}


def test_changes_of_dead_tasks_are_swept(tmp_path: Path) -> None:
    rig = made(tmp_path, key=["id"])
    rig.end(rows(0))
    rig.prepare(rows(3))
    assert len(rig.sink.sweep(rig.state, remove=True)) == 1
    assert rig.sink.sweep(rig.state, remove=False) == []
    assert ids(rig) == [0, 1, 2]


def test_a_savepoint_sees_commits_behind_it(tmp_path: Path) -> None:
    rig = made(tmp_path)
    rig.end(rows(0))
    state = dict(rig.state)
    assert not rig.sink.newer(state, {}).what
    rig.end(rows(3))
    newer = rig.sink.newer(state, {})
    assert "has commits up to checkpoint 1" in newer.what
    assert not newer.retractable


def test_the_audit_compares_each_decision_with_its_commit(tmp_path: Path) -> None:
    from poundlock.audit.read_back import AuditScope, Decided

    rig = made(tmp_path)
    committables = [rig.decide(rows(n)) for n in (0, 3)]
    rig.sink.commit(committables[0][0])

    def audited() -> Any:
        reading = rig.sink.open_audit(AuditScope(complete=True, progress=print))
        for number, (each,) in enumerate(committables):
            reading.take(Decided(record=number, checkpoint=number, committable=each, compared=True, committed=True))
        reading.read()
        return reading.result()

    assert [wrong.what for wrong in audited().disagreements] == ["there is no commit with its 3 rows"]
    rig.sink.commit(committables[1][0])
    assert not audited().disagreements
    assert audited().compared == 2


def test_tables_are_read_by_duckdb(tmp_path: Path) -> None:
    columns = "id bigint, day string, price decimal(9,2), at timestamp, tags array<string>"
    sink = DeltaSink(str(tmp_path / "t"), schema=columns, partition_by=["day"], compact_every=2)
    rig = SinkRig(sink)
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    for first in (0, 3, 6):
        ids = range(first, first + 3)
        days = ["a b", "ü:/%", None]
        rig.end(
            {
                "id": list(ids),
                "day": days,
                "price": pa.array([decimal.Decimal(n) / 4 for n in ids], pa.decimal128(9, 2)),
                "at": pa.array([at] * 3, pa.timestamp("us", "UTC")),
                "tags": [["x", None], [], None],
            }
        )
    query = f"SELECT id, day, price, epoch_ms(t.at), tags FROM delta_scan('{sink.path}') t ORDER BY id"
    assert duckdb_query(query, "delta") == [
        (
            n,
            ("a b", "ü:/%", None)[n % 3],
            decimal.Decimal(n) / 4,
            int(at.timestamp() * 1000),
            (["x", None], [], None)[n % 3],
        )
        for n in range(9)
    ]
    merged = SinkRig(DeltaSink(str(tmp_path / "m"), schema="id bigint, v string", key="id", delete_when="gone"))
    merged.end({"id": [1, 2, 3], "v": ["a", "b", "c"], "gone": [False] * 3})
    merged.end({"id": [2, 3], "v": ["B", ""], "gone": [False, True]})
    assert duckdb_query(f"SELECT id, v FROM delta_scan('{tmp_path / 'm'}') ORDER BY id", "delta") == [
        (1, "a"),
        (2, "B"),
    ]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"key": []}, r"key=\[\] names no column"),
        ({"delete_when": "gone"}, "delete_when='gone' needs a key"),
        ({"compression": "brotli"}, "compression='brotli' is not known"),
        ({"partition_by": ["day"]}, "has no effect, because the table is not made by the job"),
        ({"schema": "id int", "partition_by": ["id"]}, "partition_by= names every column"),
        ({"schema": "id int", "key": ["no"]}, "key= names 'no'"),
        ({"compact_every": 0}, "compact_every=0"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_written_down(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        DeltaSink("/tmp/t", **settings)


def test_tables_that_ask_for_more_are_refused_by_name(tmp_path: Path) -> None:
    from deltalake import DeltaTable, Schema

    with pytest.raises(DefinitionError, match="there is no Delta table in"):
        DeltaSink(str(tmp_path / "none")).preflight()
    table = DeltaTable.create(str(tmp_path / "c"), Schema.from_arrow(pa.schema([("id", pa.int64())])))
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(DefinitionError, match="uses checkConstraints, which is not written here"):
        DeltaSink(str(tmp_path / "c")).preflight()
    DeltaTable.create(
        str(tmp_path / "a"),
        Schema.from_arrow(pa.schema([("id", pa.int64())])),
        configuration={"delta.appendOnly": "true"},
    )
    with pytest.raises(DefinitionError, match="is append-only, and rows are merged by key"):
        DeltaSink(str(tmp_path / "a"), key="id").preflight()
    DeltaSink(str(tmp_path / "a")).preflight()
    with pytest.raises(DefinitionError, match="column 'id' of the Delta table is bigint"):
        DeltaSink(str(tmp_path / "a")).bind(job_id="c" * 32, sink="o").check_schema(
            "o", pa.schema([("id", pa.string())])
        )
