"""Whole positions written by hand, of every form there is: what can be is written, and the rest refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import Operator, read_metadata
from poundlock.savepoint.restore import check
from poundlock.storage import LocalStorage, Storage
from support.saved import files_of, save

LOG = {"v": 1, "root": "/in", "more": False, "files": [["a.jsonl", 100, 1], ["b.jsonl", 50, 2]]}
MORE = [("sources/files/log/00000000000000000000.json", json.dumps(LOG).encode())]
POSITIONS: dict[str, Any] = {
    "clicks": {"events": {"0": 120, "1": 80}},
    "files": {"log": 1, "file": 0, "offset": 0},
    "made": {"row": 400, "from_ms": 17},
    "rows": {"value": 90, "cuts": [10, 50], "done": True},
    "noted": {"value": "90", "cuts": [], "done": True, "read": "t by id"},
    "changes": {"slot": "poundlock", "lsn": "0/16B3748", "oid": 16390, "published": ["a"]},
    "first": {"slot": "f", "lsn": "0/16B3748", "oid": 16391, "published": [], "plan": "p0", "snapshot": "s", "of": 4},
    "table": {"plan": "p1", "next": 3, "of": 8},
    "own": {"page": 3, "token": "x", "seen": None},
    "spark": {"batch": 7},
}


@pytest.fixture
def savepoint(tmp_path: Path) -> LocalStorage:
    return save(tmp_path, positions=POSITIONS, more=MORE)


def moved(savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], source: str, position: Any) -> Any:
    before = files_of(savepoint.root)
    assert main(["savepoint", "edit", savepoint.root, "--position", f"{source}={json.dumps(position)}", "--json"]) == 0
    made = read_metadata(LocalStorage(json.loads(capsys.readouterr().out)["savepoint"]))
    assert files_of(savepoint.root) == before
    spans = {name: span.end for name, span in made.decision.sources.items()}
    assert {**spans, source: None} == {**POSITIONS, source: None}, "the others stay"
    assert made.edited is not None
    assert made.edited["positions"] == [source]
    assert made.decision.sources[source].start == spans[source]
    return spans[source]


@pytest.mark.parametrize(
    ("source", "position", "result"),
    [
        ("clicks", {"events": {"1": 7, "2": 0}}, {"events": {"0": 120, "1": 7, "2": 0}}),
        ("files", {"file": "b.jsonl"}, {"log": 0, "file": 1, "offset": 0}),
        ("files", {"file": "/in/a.jsonl", "offset": 40}, {"log": 0, "file": 0, "offset": 40}),
        ("files", {"log": 0, "file": 1, "offset": 50}, {"log": 0, "file": 1, "offset": 50}),
        ("made", {"row": 0}, {"row": 0, "from_ms": 17}),
        ("rows", {"value": 20}, {"value": 20, "cuts": [], "done": False}),
        ("rows", {"value": 95, "done": True}, {"value": 95, "cuts": [], "done": True}),
        ("noted", {"value": "20"}, {"value": "20", "cuts": [], "done": False, "read": "t by id"}),
        ("noted", {"read": "u by id"}, {"value": "90", "cuts": [], "done": False, "read": "u by id"}),
        ("changes", {"lsn": "0/16B3000"}, {**POSITIONS["changes"], "lsn": "0/16B3000"}),
        ("first", {"lsn": "0/16B3000"}, {**POSITIONS["first"], "lsn": "0/16B3000"}),
        ("table", {"next": 0}, {"plan": "p1", "next": 0, "of": 8}),
        ("own", {"token": "y", "seen": [1]}, {"page": 3, "token": "y", "seen": [1]}),
    ],
)
def test_a_position_of_any_source(
    savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], source: str, position: Any, result: Any
) -> None:
    assert moved(savepoint, capsys, source, position) == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("files", "is not SOURCE=JSON"),
        ("files={", "is not SOURCE=JSON"),
        ("nope={}", "no position of a source 'nope'"),
        ("made=[1]", "is no JSON object"),
        ("made={}", "is no JSON object with what is to change"),
        ('made={"rows": 1}', "has rows, and it has not"),
        ('made={"row": "1"}', 'has "1" for row'),
        ('made={"row": true}', "has true for row"),
        ('made={"row": -1}', "has -1 for row"),
        ('clicks={"events": {"0": -1}}', "does not give offsets"),
        ('clicks={"events": 5}', "does not give offsets"),
        ('clicks={"other": {"0": 1}}', "names other, which it does not read"),
        ('files={"file": "c.jsonl"}', "names 'c.jsonl', which it has not met"),
        ('files={"log": 0, "file": 2, "offset": 0}', "is no place in the files"),
        ('files={"file": "b.jsonl", "offset": 51}', "is no place in the files"),
        ('rows={"value": "20"}', 'has "20" for value'),
        ('changes={"slot": "other"}', "is no place in the log that its slot keeps"),
        ('changes={"lsn": "here"}', "is no place in the log that its slot keeps"),
        ('table={"next": 9}', "is no range of the table as it was cut"),
        ('table={"plan": "p2"}', "is no range of the table as it was cut"),
        ('spark={"batch": 1}', "is read by a query of Spark's"),
    ],
)
def test_what_is_no_position_is_refused(
    savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    before = files_of(Path(savepoint.root).parent)
    assert main(["savepoint", "edit", savepoint.root, "--position", text]) == 2
    assert said in capsys.readouterr().err
    assert files_of(Path(savepoint.root).parent) == before


@dataclass
class Pages:
    """A source of somebody else's, which has so many pages."""

    pages: int
    asked: list[tuple[Any, str]] = field(default_factory=list)

    def check_position(self, position: Any, workspace: Storage) -> None:
        self.asked.append((position, workspace.root))
        if position["page"] > self.pages:
            raise DefinitionError(f"there is no page {position['page']}", next="give one that there is")


def test_a_source_is_asked_about_a_position_that_a_person_wrote(
    savepoint: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = {**{name: Operator("source") for name in POSITIONS}, "out": Operator("sink")}

    def restored(path: str, source: Any) -> None:
        place = LocalStorage(str(tmp_path / "checkpoint"))
        sources = {"own": source, "made": object()}
        check(LocalStorage(path), place, job="made", operators=operators, sinks={}, sources=sources)

    def edit(path: str, *words: str) -> str:
        assert main(["savepoint", "edit", path, *words, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["savepoint"])

    untouched = Pages(2)
    restored(savepoint.root, untouched)
    assert untouched.asked == [], "what a job wrote itself is its own"
    fourth = edit(savepoint.root, "--position", 'own={"page": 4}')
    again = edit(fourth, "--position", 'made={"row": 1}')
    for path in (fourth, again):
        with pytest.raises(DefinitionError, match="there is no page 4"):
            restored(path, Pages(3))
        pages = Pages(4)
        restored(path, pages)
        assert pages.asked == [({"page": 4, "token": "x", "seen": None}, f"{path}/sources/own")]
