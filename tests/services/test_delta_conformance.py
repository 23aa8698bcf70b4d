"""DeltaSink and DeltaSource keep their contracts: on a local disk and on a real S3 server, with tasks and drivers that are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import DeltaSink
from poundlock.testing import sink_conformance
from support.delta_tables import rows_of

pytestmark = pytest.mark.services

ROWS = [{"id": n, "day": f"d{n % 3}", "word": f"w{n}"} for n in range(16)]
BAD = [{"id": 99, "day": "", "word": "a partition that Delta takes for null"}]
SCHEMA = "id bigint, day string, word string"
FEW = (
    "commits",
    "hidden",
    "rejects",
    "commit-twice",
    "sweep-orphans",
    "crash.decision.recorded",
    "crash-within-commit",
)
HOW: dict[str, dict[str, Any]] = {"added": {"partition_by": ["day"]}, "merged": {"key": ["id"]}}


def check(root: str, how: str, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> DeltaSink:
        sink = DeltaSink(f"{root}/{folder.name}", schema=SCHEMA, **HOW[how])
        sink.preflight()
        return sink

    bad = BAD if how == "added" else [{"id": None, "day": "d", "word": "no key"}]
    report = sink_conformance(make, read=lambda sink: rows_of(sink.path), rows=ROWS, bad_rows=bad, only=only)
    assert report.passed


def test_added_to_a_local_table(tmp_path: Path) -> None:
    check(str(tmp_path), "added", FEW)


def test_merged_into_a_local_table(tmp_path: Path) -> None:
    check(str(tmp_path), "merged", ("commits", "commit-twice"))


def test_added_to_a_table_on_s3(new_bucket: Callable[[], str]) -> None:
    check(new_bucket(), "added", ("commits",))


@pytest.mark.torture
@pytest.mark.parametrize("how", HOW)
def test_all_of_it_on_a_local_disk(how: str, tmp_path: Path) -> None:
    check(str(tmp_path), how, None)


@pytest.mark.torture
@pytest.mark.parametrize("s3_server", ["minio"], indirect=True, scope="session")
@pytest.mark.parametrize("how", HOW)
def test_all_of_it_on_minio(how: str, new_bucket: Callable[[], str]) -> None:
    check(new_bucket(), how, None)
