"""IcebergSink keeps the contract of a sink where its files are on S3 and on HDFS, with tasks and drivers that are killed, on real servers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import IcebergSink, TransientError
from poundlock.testing import sink_conformance
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.minio import EmbeddedMinio
from poundlock.testing.s3 import EmbeddedS3
from support.iceberg_tables import SCHEMA, SinkSteps, rows_of

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
BAD = [{"id": None, "word": "no id"}]
HOW: dict[str, dict[str, Any]] = {"append": {"partition_by": ["bucket(2, id)"]}, "by key": {"key": ["id"]}}


def check(warehouse: str, more: Mapping[str, str], how: str, only: Sequence[str] | None = None) -> None:
    """Run the suite for a sink whose catalog is a file beside the test, and whose tables are in a warehouse."""

    def make(folder: Path) -> IcebergSink:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{warehouse}/{uuid.uuid5(uuid.NAMESPACE_URL, str(folder)).hex}",
            **more,
        }
        return IcebergSink(catalog, "db.t", create=SCHEMA, **HOW[how])

    def read(sink: IcebergSink) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = sink.place.load().scan().to_arrow().to_pylist()
        return rows

    assert sink_conformance(make, read=read, rows=ROWS, bad_rows=BAD, only=only).passed


def access(server: EmbeddedS3) -> dict[str, str]:
    return {
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": server.region,
        "s3.request-timeout": "60",  # seconds; 3 by default, which a busy machine may need
    }


def test_on_s3(s3_server: EmbeddedS3) -> None:
    check(s3_server.bucket(f"b-{uuid.uuid4().hex[:12]}"), access(s3_server), "append", ("commits", "commit-twice"))


@pytest.mark.torture
@pytest.mark.parametrize("how", HOW)
def test_all_of_it_on_minio(how: str, minio_server: EmbeddedMinio) -> None:
    check(minio_server.bucket(f"b-{uuid.uuid4().hex[:12]}"), access(minio_server), how)


@pytest.mark.torture
@pytest.mark.parametrize("how", HOW)
def test_all_of_it_on_hdfs(how: str, hdfs: EmbeddedHdfs) -> None:
    check(f"{hdfs.uri}/iceberg-{uuid.uuid4().hex[:8]}", {}, how)


def write_files(steps: SinkSteps, count: int) -> None:
    for number in range(count):
        steps.write(1, ROWS[4:8], number)


@pytest.mark.torture
def test_a_quota_of_hdfs_that_is_used_up(hdfs: EmbeddedHdfs, tmp_path: Path) -> None:
    name = f"quota-{uuid.uuid4().hex[:8]}"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{hdfs.uri}/{name}"}
    steps = SinkSteps(IcebergSink(catalog, "db.t", create=SCHEMA))
    steps.take(0, ROWS[:4])
    hdfs.admin("-setQuota", "12", f"/{name}")
    with pytest.raises(TransientError, match="quota of names is used up"):
        write_files(steps, 20)
    hdfs.admin("-clrQuota", f"/{name}")
    assert steps.sink.sweep(steps.state, remove=True)
    steps.take(1, ROWS[4:8])
    assert rows_of(steps.sink) == ROWS[:8]
