"""Savepoints edited by hand: the new one has what was asked for, the old one never changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.decision import SourceRange
from poundlock.cli.main import main
from poundlock.savepoint.metadata import Metadata, check_files, read_metadata
from poundlock.state.decided_state import manifests_of
from poundlock.storage import LocalStorage
from support.saved import CHECKPOINT, EVENTS, JOB_ID, files_of, save

SET = {"events": {"0": 100, "1": 80}}
FILES = {"log": 0, "file": 1, "offset": 20}


def edited(
    capsys: pytest.CaptureFixture[str], savepoint: LocalStorage, *arguments: str
) -> tuple[LocalStorage, Metadata]:
    """Edit; check what is true of every edit; return the new savepoint."""
    before = files_of(savepoint.root)
    assert main(["savepoint", "edit", savepoint.root, *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    made = LocalStorage(said["savepoint"])
    metadata = read_metadata(made)
    check_files(made, metadata)
    assert files_of(savepoint.root) == before
    assert {*metadata.files} == {*files_of(made.root)} - {"_metadata.json"}
    assert metadata.name == Path(made.root).name != Path(savepoint.root).name
    assert metadata.name.startswith(f"savepoint-{JOB_ID[:6]}-")
    assert metadata.edited is not None
    assert {**metadata.edited, "positions": []} == {
        "from": Path(savepoint.root).name, "done": said["done"], "positions": [],
    }  # fmt: skip
    assert said["edited_from"] == savepoint.root
    return made, metadata


def refused(capsys: pytest.CaptureFixture[str], savepoint: LocalStorage, *arguments: str) -> str:
    folder = Path(savepoint.root).parent
    before = files_of(folder)
    assert main(["savepoint", "edit", savepoint.root, *arguments]) == 2
    what, next = capsys.readouterr().err.splitlines()
    assert next.startswith("Next: ")
    assert files_of(folder) == before
    return f"{what} {next}"


def test_an_offset_is_set_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    positions = {"in": FILES, "clicks": EVENTS, "the-others": {"others": {"0": 7}}}
    savepoint = save(tmp_path, positions=positions)
    made, metadata = edited(capsys, savepoint, "--offset", "events:0=100", "--offset", "the-others/others:0=3")
    assert metadata.decision.sources == {
        "in": SourceRange(None, FILES, {"topics": {"events": "id"}}),
        "clicks": SourceRange(SET, SET, {"topics": {"events": "id"}}),
        "the-others": SourceRange({"others": {"0": 3}}, {"others": {"0": 3}}, {"topics": {"events": "id"}}),
    }
    changed = {"_metadata.json"}
    assert {path: data for path, data in files_of(made.root).items() if path not in changed} == {
        path: data for path, data in files_of(savepoint.root).items() if path not in changed
    }
    assert metadata.edited is not None
    assert metadata.edited["done"][0] == "source clicks: offset of events:0 from 120 to 100"


def test_every_source_that_reads_the_partition_is_set_unless_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = save(tmp_path, positions={"clicks": EVENTS, "again": EVENTS})
    _, metadata = edited(capsys, savepoint, "--offset", "events:0=100")
    assert [span.end for span in metadata.decision.sources.values()] == [SET, SET]
    _, metadata = edited(capsys, savepoint, "--offset", "again/events:0=100")
    assert {name: span.end for name, span in metadata.decision.sources.items()} == {"clicks": EVENTS, "again": SET}


def test_a_partition_that_is_new_gets_an_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = save(tmp_path, positions={"clicks": EVENTS, "others": {"others": {"0": 7}}})
    _, metadata = edited(capsys, savepoint, "--offset", "events:2=5")
    assert metadata.decision.sources["clicks"].end == {"events": {"0": 120, "1": 80, "2": 5}}
    assert metadata.decision.sources["others"].end == {"others": {"0": 7}}
    assert metadata.edited is not None
    assert metadata.edited["done"] == ["source clicks: new partition events:2, from offset 5 on"]


def test_it_is_made_where_it_is_wanted_and_can_be_edited_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = save(tmp_path / "a", positions={"clicks": EVENTS})
    made, _ = edited(capsys, savepoint, "--offset", "events:0=100")
    assert Path(made.root).parent == tmp_path / "a"
    again, metadata = edited(capsys, made, "--offset", "events:1=0", "-o", str(tmp_path / "b"))
    assert Path(again.root).parent == tmp_path / "b"
    assert metadata.decision.sources["clicks"].end == {"events": {"0": 100, "1": 0}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing is to be changed"),
        (["--offset", "other:0=5"], "no position of other:0 [PL-0732] Next: use one of events:0, events:1"),
        (["--offset", "in/events:0=5"], "in of"),
        (["--offset", "nope/events:0=5"], "no position of a source 'nope' [PL-0732] Next: use one of clicks, in"),
        (["--offset", "events:0=-5"], "--offset events:0=-5 is not topic:partition=N with a number from 0 on"),
        (["--offset", "events=5"], "is not topic:partition=N"),
        (["--offset", "in:0=5"], "no position of in:0"),
        (["--drop-operator", "nope"], "no operator 'nope' [PL-0732] Next: use one of clicks, in, out, counts, sums"),
        (["--drop-operator", "out", "--offset", "clicks/other:9=1"], "no position of other:9"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    savepoint = save(tmp_path, positions={"clicks": EVENTS, "in": FILES}, state=["counts", "sums"])
    assert said in refused(capsys, savepoint, *arguments)


def test_a_savepoint_without_kafka_and_one_without_positions_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = save(tmp_path / "a", positions={"in": FILES})
    said = refused(capsys, files, "--offset", "events:0=5")
    assert f"in of {files.root} is no Kafka source" in said
    assert "--position SOURCE=JSON" in said
    empty = save(tmp_path / "b", positions={}, checkpoint=-1)
    assert "no source of" in refused(capsys, empty, "--offset", "events:0=5")


def test_a_damaged_savepoint_is_not_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = save(tmp_path, positions={"clicks": EVENTS})
    Path(savepoint.root, "sinks/out/.out.part-0-0.inprogress.tag-1-0").write_bytes(b"{}")
    assert "is damaged: sinks/out/" in refused(capsys, savepoint, "--offset", "events:0=100")


def test_a_source_is_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = ("sources/in/log/00000000000000000000.json", b"{}")
    positions = {"in": FILES, "clicks": EVENTS, "the-others": {"others": {"0": 7}}}
    savepoint = save(tmp_path, positions=positions, more=[log])
    _, metadata = edited(capsys, savepoint, "--drop-operator", "the-others")
    assert {*metadata.decision.sources} == {"in", "clicks"}
    assert "the-others" not in metadata.operators
    assert log[0] in metadata.files

    _, metadata = edited(capsys, savepoint, "--drop-operator", "in")
    assert {*metadata.decision.sources} == {"clicks", "the-others"}
    assert log[0] not in metadata.files


def test_a_sink_is_dropped_with_what_waited_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = save(
        tmp_path, positions={"clicks": EVENTS}, sinks={"out": [("part-0-0", 7)], "late": [("part-0-0", 2)]}
    )
    _, metadata = edited(capsys, savepoint, "--drop-operator", "late")
    assert {*metadata.decision.sinks} == {*metadata.sinks} == {"out"}
    assert "late" not in metadata.operators
    assert [path for path in metadata.files if path.startswith("sinks/")] == [
        "sinks/out/.out.part-0-0.inprogress.tag-1-0"
    ]


def test_the_state_of_one_of_several_operators_is_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = {"stage-1": ["counts", "sums"], "stage-2": ["busy"]}
    savepoint = save(tmp_path, positions={"clicks": EVENTS}, state=stages, watermark=5, sinks={})
    _, metadata = edited(capsys, savepoint, "--drop-operator", "sums", "--offset", "events:0=100")
    assert {*metadata.operators} == {"clicks", "counts", "busy"}
    assert {*metadata.files} == {f"state/{JOB_ID}/stage-1.arrow", f"state/{JOB_ID}/stage-2.arrow"}
    manifests = manifests_of(metadata.decision.state)
    assert {stage: [*manifest.operators] for stage, manifest in manifests.items()} == {
        "stage-1": ["counts"],
        "stage-2": ["busy"],
    }
    assert manifests["stage-1"].next_timers("counts") == (7, None)
    assert len(manifests["stage-1"].timers) == 1
    assert (metadata.decision.checkpoint, metadata.decision.sources["clicks"].end) == (CHECKPOINT, SET)
    assert metadata.decision.watermarks is not None

    _, metadata = edited(capsys, savepoint, "--drop-operator", "counts", "--drop-operator", "sums")
    assert [*metadata.files] == [f"state/{JOB_ID}/stage-2.arrow"]

    made, metadata = edited(
        capsys, savepoint, *(word for id in ("counts", "sums", "busy") for word in ("--drop-operator", id))
    )
    assert [*metadata.files] == []
    assert (metadata.decision.state, metadata.decision.watermarks) == (None, None)
    assert metadata.decision.checkpoint == CHECKPOINT
    assert main(["savepoint", "inspect", savepoint.root, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["state"]["key_groups"], said["watermark_ms"], said["sizes"]["state"]) == (128, 5, 100)
    assert [each["name"] for each in said["state"]["operators"]] == ["counts", "sums", "busy"]
    assert main(["savepoint", "diff", savepoint.root, made.root]) == 0
    assert "state key groups" in capsys.readouterr().out


def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    savepoint = save(tmp_path / "a", positions={"clicks": EVENTS})

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("poundlock.savepoint.edit.finish", full)
    assert main(["savepoint", "edit", savepoint.root, "--offset", "events:0=1", "-o", str(tmp_path / "b")]) == 3
    assert f"disk full while writing a savepoint in {tmp_path / 'b'}" in capsys.readouterr().err
    assert files_of(tmp_path / "b") == {}
