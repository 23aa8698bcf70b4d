"""What makes a sealed bucket known elsewhere: a row of a table of PostgreSQL, a partition in Glue's catalog; asked of real servers and of moto's Glue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    CommittedPartition,
    EventTimeBucketAssigner,
    FileSink,
    GlueMetaStore,
    MetastoreCommitPolicy,
    SealedBuckets,
    TableCommitPolicy,
    TransientError,
)
from poundlock.connectors.files.partitions.sealed import SealedBucket, SealedFile
from poundlock.errors import DefinitionError, TerminalError
from poundlock.failpoints import Failpoint
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.testing.s3 import EmbeddedS3
from poundlock.testing.servers import free_port
from support.forked_lives import KILLED
from support.sealing_lives import SealingJob

pytestmark = [pytest.mark.services, pytest.mark.crash]

BUCKET = "dt=2026-01-05/hour=10"
FILES = [SealedFile(f"{BUCKET}/part-0-0", 3, 300, 1), SealedFile(f"{BUCKET}/part-0-1", 1, 100, 2)]
COLUMNS = {"Columns": [{"Name": "id", "Type": "int"}], "Location": "s3://lake/orders", "InputFormat": "text"}


def sealed(version: int, files: int = 2, bucket: str = BUCKET) -> SealedBucket:
    return SealedBucket("/lake", bucket, version, f"/lake/{bucket}/_manifest-{version}.json", FILES[:files])


@pytest.fixture
def partitions(postgres_server: EmbeddedPostgres) -> Iterator[TableCommitPolicy]:
    policy = TableCommitPolicy(dsn=postgres_server.dsn, table="partitions")
    postgres_server.execute(policy.ddl)
    yield policy
    postgres_server.execute("DROP TABLE partitions")


@pytest.fixture
def glue(s3_server: EmbeddedS3) -> Iterator[Any]:
    """A client of Glue with an empty database and a table with the keys dt and hour."""
    from botocore.session import Session

    with s3_server.in_environment():
        client = Session().create_client("glue", region_name=s3_server.region)
        client.create_database(DatabaseInput={"Name": "lake"})
        keys = [{"Name": name, "Type": "string"} for name in ("dt", "hour")]
        table = {"Name": "orders", "PartitionKeys": keys, "StorageDescriptor": COLUMNS}
        client.create_table(DatabaseName="lake", TableInput=table)
        yield client
        client.delete_database(Name="lake")


def registered(glue: Any) -> list[tuple[list[str], str, dict[str, str]]]:
    """Return values, location and parameters of each partition that Glue knows."""
    found = glue.get_partitions(DatabaseName="lake", TableName="orders")["Partitions"]
    return sorted((each["Values"], each["StorageDescriptor"]["Location"], each["Parameters"]) for each in found)


def test_a_row_is_written_once_however_often_it_is_asked_for(
    partitions: TableCommitPolicy, postgres_server: EmbeddedPostgres
) -> None:
    partitions.preflight()
    for each in (sealed(1, 1), sealed(1, 1), sealed(2), sealed(1, 1), CommittedPartition("/lake", "dt=2026-01-06")):
        partitions(each)
    path = f"/lake/{BUCKET}/_manifest"
    assert postgres_server.execute("SELECT * FROM partitions ORDER BY bucket, version") == [
        ("/lake", BUCKET, 1, f"{path}-1.json", 1, 3, 300),
        ("/lake", BUCKET, 2, f"{path}-2.json", 2, 4, 400),
        ("/lake", "dt=2026-01-06", 0, None, None, None, None),
    ]


def test_a_version_that_a_savepoint_retracted_is_written_over(
    partitions: TableCommitPolicy, postgres_server: EmbeddedPostgres
) -> None:
    partitions(sealed(1))
    partitions(sealed(1, 1))
    assert postgres_server.execute("SELECT files, rows FROM partitions") == [(1, 3)]


def test_a_table_that_cannot_take_the_rows_is_refused_before_anything_runs(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    policy = TableCommitPolicy(dsn=postgres_server.dsn, table="elsewhere")
    sink = FileSink(
        str(tmp_path),
        format="json",
        bucket=EventTimeBucketAssigner("ts", "'dt='yyyy-MM-dd", zone="UTC"),
        sealed=SealedBuckets(policies=[policy]),
    )
    with pytest.raises(DefinitionError, match=r"elsewhere.*does not exist") as refused:
        sink.preflight()
    assert policy.ddl in refused.value.next
    postgres_server.execute(policy.ddl.replace(", PRIMARY KEY (root, bucket, version)", ""))
    with pytest.raises(DefinitionError, match="no unique or exclusion constraint"):
        sink.preflight()
    postgres_server.execute("DROP TABLE elsewhere", policy.ddl)
    sink.preflight()
    reader = TableCommitPolicy(dsn=postgres_server.dsn_of("reader"), table="elsewhere", password="open sesame")
    with pytest.raises(DefinitionError, match="permission denied"):
        reader.preflight()
    assert "open sesame" not in repr(reader)
    assert postgres_server.execute("SELECT count(*) FROM elsewhere") == [(0,)]


def test_a_server_that_is_away_is_asked_again() -> None:
    with pytest.raises(TransientError, match="no PostgreSQL answers"):
        TableCommitPolicy(dsn=f"postgresql://localhost:{free_port()}/none", table="partitions")(sealed(1))


@pytest.mark.parametrize("name", ["", "a;b", "a.b.c", 'a"b', 7])
def test_a_name_that_is_no_table_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="is no name of a table"):
        TableCommitPolicy(dsn="postgresql://localhost/catalog", table=name)


def test_a_partition_is_registered_once_and_altered_by_the_next_version(glue: Any) -> None:
    policy = MetastoreCommitPolicy(GlueMetaStore("lake", "orders"))
    policy.preflight()
    for each in (sealed(1, 1), sealed(1, 1)):
        policy(each)
    values, path = ["2026-01-05", "10"], f"/lake/{BUCKET}"
    known = {"numFiles": "1", "numRows": "3", "totalSize": "300"}
    ours = {"poundlock.version": "1", "poundlock.manifest": f"{path}/_manifest-1.json"}
    assert registered(glue) == [(values, path, {**known, **ours})]
    policy(sealed(2))
    policy(CommittedPartition("/lake", "hour=11/dt=2026-01-05"))  # values go by the table's keys, in their order
    ((one, _, parameters), (other, _, nothing)) = registered(glue)
    assert (one, parameters["poundlock.version"], parameters["numRows"]) == (values, "2", "4")
    assert (other, nothing) == (["2026-01-05", "11"], {})


def test_what_glue_has_no_partition_for_is_named(glue: Any) -> None:
    with pytest.raises(DefinitionError, match=r"lake\.other") as refused:
        MetastoreCommitPolicy(GlueMetaStore("lake", "other")).preflight()
    assert "create the database and the table" in refused.value.next
    policy = MetastoreCommitPolicy(GlueMetaStore("lake", "orders"))
    with pytest.raises(
        TerminalError, match=r"has the keys dt, and Glue's table lake\.orders the partition keys dt, hour"
    ):
        policy(sealed(1, bucket="dt=2026-01-05"))
    with pytest.raises(TerminalError, match="has no keys"):
        policy(sealed(1, bucket="2026-01-05--10"))
    with pytest.raises(DefinitionError, match="is no metastore"):
        MetastoreCommitPolicy("lake.orders")  # type: ignore[arg-type]


def test_rows_and_partitions_of_a_job_that_is_killed_are_those_of_one_that_is_not(
    glue: Any,
    s3_server: EmbeddedS3,
    partitions: TableCommitPolicy,
    postgres_server: EmbeddedPostgres,
    tmp_path: Path,
) -> None:
    """It dies before and behind calls of commits, so that some are made twice; late rows open buckets once more."""
    policies = (partitions, MetastoreCommitPolicy(GlueMetaStore("lake", "orders")))
    columns = "bucket, version, replace(manifest, root, ''), files, rows, bytes"
    outcomes = []
    for name in ("calm", "killed"):
        job = SealingJob(
            tmp_path / name, str(tmp_path / "lake"), "reopen", "", "json", s3_server.environment, 20, policies
        )
        job.prepare()
        if name == "killed":
            points = (Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED)
            codes = [job.live(f"{point.value}:kill@{n}") for n in (2, 5) for point in points]
            assert codes.count(KILLED) >= 3, codes
        assert job.live() == 0
        rows = postgres_server.execute(f"SELECT {columns} FROM partitions ORDER BY 1, 2")
        outcomes.append((rows, registered(glue)))
        for entry in job.storage.list():
            job.storage.delete(entry.path)
        postgres_server.execute("TRUNCATE partitions")
        for values, _, _ in registered(glue):
            glue.delete_partition(DatabaseName="lake", TableName="orders", PartitionValues=values)
    (rows, partitions_known), after_kills = outcomes
    assert after_kills == (rows, partitions_known)
    assert len(partitions_known) == 4
    assert {parameters["poundlock.version"] for _, _, parameters in partitions_known} > {"1"}
    assert {(row[0], str(row[1])) for row in rows} >= {
        (f"dt={dt}/hour={hour}", parameters["poundlock.version"]) for (dt, hour), _, parameters in partitions_known
    }
