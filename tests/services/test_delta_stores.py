"""Delta tables on S3 and HDFS, on real servers: drivers that commit at the same moment, rows by key, and what was written read again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from poundlock import DeltaSink, DeltaSource
from poundlock.connectors.base import ReaderContext
from poundlock.connectors.delta.loading import open_folder, open_table
from poundlock.formats.convert import to_records
from poundlock.storage import LocalStorage
from poundlock.testing.hdfs import EmbeddedHdfs
from support.delta_tables import SinkRig, rows_of
from support.stores import S3_SERVERS

pytestmark = pytest.mark.services
DRIVERS = 6


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "s3_server" in metafunc.fixturenames:
        metafunc.parametrize("s3_server", S3_SERVERS, indirect=True, scope="session")


def test_on_s3(new_bucket: Callable[[], str]) -> None:
    check(new_bucket())


@pytest.mark.torture
def test_on_hdfs(hdfs: EmbeddedHdfs) -> None:
    check(f"{hdfs.uri}/delta")


def check(root: str) -> None:
    rig = SinkRig(DeltaSink(f"{root}/added", schema="id bigint, day string", partition_by=["day"]))
    rig.end({"id": [0, 1, 2], "day": ["a b", "ü:/", None]})
    assert raced(rig, rig.decide({"id": [3, 4, 5], "day": ["a b", "ü:/", None]})) == 1
    assert {row["id"]: row["day"] for row in rows_of(rig.sink.path)} == {
        n: ("a b", "ü:/", None)[n % 3] for n in range(6)
    }
    assert open_table(open_folder(rig.sink.path)).version() == 2
    rig.prepare({"id": [6], "day": ["dead"]})
    assert len(rig.sink.sweep(rig.state, remove=True)) == 1
    source = DeltaSource(rig.sink.path)
    enumerator = source.enumerator(LocalStorage("/tmp"))
    start = enumerator.initial()
    splits = enumerator.splits(start, enumerator.latest(start))
    reader = source.reader(ReaderContext(None))
    read = [row["id"] for split in splits for chunk in reader.read(split) for row in to_records(chunk).rows]
    assert sorted(read) == list(range(6))
    merged = SinkRig(DeltaSink(f"{root}/merged", schema="id bigint, v string", key="id"))
    merged.end({"id": [1, 2], "v": ["a", "b"]})
    assert raced(merged, merged.decide({"id": [2, 3], "v": ["B", "c"]})) == 1
    assert {row["id"]: row["v"] for row in rows_of(merged.sink.path)} == {1: "a", 2: "B", 3: "c"}
    assert not [entry for entry in merged.sink.storage().list() if "_poundlock" in entry.path]


def raced(rig: SinkRig, committables: list[dict[str, Any]]) -> int:
    """Commit the same decision by several drivers at once; return how many made the commit and did not find it."""
    made, failures = list[bool](), list[BaseException]()
    begin = threading.Barrier(DRIVERS)

    def driver() -> None:
        begin.wait()
        try:
            made.append("already_there" not in rig.sink.commit(committables[0]).detail)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=driver) for _ in range(DRIVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    return sum(made)
