"""A job that writes an Iceberg table, and one that reads it as it grows and writes another by key, killed at every step and at random."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.cli.main import main
from poundlock.failpoints import Failpoint
from support.iceberg_tables import catalog_in
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/iceberg.py"
FOREIGN = pa.schema([("id", pa.int64()), ("word", pa.string())])


def lives_of(root: Path, mode: str, **more: str) -> Lives:
    properties = catalog_in(root)
    environment = {
        "CRASH_CATALOG": properties["uri"],
        "CRASH_WAREHOUSE": properties["warehouse"],
        "CRASH_CHECKPOINTS": str(root / f"checkpoints-{mode}"),
        "CRASH_MODE": mode,
        **more,
    }
    return Lives(JOB, environment=environment, folder=root)


def load(root: Path, name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("poundlock", **catalog_in(root)).load_table(f"db.{name}")


def ids(table: Any) -> list[int]:
    """Return the ids that a reader of a table sees."""
    return [int(each) for each in table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()]


def assert_once(table: Any, expected: range) -> None:
    """Assert that a table has these rows of the job's, each once; a foreign writer's have ids below 0."""
    found = Counter(each for each in ids(table) if each >= 0)
    wanted = Counter(expected)
    assert found == wanted, f"{sum((found - wanted).values())} too many, {sum((wanted - found).values())} missing"


def assert_audited(root: Path, mode: str) -> None:
    """Assert that the job's own audit finds each decision's snapshot, with its files."""
    assert main(["audit", str(root / f"checkpoints-{mode}")]) == 0


def assert_swept(table: Any, root: Path) -> None:
    """Assert that no data file is there that the table does not name."""
    named = {row["file_path"].removeprefix("file://") for row in table.inspect.all_files().to_pylist()}
    there = {str(path) for path in (root / "warehouse").rglob("*.parquet") if f"/{table.name()[-1]}/" in str(path)}
    assert there == named


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((Failpoint.SINK_WRITING, Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTED), id="some"),
        pytest.param(STATELESS, id="every", marks=pytest.mark.torture),
    ],
)
def test_killed_at_failpoints(tmp_path: Path, points: tuple[Failpoint, ...]) -> None:
    count = 1_000 * (len(points) + 3)
    with lives_of(tmp_path, "append", CRASH_COUNT=str(count)) as lives:
        hit = tmp_path / "hit"
        codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit, times=2, points=points))
        assert {path.name for path in hit.iterdir()} == {point.value for point in points}
        assert len(codes) - 1 >= len(DRIVERS.intersection(points))
        assert lives.left_behind() == []
    table = load(tmp_path, "events")
    assert_once(table, range(count))
    assert_swept(table, tmp_path)
    assert_audited(tmp_path, "append")


@pytest.mark.torture
def test_killed_at_random_beside_a_foreign_writer(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance, count, stop = random.Random(seed), 120_000, threading.Event()
    foreign = Counter[int]()

    def write() -> None:
        number = 0
        while not stop.is_set():
            try:
                table = load(tmp_path, "events")
                table.append(pa.table({"id": [-1 - number], "word": ["foreign"]}, schema=FOREIGN))
                foreign[-1 - number] += 1
                number += 1
            except Exception:  # the table is not there yet, or the job was quicker
                number += 1
            time.sleep(0.2)

    writer = threading.Thread(target=write)
    with lives_of(tmp_path, "append", CRASH_COUNT=str(count), CRASH_COMPACT="7") as lives:
        writer.start()
        try:
            for _ in range(10):
                job = lives.start()
                lives.checkpoints(job, chance.randrange(1, 4))
                time.sleep(chance.random() * 2)
                job.kill()
                job.wait(30)
        finally:
            stop.set()
            writer.join()
        lives.run()
        assert lives.left_behind() == []
    table = load(tmp_path, "events")
    assert_once(table, range(count))
    found = Counter(each for each in ids(table) if each < 0)
    assert not foreign - found
    assert max(found.values(), default=1) == 1
    marks = Counter(s.summary.additional_properties.get("poundlock.checkpoint") for s in table.snapshots())
    assert max(times for mark, times in marks.items() if mark is not None) == 1
    assert any(each.summary.operation.value == "replace" for each in table.snapshots()), (
        "small files were written together"
    )
    assert_audited(tmp_path, "append")


@pytest.mark.torture
def test_a_table_read_as_it_grows_and_written_by_key(tmp_path: Path) -> None:
    count = 12_000
    with lives_of(tmp_path, "append", CRASH_COUNT=str(count), CRASH_COMPACT="5") as lives:
        lives.run()
    end = load(tmp_path, "events").current_snapshot().snapshot_id
    with lives_of(tmp_path, "copy", CRASH_END=str(end)) as lives:
        lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", tmp_path / "hit", points=STATELESS))
        assert lives.left_behind() == []
    assert_once(load(tmp_path, "copy"), range(count))
    assert_audited(tmp_path, "copy")
