"""What one task does with the rows of a branch, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from poundlock import FileSink
from poundlock.checkpoint.participant import bound
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.plan.plan import DEAD_LETTER
from poundlock.plan.stage import SinkStep, Stage, TaskIdentity

JOB = "0" * 32


def test_a_dead_letter_may_come_from_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    sinks = {
        "out": bound(FileSink(str(tmp_path / "out"), row="value"), job_id=JOB, sink="out"),
        DEAD_LETTER: bound(FileSink(str(tmp_path / "dead"), row="value"), job_id=JOB, sink=DEAD_LETTER),
    }
    steps = [Step("in", Pass(), []), Step("out", SinkStep("out"), [Edge("in")])]
    directive = {"decided": False, "checkpoint": 3, "epoch": 1, "started_ms": 0, "sinks": {"dead-letter": {}}}

    def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
        reject(Reject("bad", "ü".encode(), {"file": "/in/a-\udcff", "offset": 7}))
        yield from ()

    texts = list(Stage(JOB, "in", steps, sinks, "dead_letter").run(read, directive, TaskIdentity.of(0)))
    payload = next(item["payload"] for item in map(json.loads, texts) if item["t"] == "prepared")
    assert payload["rows"] == 1
    (written,) = [path for path in (tmp_path / "dead").rglob("*") if path.is_file()]
    letter = json.loads(written.read_bytes())
    assert letter["file"] == "/in/a-\udcff"
    assert letter["value"] == "ü"
