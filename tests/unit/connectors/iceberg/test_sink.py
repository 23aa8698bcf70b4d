"""IcebergSink step by step, on a catalog in SQLite: what a commit leaves, and what a repetition of it does not do."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from poundlock import CommitUnknown, DefinitionError, IcebergSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.iceberg.sink.marks import DecisionMark
from poundlock.connectors.iceberg.sink.partitions import transform_of
from support.iceberg_tables import JOB, SCHEMA, SinkSteps, catalog_in, rows_of, table_with

Make = Callable[..., IcebergSink]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**arguments: Any) -> IcebergSink:
        return IcebergSink(catalog_in(tmp_path), "db.t", **{"create": SCHEMA, **arguments})

    return made


def words(*ids: int, word: str = "w") -> list[dict[str, Any]]:
    return [{"id": n, "word": f"{word}{n}"} for n in ids]


def test_a_checkpoint_is_one_snapshot_with_its_mark(make: Make) -> None:
    steps = SinkSteps(make(tag="ck-{checkpoint}"))
    waiting = steps.write(0, words(1, 2)) + steps.write(0, words(3), subtask=1)
    assert rows_of(steps.sink) == []
    detail = steps.sink.commit(steps.decide(waiting)).detail
    assert rows_of(steps.sink) == words(1, 2, 3)
    table = steps.sink.place.load()
    (snapshot,) = table.snapshots()
    has = snapshot.summary.additional_properties
    assert {name: has[f"poundlock.{name}"] for name in ("job-id", "sink", "epoch", "checkpoint")} == {
        "job-id": JOB,
        "sink": "out",
        "epoch": "1",
        "checkpoint": "0",
    }
    assert (has["added-records"], has["added-data-files"]) == ("3", "2")
    assert table.metadata.properties[steps.sink.owner.property] == "e1-c0"
    assert table.metadata.refs["ck-0"].snapshot_id == snapshot.snapshot_id == detail["snapshot"]
    assert rows_of(steps.sink, row_filter="id > 2") == words(3)


def test_a_commit_that_is_repeated_changes_nothing(make: Make) -> None:
    steps = SinkSteps(make())
    first = steps.decide(steps.write(0, words(1)))
    steps.sink.commit(first)
    steps.sink.commit(first)
    second = steps.decide(steps.write(1, words(2)))
    steps.sink.commit(second)
    steps.sink.commit(first)
    steps.sink.commit(second)
    assert rows_of(steps.sink) == words(1, 2)


def test_expired_snapshots_take_no_mark_along(make: Make) -> None:
    steps = SinkSteps(make())
    first = steps.decide(steps.write(0, words(1)))
    steps.sink.commit(first)
    steps.take(1, words(2))
    table = steps.sink.place.load()
    table.append(pa.Table.from_pylist(words(3), schema=SCHEMA))
    table = steps.sink.place.load()
    for snapshot in table.snapshots()[:2]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert len(steps.sink.place.load().snapshots()) == 1
    steps.sink.commit(first)
    assert rows_of(steps.sink) == words(1, 2, 3)


def test_an_answer_that_was_lost_is_looked_for(make: Make) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make())
    decided = steps.decide(steps.write(0, words(1)))
    right = SqlCatalog.commit_table
    asked = []

    def cut(self: Any, *arguments: Any, **named: Any) -> Any:
        right(self, *arguments, **named)
        asked.append(1)
        raise ConnectionError("the answer was lost")

    with mock.patch.object(SqlCatalog, "commit_table", cut):
        steps.sink.commit(decided)
    assert (rows_of(steps.sink), len(asked)) == (words(1), 1)


def test_foreign_writers_in_between_do_no_harm(make: Make) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make())
    decided = steps.decide(steps.write(0, words(1)))
    right, foreign = SqlCatalog.commit_table, [words(8), words(9)]

    def late(self: Any, *arguments: Any, **named: Any) -> Any:
        if foreign:
            rows = foreign.pop()
            with mock.patch.object(SqlCatalog, "commit_table", right):
                steps.sink.place.load().append(pa.Table.from_pylist(rows, schema=SCHEMA))
        return right(self, *arguments, **named)

    with mock.patch.object(SqlCatalog, "commit_table", late):
        steps.sink.commit(decided)
    assert rows_of(steps.sink) == words(1, 8, 9)
    ours = [s for s in steps.sink.place.load().snapshots() if "poundlock.checkpoint" in s.summary.additional_properties]
    assert len(ours) == 1


def test_two_drivers_with_one_decision_commit_it_once(make: Make) -> None:
    """The control of the mark: without it, both land, for appends do not conflict."""
    from pyiceberg.catalog.sql import SqlCatalog

    from poundlock.connectors.iceberg.sink import committer

    def race(steps: SinkSteps) -> None:
        decided = steps.decide(steps.write(0, words(1)))
        right, others = SqlCatalog.commit_table, [1]

        def late(self: Any, *arguments: Any, **named: Any) -> Any:
            if others:
                others.pop()
                with mock.patch.object(SqlCatalog, "commit_table", right):
                    steps.sink.commit(decided)
            return right(self, *arguments, **named)

        with mock.patch.object(SqlCatalog, "commit_table", late):
            steps.sink.commit(decided)

    steps = SinkSteps(make())
    race(steps)
    assert rows_of(steps.sink) == words(1)
    other = SinkSteps(IcebergSink(steps.sink.catalog, "db.unmarked", create=SCHEMA))
    with mock.patch.object(committer, "_is_made", return_value=False):
        race(other)
    assert rows_of(other.sink) == words(1, 1)


def test_a_catalog_that_does_not_answer_leaves_the_outcome_open(make: Make) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    from poundlock.connectors.iceberg.sink import committer

    steps = SinkSteps(make())
    decided = steps.decide(steps.write(0, words(1)))
    with (
        mock.patch.object(SqlCatalog, "commit_table", side_effect=ConnectionError("away")),
        mock.patch.object(committer, "TRIES", 2),
        pytest.raises(CommitUnknown, match="away"),
    ):
        steps.sink.commit(decided)
    with mock.patch.object(SqlCatalog, "load_table", side_effect=ConnectionError("away")), pytest.raises(CommitUnknown):
        steps.sink.commit(decided)
    steps.sink.commit(decided)
    assert rows_of(steps.sink) == words(1)


def test_a_catalog_that_refuses_ends_the_job(make: Make) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import ForbiddenError

    steps = SinkSteps(make())
    decided = steps.decide(steps.write(0, words(1)))
    refusing = mock.patch.object(SqlCatalog, "commit_table", side_effect=ForbiddenError("not for you"))
    with refusing as asked, pytest.raises(TerminalError, match="not for you"):
        steps.sink.commit(decided)
    assert asked.call_count == 1


def test_a_table_that_lost_commits_is_refused(make: Make) -> None:
    steps = SinkSteps(make())
    steps.take(0, words(1))
    decided = steps.decide(steps.write(1, words(2)))
    catalog = steps.sink.place.catalog()
    catalog.drop_table("db.t")
    with pytest.raises(TerminalError, match="no Iceberg table"):
        steps.sink.commit(decided)
    again = SinkSteps(make())
    with pytest.raises(TerminalError, match="another table"):
        again.sink.commit(decided)
    lost = {**decided, "table": str(again.sink.place.load().metadata.table_uuid)}
    with pytest.raises(TerminalError, match="up to none, and the job made them up to e1-c0"):
        again.sink.commit(lost)


def test_marks_grow_with_the_drivers_lives() -> None:
    assert DecisionMark(1, 9) < DecisionMark(2, 0) < DecisionMark(2, 1)
    assert DecisionMark.parse(str(DecisionMark(12, 345))) == DecisionMark(12, 345)


def test_a_stage_is_pure_and_of_no_rows_nothing_is_committed(make: Make) -> None:
    steps = SinkSteps(make())
    prepared = steps.write(0, words(1))
    one = steps.sink.stage({}, prepared, Occasion.CHECKPOINT, 0)
    assert one == steps.sink.stage({}, prepared, Occasion.CHECKPOINT, 5)
    nothing = steps.sink.stage(one.state, [], Occasion.END, 9)
    assert (nothing.state, nothing.committables) == (one.state, [])
    assert steps.write(1, words()[:0] or pa.RecordBatch.from_pylist([], schema=SCHEMA)) == []


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("day(at)", ["at_day=2024-02-28", "at_day=2024-02-29"]),
        ("months(at)", ["at_month=2024-02"]),
        ("hour(at)", ["at_hour=2024-02-28-23", "at_hour=2024-02-29-00"]),
        ("bucket(2, id)", ["id_bucket_2=0", "id_bucket_2=1"]),
        ("truncate(1, word)", ["word_trunc_1=a", "word_trunc_1=null"]),
        ("word", ["word=a%2Fb", "word=null"]),
    ],
)
def test_partition_transforms(tmp_path: Path, text: str, paths: list[str]) -> None:
    schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    late = dt.datetime(2024, 2, 28, 23, 59, tzinfo=dt.UTC)
    rows = [{"id": n, "word": "a/b" if n % 2 else None, "at": late + dt.timedelta(minutes=n % 3)} for n in range(6)]
    steps = SinkSteps(IcebergSink(catalog_in(tmp_path), "db.t", create=schema, partition_by=[text]))
    steps.take(0, pa.RecordBatch.from_pylist(rows, schema=schema))
    assert rows_of(steps.sink) == rows
    files = [task.file.file_path for task in steps.sink.place.load().scan().plan_files()]
    assert sorted({path.split("/")[-2] for path in files}) == paths


def test_names_that_avro_has_no_letters_for(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("a-b", pa.string()), ("ö x", pa.int64())])
    rows = [{"id": n, "a-b": f"w{n % 2}", "ö x": -n} for n in range(4)]
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    made = {"create": schema, "partition_by": ["a-b"], "sort_by": ["-ö x"], "table_properties": properties}
    steps = SinkSteps(IcebergSink(catalog_in(tmp_path), "db.t", **made))
    for n, row in enumerate(rows):
        steps.take(n, pa.RecordBatch.from_pylist([row], schema=schema))
    assert rows_of(steps.sink) == rows
    current = steps.sink.place.load().current_snapshot()
    assert current is not None
    assert len(current.manifests(steps.sink.place.load().io)) < len(rows)


def test_partitions_that_cannot_be_written_are_refused(make: Make) -> None:
    for text in ("bucket(id)", "bucket(0, id)", "day(at", "week(at)"):
        with pytest.raises(DefinitionError, match="says no partition"):
            transform_of(text)
    SinkSteps(make(partition_by=["bucket(2, id)"]))
    with pytest.raises(DefinitionError, match="is there, and partitioned by"):
        SinkSteps(make(partition_by=["bucket(3, id)"]))


def test_a_spec_that_changes_between_task_and_commit(make: Make) -> None:
    steps = SinkSteps(make())
    prepared = steps.write(0, words(1, 2))
    decided = steps.decide(prepared)
    with steps.sink.place.load().update_spec() as spec:
        spec.add_identity("word")
    with pytest.raises(TransientError, match="partitioned otherwise"):
        steps.sink.verify(prepared)
    steps.sink.commit(decided)  # what is decided is committed by the spec it was written with
    steps.take(1, words(3))
    assert rows_of(steps.sink, row_filter="word = 'w2'") == words(2)
    assert rows_of(steps.sink) == words(1, 2, 3)


def test_files_are_as_large_as_asked_for_and_sorted(make: Make) -> None:
    rows = pa.RecordBatch.from_pylist(words(*range(20_000, 0, -1)))
    steps = SinkSteps(make(target_file_size="20 kB", sort_by=["id"]))
    prepared = steps.write(0, rows.slice(0, 10_000))
    for n in range(1, 4):
        prepared += steps.write(0, rows.slice(10_000 + 2_500 * (n - 1), 2_500), n)
    steps.sink.commit(steps.decide(prepared))
    files = [task.file for task in steps.sink.place.load().scan().plan_files()]
    assert sum(file.record_count for file in files) == 17_500
    table = steps.sink.place.load()
    read = table.scan(row_filter="id = 19000").to_arrow().to_pylist()
    assert read == words(19_000)
    assert all(file.sort_order_id == table.sort_order().order_id for file in files)


def test_columns_are_matched_by_name_and_rejected_by_value(make: Make, tmp_path: Path) -> None:
    wide = pa.schema([*SCHEMA, ("n", pa.int32()), ("list", pa.list_(pa.string()))])
    steps = SinkSteps(make(create=wide))
    batch = pa.RecordBatch.from_pylist([{"n": 1 << 40, "id": 1}, {"n": 5, "id": 2}, {"n": 6, "id": None}])
    steps.take(0, batch)
    assert rows_of(steps.sink) == [{"id": 2, "word": None, "n": 5, "list": None}]
    assert [reject.reason.split(":")[0] for reject in steps.rejects] == ["column 'n'", "column 'id'"]
    for rows, why in (
        (pa.schema([("id", pa.int64()), ("x", pa.int64())]), "the rows have a column 'x'"),
        (pa.schema([("id", pa.string())]), "column 'id' is string, and in db.t it is int64"),
        (pa.schema([("word", pa.string())]), "column 'id' of db.t is required"),
    ):
        with pytest.raises(DefinitionError, match=why):
            steps.sink.check_schema("out", rows)


def test_columns_are_added_by_choice(make: Make) -> None:
    SinkSteps(make()).take(0, words(1))
    wide = pa.schema([*SCHEMA, ("n", pa.int64())])
    with pytest.raises(DefinitionError, match="no column 'n'"):
        SinkSteps(make(create=wide))
    with pytest.raises(DefinitionError, match="cannot be added as a required one"):
        SinkSteps(make(create=pa.schema([*SCHEMA, pa.field("n", pa.int64(), nullable=False)]), add_columns=True))
    steps = SinkSteps(make(create=wide, add_columns=True), epoch=2, state={})
    steps.sink = steps.sink.bind(job_id="cd" * 16, sink="out")
    steps.take(0, [{"id": 2, "word": "w2", "n": 7}])
    assert rows_of(steps.sink) == [{"id": 1, "word": "w1", "n": None}, {"id": 2, "word": "w2", "n": 7}]


def test_a_branch_is_written_beside_main(make: Make, tmp_path: Path) -> None:
    table_with(catalog_in(tmp_path), words(1))
    steps = SinkSteps(make(branch="audit"))
    steps.take(0, words(2))
    table = steps.sink.place.load()
    assert rows_of(steps.sink) == words(1)
    on_branch = table.scan(snapshot_id=table.metadata.refs["audit"].snapshot_id).to_arrow()
    assert sorted(on_branch["id"].to_pylist()) == [1, 2]


def test_what_dead_attempts_left_is_swept(make: Make) -> None:
    steps = SinkSteps(make(partition_by=["word"]))
    dead = steps.write(0, words(7, 8))
    steps.take(0, words(1, 2))
    dead += steps.write(1, words(9))
    paths = {file["path"] for item in dead for file in item.payload["files"]}
    looked = steps.sink.sweep(steps.state, remove=False)
    assert {orphan.path for orphan in looked} == paths
    with pytest.raises(RuntimeError):
        steps.sink.sweep(steps.state, remove=True, check=mock.Mock(side_effect=RuntimeError))
    assert len(steps.sink.sweep(steps.state, remove=True)) == 3
    assert steps.sink.sweep(steps.state, remove=False) == []
    other = SinkSteps(make(partition_by=["word"]), job_id="cd" * 16)
    assert other.sink.sweep({}, remove=True) == []
    assert rows_of(steps.sink) == words(1, 2)


def test_what_is_aborted_is_removed_twice_without_harm(make: Make) -> None:
    steps = SinkSteps(make())
    (item,) = steps.write(0, words(1))
    for _ in range(2):
        steps.sink.abort(item)
    assert steps.sink.sweep(steps.state, remove=False) == []


def test_rows_by_key_replace_and_delete(make: Make) -> None:
    steps = SinkSteps(make(key=["id"], delete_when="gone"))
    steps.take(0, [{**row, "gone": False} for row in words(1, 2, 3)], [{**row, "gone": False} for row in words(4)])
    decided = steps.decide(
        steps.write(1, [{"id": 2, "word": "x", "gone": False}, {"id": 2, "word": "new", "gone": None}])
        + steps.write(1, [{"id": 3, "word": "", "gone": True}, {"id": 9, "word": "", "gone": True}], 1)
    )
    steps.sink.commit(decided)
    steps.sink.commit(decided)
    assert rows_of(steps.sink) == [*words(1), {"id": 2, "word": "new"}, *words(4)]
    last = steps.sink.place.load().current_snapshot()
    assert last is not None
    assert last.summary.operation.value == "overwrite"
    assert steps.sink.sweep(steps.state, remove=False) == []


def test_rows_by_key_beside_a_foreign_writer(make: Make) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make(key=["id"]))
    steps.take(0, words(1, 2))
    decided = steps.decide(steps.write(1, words(2, word="new")))
    right, foreign = SqlCatalog.commit_table, [words(2, word="foreign")]

    def late(self: Any, *arguments: Any, **named: Any) -> Any:
        if foreign:
            rows = foreign.pop()
            with mock.patch.object(SqlCatalog, "commit_table", right):
                steps.sink.place.load().append(pa.Table.from_pylist(rows, schema=SCHEMA))
        return right(self, *arguments, **named)

    with mock.patch.object(SqlCatalog, "commit_table", late):
        steps.sink.commit(decided)
    assert rows_of(steps.sink) == [*words(1), {"id": 2, "word": "new2"}]
    assert steps.sink.sweep(steps.state, remove=False) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"create": None, "partition_by": ["id"]}, "no columns are given to make the table with"),
        ({"key": []}, "names no column"),
        ({"delete_when": "gone"}, "needs a key"),
        ({"tag": "newest"}, "one name for all checkpoints"),
        ({"target_file_size": "0 MB"}, "is zero"),
        ({"create": "id int"}, "no schema of Arrow"),
        ({"key": ["id"], "columns": ["word"]}, "is not in columns="),
    ],
)
def test_arguments_that_contradict_each_other(make: Make, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        make(**arguments)


def test_places_that_are_none(tmp_path: Path) -> None:
    for catalog, table, why in (
        ({}, "db.t", "neither type nor uri"),
        ("rest", "db.t", "not a dict of texts"),
        (catalog_in(tmp_path), "t", "with its namespace"),
    ):
        with pytest.raises(DefinitionError, match=why):
            IcebergSink(catalog, table)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="there is no Iceberg table"):
        IcebergSink(catalog_in(tmp_path), "db.t").preflight()


def test_no_secret_is_shown_or_kept(tmp_path: Path) -> None:
    sink = IcebergSink({**catalog_in(tmp_path), "s3.secret-access-key": "verysecret"}, "db.t", create=SCHEMA)
    shown = f"{sink!r} {sink.describe()} {sink.describe_json()} {sink.place!r}"
    assert "verysecret" not in shown
    again = IcebergSink.from_json(sink.bind(job_id=JOB, sink="out").describe_json())
    assert (again.job_id, again.sink_name, again.table) == (JOB, "out", "db.t")
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_newer_output_and_what_was_lost(make: Make) -> None:
    steps = SinkSteps(make())
    steps.take(0, words(1))
    saved = steps.state
    assert steps.sink.newer(saved, {}).what == ""
    steps.take(1, words(2))
    assert "has 1 snapshots" in steps.sink.newer(saved, {}).what
    restored = steps.sink.restore(saved, None, "", "keep")
    assert restored["mark"] == "e1-c1"
    ahead = {**saved, "mark": "e9-c9"}
    assert "made them up to e9-c9" in steps.sink.newer(ahead, {}).lost
