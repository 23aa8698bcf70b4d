"""The audit of an Iceberg table: each decision beside its snapshot, and what it says of one that is missing, changed, or set back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import IcebergSink
from poundlock.audit.read_back import Auditable, AuditScope, Decided, ReadBack
from poundlock.checkpoint.participant import JSON
from support.iceberg_tables import JOB, SCHEMA, SinkSteps, catalog_in

KINDS: dict[str, dict[str, Any]] = {"append": {"partition_by": ["word"]}, "by key": {"key": ["id"]}}


def audited(steps: SinkSteps, decided: Sequence[JSON], *, open_from: int | None = None) -> ReadBack:
    """Audit what was decided, as a command does that knows the sink by its description alone."""
    sink = IcebergSink.from_json(steps.sink.describe_json())
    assert isinstance(sink, Auditable)
    assert sink.job_id == JOB
    reading = sink.open_audit(AuditScope(complete=True, progress=print))
    for number, each in enumerate(decided):
        is_committed = open_from is None or number < open_from
        reading.take(Decided(record=number, checkpoint=number, committable=each, compared=True, committed=is_committed))
    reading.read()
    return reading.result()


def written(tmp_path: Path, kind: str = "append", count: int = 3) -> tuple[SinkSteps, list[JSON]]:
    steps = SinkSteps(IcebergSink(catalog_in(tmp_path), "db.t", create=SCHEMA, **KINDS[kind]))
    made = []
    for n in range(count):
        made.append(steps.decide(steps.write(n, [{"id": n, "word": "a"}, {"id": n + 10, "word": "b"}])))
        steps.sink.commit(made[-1])
    return steps, made


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_decided_is_there(tmp_path: Path, kind: str) -> None:
    steps, decided = written(tmp_path, kind)
    found = audited(steps, decided)
    assert (found.compared, found.disagreements, found.uncompared) == (3, [], [])
    assert [steps.sink.rows_of(each) for each in decided] == [2, 2, 2]
    waiting = steps.decide(steps.write(3, [{"id": 7, "word": "c"}]))
    found = audited(steps, [*decided, waiting])
    assert [(each.checkpoint, each.what) for each in found.disagreements] == [
        (3, "there is no snapshot with its 1 rows")
    ]
    found = audited(steps, [*decided, waiting], open_from=3)
    assert (found.compared, found.disagreements) == (3, [])
    assert found.uncompared == ["checkpoint 3: its commit is still to be made"]


def test_other_files_than_those_that_were_decided(tmp_path: Path) -> None:
    steps, decided = written(tmp_path)
    fewer = {**decided[1], "files": decided[1]["files"][:1], "rows": 1}
    (wrong,) = audited(steps, [decided[0], fewer]).disagreements
    assert "is of another decision" in wrong.what
    larger = [{**file, "rows": file["rows"] + 1} for file in decided[1]["files"]]
    (wrong,) = audited(steps, [{**decided[1], "files": larger, "rows": 4}]).disagreements
    assert wrong.what.endswith("adds 2 rows in 2 files instead of 4 in 2")


def test_a_table_that_was_set_back_or_made_again(tmp_path: Path) -> None:
    steps, decided = written(tmp_path)
    table = steps.sink.place.load()
    first, *_ = table.snapshots()
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    found = audited(steps, decided)
    assert [each.checkpoint for each in found.disagreements] == [1, 2]
    assert all("not in the history of branch main" in each.what for each in found.disagreements)
    catalog = steps.sink.place.catalog()
    catalog.drop_table("db.t")
    steps.sink.preflight()
    assert {each.what.split(":")[0] for each in audited(steps, decided).disagreements} == {"the table was made again"}


def test_snapshots_that_have_expired_are_not_compared(tmp_path: Path) -> None:
    steps, decided = written(tmp_path)
    table = steps.sink.place.load()
    for snapshot in table.snapshots()[:2]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    found = audited(steps, decided)
    assert (found.compared, found.disagreements) == (1, [])
    assert found.uncompared == ["checkpoint 0: its snapshot has expired", "checkpoint 1: its snapshot has expired"]


def test_a_compacted_table_agrees(tmp_path: Path) -> None:
    steps = SinkSteps(IcebergSink(catalog_in(tmp_path), "db.t", create=SCHEMA, compact_every=5))
    decided = []
    for n in range(1, 7):
        decided.append(steps.decide(steps.write(n, [{"id": n, "word": "a"}])))
        steps.sink.commit(decided[-1])
    assert len(list(steps.sink.place.load().scan().plan_files())) == 2
    assert (audited(steps, decided).compared, audited(steps, decided).disagreements) == (6, [])
