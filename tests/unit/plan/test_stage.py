"""What one task does with the rows of a branch, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, RichFunction
from poundlock.checkpoint.participant import Counts, bound
from poundlock.formats.chunk import Chunk, FileOrigin, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.user_functions import Map
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


class Halves(RichFunction):
    """Halves even numbers; notes what is called."""

    def __init__(self, calls: list[str], closes: bool = True) -> None:
        self.calls, self.closes = calls, closes

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")
        if not self.closes:
            raise OSError("cannot be closed")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] % 2:
            raise ValueError("odd")
        return {"n": row["n"] // 2}


def stage_of(tmp_path: Path, function: Halves, *, rejects: bool) -> Stage:
    sinks = {
        "out": bound(FileSink(str(tmp_path / "out"), format="json"), job_id=JOB, sink="out"),
        DEAD_LETTER: bound(FileSink(str(tmp_path / "dead"), row="value"), job_id=JOB, sink=DEAD_LETTER),
    }
    half = Map("half", function, ("n",), rejects=rejects)
    steps = [Step("in", Pass(), []), Step("half", half, [Edge("in")]), Step("out", SinkStep("out"), [Edge("half")])]
    return Stage(JOB, "in", steps, sinks, "dead_letter")


DIRECTIVE = {"decided": False, "checkpoint": 3, "epoch": 1, "started_ms": 0, "sinks": {"out": {}, "dead-letter": {}}}


def numbers(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
    yield Records([{"n": n} for n in range(5)], FileOrigin("/in/a", range(5)))


def test_records_that_a_function_fails_for_are_dead_letters_and_counted(tmp_path: Path) -> None:
    calls: list[str] = []
    stage = stage_of(tmp_path, Halves(calls), rejects=True)
    told = [json.loads(text) for text in stage.run(numbers, DIRECTIVE, TaskIdentity.of(0))]
    counts = {name: Counts.from_json(c) for name, c in told[-1]["sinks"].items()}
    assert counts["out"] == Counts(read=5, written=3, dead_lettered=2)
    assert counts["out"].balanced()
    assert counts[DEAD_LETTER].written == 2
    letters = [
        json.loads(x) for p in (tmp_path / "dead").rglob("*") if p.is_file() for x in p.read_bytes().splitlines()
    ]
    assert [(x["operator"], x["offset"], x["reason"], x["value"]) for x in letters] == [
        ("half", n, "half raised ValueError: odd", f'{{"n": {n}}}') for n in (1, 3)
    ]
    assert calls == ["open", "close"]


@pytest.mark.parametrize("closes", [True, False])
def test_a_task_that_fails_closes_its_functions_and_leaves_nothing(tmp_path: Path, closes: bool) -> None:
    calls: list[str] = []
    stage = stage_of(tmp_path, Halves(calls, closes), rejects=False)
    with pytest.raises(ValueError, match="odd"):
        list(stage.run(numbers, DIRECTIVE, TaskIdentity.of(0)))
    assert calls == ["open", "close"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_function_that_cannot_be_closed_fails_its_task(tmp_path: Path) -> None:
    calls: list[str] = []
    with pytest.raises(OSError, match="cannot be closed"):
        list(stage_of(tmp_path, Halves(calls, False), rejects=True).run(numbers, DIRECTIVE, TaskIdentity.of(0)))
    assert calls == ["open", "close"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
