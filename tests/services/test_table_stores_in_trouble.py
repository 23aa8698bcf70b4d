"""Tables of Iceberg and Delta on an S3 server that throttles, that loses answers, or whose disk is full: each checkpoint is there once."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from poundlock import CommitUnknown, DeltaSink, IcebergSink, TransientError
from poundlock.testing.s3 import EmbeddedS3
from support.delta_tables import SinkRig
from support.delta_tables import rows_of as delta_rows
from support.iceberg_tables import SCHEMA, SinkSteps
from support.iceberg_tables import rows_of as iceberg_rows
from support.s3_proxy import S3Proxy
from support.stores import S3_SERVERS

pytestmark = pytest.mark.services


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "s3_server" in metafunc.fixturenames:
        metafunc.parametrize("s3_server", S3_SERVERS, indirect=True, scope="session")


@pytest.fixture
def proxy(s3_server: EmbeddedS3) -> Iterator[S3Proxy]:
    with (
        s3_server.in_environment(),
        S3Proxy(s3_server.endpoint, s3_server.environment) as running,
        mock.patch.dict(os.environ, running.environment),
    ):
        yield running


@pytest.fixture
def bucket(s3_server: EmbeddedS3) -> str:
    return s3_server.bucket(f"b-{uuid.uuid4().hex[:12]}")


Make = Callable[..., SinkSteps]


@pytest.fixture
def iceberg(proxy: S3Proxy, bucket: str, s3_server: EmbeddedS3, tmp_path: Path) -> Make:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{bucket}/warehouse",
        "s3.endpoint": proxy.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
        "s3.request-timeout": "60",  # seconds; 3 by default, which a busy machine may need
    }
    return lambda **how: SinkSteps(IcebergSink(properties, "db.t", create=SCHEMA, **how))


def words(*ids: int) -> list[dict[str, Any]]:
    return [{"id": n, "word": f"w{n}"} for n in ids]


HOW: dict[str, dict[str, Any]] = {"append": {}, "by key": {"key": ["id"]}}


@pytest.mark.parametrize("how", [pytest.param("append"), pytest.param("by key", marks=pytest.mark.torture)])
def test_iceberg_where_requests_are_throttled(iceberg: Make, proxy: S3Proxy, how: str) -> None:
    steps = iceberg(**HOW[how])
    proxy.throttle_first()  # the client asks again
    steps.take(0, words(1, 2))
    steps.take(1, words(3))
    assert proxy.throttled
    proxy.throttle("^(PUT|POST) ")
    with pytest.raises(TransientError, match=r"(?i)slow.?down|reduce your request rate"):
        steps.write(2, words(4))
    proxy.calm()
    decided = steps.decide(steps.write(2, words(4)))
    proxy.throttle("^(PUT|POST) .*/metadata/")
    with (
        mock.patch("poundlock.connectors.iceberg.sink.committer.TRIES", 2),
        pytest.raises(CommitUnknown, match=r"(?i)slow.?down|reduce your request rate"),
    ):
        steps.sink.commit(decided)
    proxy.calm()
    steps.sink.commit(decided)
    assert iceberg_rows(steps.sink) == words(1, 2, 3, 4)
    assert len(steps.sink.place.load().snapshots()) == 3


@pytest.mark.parametrize("how", [pytest.param("append"), pytest.param("by key", marks=pytest.mark.torture)])
def test_delta_where_requests_are_throttled(proxy: S3Proxy, bucket: str, how: str) -> None:
    rig = SinkRig(DeltaSink(f"{bucket}/t", schema="id bigint, word string", **HOW[how]))
    proxy.throttle_first()
    rig.end({"id": [1, 2], "word": ["w1", "w2"]})
    rig.end({"id": [3], "word": ["w3"]})
    assert proxy.throttled
    proxy.throttle("^(PUT|POST) ")
    with pytest.raises(TransientError, match="SlowDown"):
        rig.prepare({"id": [4], "word": ["w4"]})
    proxy.calm()
    (decided,) = rig.decide({"id": [4], "word": ["w4"]})
    rig.sink.commit(decided)
    assert sorted(delta_rows(rig.sink.path), key=lambda row: row["id"]) == words(1, 2, 3, 4)


@pytest.mark.torture
def test_delta_where_no_commit_is_taken_for_long(proxy: S3Proxy, bucket: str) -> None:
    """The library asks for minutes before it gives up; the outcome is open then."""
    rig = SinkRig(DeltaSink(f"{bucket}/t", schema="id bigint, word string"))
    (decided,) = rig.decide({"id": [1], "word": ["w1"]})
    proxy.throttle("^PUT .*_delta_log")
    with pytest.raises(CommitUnknown, match=r"(?i)slow.?down|503"):
        rig.sink.commit(decided)
    proxy.calm()
    rig.sink.commit(decided)
    assert delta_rows(rig.sink.path) == words(1)


@pytest.mark.parametrize("how", [pytest.param("append"), pytest.param("by key", marks=pytest.mark.torture)])
def test_delta_commits_whose_answer_is_lost(proxy: S3Proxy, bucket: str, how: str) -> None:
    """The library asks for the same version again, is refused for its own commit, and the look at the log finds it."""
    rig = SinkRig(DeltaSink(f"{bucket}/t", schema="id bigint, word string", **HOW[how]))
    rig.end({"id": [1], "word": ["w1"]})
    (decided,) = rig.decide({"id": [2], "word": ["w2"]})
    proxy.lose(r"^PUT .*_delta_log/0+2\.json")
    rig.sink.commit(decided)
    assert proxy.lost == 1
    rig.sink.commit(decided)
    assert Counter(row["id"] for row in delta_rows(rig.sink.path)) == {1: 1, 2: 1}
