"""Operators under other ids: at an edit and at a restore, all at once, with their windows' event time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.errors import DefinitionError
from poundlock.operators.time_values import DecidedTime, StreamTime, TimeDirective, TimeState
from poundlock.savepoint.metadata import Operator, read_metadata
from poundlock.savepoint.operator_ids import parse_renamed, renamed_operators
from poundlock.savepoint.restore import check
from poundlock.storage import LocalStorage
from support.saved import EVENTS, save

SOURCES = {"clicks": Operator("source"), "out": Operator("sink")}
STAGES = {"stage-1": ["counts", "sums"], "stage-2": ["busy"]}


def numbers(metadata: Any) -> dict[str, int]:
    stages = metadata.decision.state.manifest.values()
    return {name: meta.number for manifest in stages for name, meta in manifest.operators.items()}


def saved(folder: Path) -> LocalStorage:
    return save(folder, positions={"clicks": EVENTS}, state=STAGES, watermark=5)


@pytest.mark.parametrize(
    "renamed",
    [
        {"counts": "totals"},
        {"counts": "sums", "sums": "counts"},
        {"counts": "busy", "busy": "sums", "sums": "counts"},
        {"sums": "counts", "counts": "new"},
    ],
)
def test_state_is_anothers_at_a_restore_and_in_an_edit(
    tmp_path: Path, renamed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = saved(tmp_path)
    before = read_metadata(savepoint)
    ids = [renamed.get(name, name) for name in ("counts", "sums", "busy")]
    operators = {**SOURCES, **{id: Operator("stateful") for id in ids}}
    storage = LocalStorage(str(tmp_path / "checkpoint"))
    found = check(savepoint, storage, job="made", operators=operators, sinks={}, renamed=renamed)
    assert found.dropped == []
    wanted = {renamed.get(name, name): number for name, number in numbers(before).items()}
    assert numbers(found.metadata) == wanted
    words = [word for old, new in renamed.items() for word in ("--rename-operator", f"{old}={new}")]
    assert main(["savepoint", "edit", savepoint.root, *words, "--json"]) == 0
    made = read_metadata(LocalStorage(json.loads(capsys.readouterr().out)["savepoint"]))
    assert (numbers(made), {*made.operators}) == (wanted, {*operators})
    assert read_metadata(savepoint) == before, "the old one stays as it is"


def test_what_is_made_of_something_else_is_refused_under_its_new_id(tmp_path: Path) -> None:
    savepoint = saved(tmp_path)
    text = json.loads(Path(savepoint.root, "_metadata.json").read_text())
    for id, keys in (("counts", ["user"]), ("sums", ["day"])):
        text["operators"][id]["made_of"] = {"keys": keys}
    Path(savepoint.root, "_metadata.json").write_text(json.dumps(text))
    operators = {**SOURCES, **{i: Operator("stateful", True, {"keys": ["user"]}) for i in ("counts", "sums", "busy")}}
    storage = LocalStorage(str(tmp_path / "checkpoint"))
    swapped = {"counts": "sums", "sums": "counts"}
    with pytest.raises(DefinitionError, match="stateful 'counts' cannot be restored: its keys were day and are user"):
        check(savepoint, storage, job="made", operators=operators, sinks={}, renamed=swapped)


@pytest.mark.parametrize(
    ("renamed", "what"),
    [
        ({"gone": "x"}, "no operator 'gone' with state"),
        ({"clicks": "x"}, "no operator 'clicks' with state"),
        ({"counts": "sums"}, "has an operator 'sums' already"),
        ({"counts": "out"}, "has an operator 'out' already"),
    ],
)
def test_two_operators_never_get_one_id(tmp_path: Path, renamed: dict[str, str], what: str) -> None:
    savepoint = saved(tmp_path)
    with pytest.raises(DefinitionError, match=what):
        renamed_operators(savepoint.root, read_metadata(savepoint), renamed)


@pytest.mark.parametrize("texts", [["a"], ["a=a"], ["=b"], ["a="], ["a=b", "a=c"], ["a=c", "b=c"]])
def test_a_mapping_that_is_none(texts: list[str]) -> None:
    with pytest.raises(DefinitionError, match="--rename-operator"):
        parse_renamed(texts)


def test_the_event_time_of_streams_goes_along(tmp_path: Path) -> None:
    savepoint = saved(tmp_path)
    metadata = read_metadata(savepoint)
    streams = {name: StreamTime(watermark=at) for name, at in (("counts", 7), ("sums", 9), ("clicks-time", 9))}
    now = TimeState(streams=streams)
    decided = DecidedTime(v=2, watermark=7, state=now, directive=TimeDirective(state=now, clock=0, sources={}))
    metadata = replace(metadata, decision=replace(metadata.decision, watermarks=decided))
    swapped = renamed_operators(savepoint.root, metadata, {"counts": "sums", "sums": "counts"})
    assert swapped.decision.watermarks is not None
    state = swapped.decision.watermarks.state
    assert {name: each.watermark for name, each in state.streams.items()} == {
        "sums": 7,
        "counts": 9,
        "clicks-time": 9,
    }
