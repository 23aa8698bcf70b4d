"""FileSink keeps the contract of a sink on S3 and on HDFS, with tasks and drivers that are killed, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from poundlock import FileSink
from poundlock.testing import sink_conformance
from poundlock.testing.conformance import visible_rows
from poundlock.testing.hdfs import EmbeddedHdfs

pytestmark = pytest.mark.services
RAW: list[dict[str, Any]] = [{"value": b"line %d" % n} for n in range(16)]
ROWS: list[dict[str, Any]] = [{"n": n, "text": f"row {n}"} for n in range(16)]
KINDS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "raw": (RAW, {"row": "value"}),
    "parquet": (ROWS, {"format": "parquet"}),
}


# A few here, for one kind of rows on S3; all of the suite, minutes a sink, in torture.
FEW = ("commits", "hidden", "commit-twice", "sweep-orphans", "crash.sink.committed", "crash-within-commit")


def other(sink: FileSink) -> FileSink:
    return replace(sink, prefix="other")


@pytest.mark.parametrize(
    ("kind", "only"), [("parquet", FEW), *(pytest.param(kind, None, marks=pytest.mark.torture) for kind in KINDS)]
)
def test_on_s3(kind: str, only: Sequence[str] | None, new_bucket: Callable[[], str]) -> None:
    rows, how = KINDS[kind]
    bucket = new_bucket()
    report = sink_conformance(
        lambda f: FileSink(f"{bucket}/{f.name}", **how), read=visible_rows, rows=rows, second=other, only=only
    )
    assert report.passed


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_on_hdfs(kind: str, hdfs: EmbeddedHdfs) -> None:
    rows, how = KINDS[kind]
    report = sink_conformance(
        lambda f: FileSink(f"{hdfs.uri}/{f.name}", **how), read=visible_rows, rows=rows, second=other
    )
    assert report.passed
