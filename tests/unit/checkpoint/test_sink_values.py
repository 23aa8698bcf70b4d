"""Values of a sink come back from JSON as they were; those of another sink, or of a newer version, are refused by name."""

from __future__ import annotations

import json

import pytest

from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.files.file_values import FileDirective
from poundlock.connectors.jdbc.committer import StagedRows
from poundlock.connectors.kafka.sink.committer import OpenTransaction
from poundlock.connectors.postgres.sink.committer import PreparedTransaction
from poundlock.connectors.print_sink import PrintedRows
from poundlock.connectors.two_phase import UserTransaction
from poundlock.errors import TerminalError

ROWS = StagedRows(v=1, gid="g", file="f", rows=3, bytes=30)
VALUES: list[SinkValue] = [
    ROWS,
    FileDirective(v=1, known=(0, 2), following=(4, 1), pending=(("day=1", 2, 99),)),
    PreparedTransaction(v=1, rows=1, bytes=2, digest="00", gid="g", origin="o", at_ms=5),
    OpenTransaction(
        v=1, tid="t", pid=1, epoch=2, group="t", marker_topic="m", transaction="t/1/2", rows=1, bytes=2, digest="00"
    ),
    PrintedRows(v=1, name="out", subtask=0, rows=2, lines=["a"]),
    UserTransaction(v=1, transaction={"file": [1, "x"]}, rows=7),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_from_json(value: SinkValue) -> None:
    plain = value.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["v"] == 1
    assert type(value).of(plain) == value
    assert type(value).of({**plain, "later": 1}) == value, "what a later version adds and this one need not know"


def test_a_value_of_another_sink_is_refused() -> None:
    with pytest.raises(TerminalError, match=r"is no PrintedRows: .*name"):
        PrintedRows.of(ROWS.to_json())


def test_a_value_of_a_newer_version_is_refused() -> None:
    with pytest.raises(TerminalError, match="a StagedRows has format 2; this version reads up to 1"):
        StagedRows.of({**ROWS.to_json(), "v": 2})
