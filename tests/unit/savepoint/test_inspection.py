"""What is said of a savepoint, and of two of them, by the command line and without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.savepoint.inspection import inspect
from poundlock.savepoint.metadata import METADATA
from poundlock.savepoint.positions import is_kafka, reading
from poundlock.storage import LocalStorage
from support.saved import CHECKPOINT, EVENTS, JOB_ID, files_of, save

LOG = json.dumps({"v": 1, "root": "/in", "more": False, "files": [["a", 100, 1], ["b", 50, 2], ["c", 10, 3]]}).encode()
AT_FILE = {"log": 0, "file": 1, "offset": 20}


def poundlock(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    got = main(list(arguments))
    captured = capsys.readouterr()
    assert got == code, captured.err
    return (captured.out if code == 0 else captured.err).splitlines()


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    (line,) = poundlock(capsys, "savepoint", *arguments, "--json")
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture
def savepoint(tmp_path: Path) -> LocalStorage:
    return save(
        tmp_path,
        positions={"clicks": EVENTS, "in": AT_FILE, "made": {"row": 900}, "other": 12},
        state=["per-minute", "window-0"],
        watermark=1_545_184_220_000,
        sinks={"out": [("part-0-0", 7), ("part-1-0", 5)], "late": []},
        more=[("sources/in/log/00000000000000000000.json", LOG)],
    )


def test_it_says_what_is_in_it(savepoint: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(savepoint.root)
    lines = poundlock(capsys, "savepoint", "inspect", savepoint.root)
    text = "\n".join(" ".join(line.split()) for line in lines)
    name = Path(savepoint.root).name
    for said in (
        f"{name}: savepoint of job made ({JOB_ID}), format 2",
        "taken 2018-12-19T01:50:26.000Z at checkpoint 3 by poundlock 0.1.0, pyspark 4.2.1",
        "clicks kafka events:0 offset 120\nclicks kafka events:1 offset 80",
        "in files 1 of 3 known files read, 120 bytes, then /in/b from byte 20 on",
        "made generated 900 rows",
        "other other 12",
        "watermark 2018-12-19T01:50:20.000Z",
        "out 7 rows 70 B dt=20181219/part-0-0\nout 5 rows 50 B dt=20181219/part-1-0",
        "per-minute stateful\nwindow-0 stateful not named",
        "state 128 key groups",
        "sink out 120 B",
        "all digests hold",
    ):
        assert said in text, f"{said!r} is not in\n{text}"
    found = as_json(capsys, "inspect", savepoint.root)
    assert found["sources"]["clicks"]["counted"] == {"events:0": 120, "events:1": 80}
    assert found["sources"]["in"]["files_read"] == 1
    assert found["operators"]["window-0"] == {"kind": "stateful", "named": False, "made_of": {}}
    assert found["pending"] == {
        "out": [
            {"path": "dt=20181219/part-0-0", "rows": 7, "bytes": 70},
            {"path": "dt=20181219/part-1-0", "rows": 5, "bytes": 50},
        ],
        "late": [],
    }
    assert found["sizes"]["state"] == 50
    assert found["bytes"] == sum(found["sizes"].values()) == sum(len(v) for k, v in before.items() if k != METADATA)
    assert (found["checkpoint"], found["watermark_ms"], found["damage"]) == (CHECKPOINT, 1_545_184_220_000, [])
    assert files_of(savepoint.root) == before


def test_of_an_empty_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "inspect", save(tmp_path, positions={}, sinks={}, checkpoint=-1).root)
    assert (found["sources"], found["watermark_ms"], found["state"]) == (
        {},
        None,
        {"key_groups": None, "operators": []},
    )


@pytest.mark.parametrize("path", ["sinks/out/.out.part-0-0.inprogress.tag-1-0", f"state/{JOB_ID}/stage-1.arrow"])
def test_a_truncated_file_is_told_in_two_lines(
    savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    file = Path(savepoint.root, path)
    file.write_bytes(file.read_bytes()[:1])
    what, next = poundlock(capsys, "savepoint", "inspect", savepoint.root, code=2)
    assert f"is damaged: {path} has 1 bytes instead of" in what
    assert next.startswith("Next: copy it again")
    if path.startswith("sinks"):
        assert inspect(savepoint, check=False).damage is None
        assert (
            "digests were not compared" in poundlock(capsys, "savepoint", "inspect", savepoint.root, "--no-check")[-1]
        )
        Path(savepoint.root, f"state/{JOB_ID}/stage-1.arrow").unlink()
        assert main(["savepoint", "inspect", savepoint.root, "--json"]) == 2
        said = json.loads(capsys.readouterr().out)
        assert {wrong["path"] for wrong in said["damage"]} == {path, f"state/{JOB_ID}/stage-1.arrow"}


def test_the_folder_that_savepoints_were_taken_in_names_one(
    savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    Path(savepoint.root).rename(taken / "savepoint-a")
    what, next = poundlock(capsys, "savepoint", "inspect", str(taken), code=2)
    assert what == f"error: {taken} is a folder of savepoints, and none itself [PL-0702]"
    assert next == f"Next: give the one that is meant: {taken}/savepoint-a"
    shutil.copytree(taken / "savepoint-a", taken / "savepoint-b")
    assert poundlock(capsys, "savepoint", "inspect", str(taken), code=2)[1].endswith(
        "savepoint-b, or one of the other 1"
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / METADATA).unlink(), "was not copied whole"),
        (lambda folder: (folder / METADATA).write_text('{"v": 99}'), "format 99 is not known"),
        (lambda folder: (folder / METADATA).write_text('{"v": 1'), "cannot be read"),
        (lambda folder: (folder / METADATA).write_text('{"v": 1}'), "it was taken by poundlock 0.1"),
        (lambda folder: folder.rename(folder.parent / "away"), "there is no savepoint in"),
    ],
)
@pytest.mark.parametrize("verb", ["inspect", "diff", "edit", "-d"])
def test_what_is_no_savepoint_is_told_in_two_lines(
    savepoint: LocalStorage, capsys: pytest.CaptureFixture[str], damage: Any, said: str, verb: str
) -> None:
    damage(Path(savepoint.root))
    before = files_of(Path(savepoint.root).parent)
    more = {"diff": [savepoint.root], "edit": ["--drop-operator", "out"]}.get(verb, [])
    what, next = poundlock(capsys, "savepoint", verb, savepoint.root, *more, code=2)
    assert said in what
    assert next.startswith("Next: ")
    assert files_of(Path(savepoint.root).parent) == before


def test_two_savepoints_are_compared(
    savepoint: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = save(
        tmp_path,
        positions={
            "clicks": {"events": {"0": 150, "1": 80, "2": 4}},
            "in": {**AT_FILE, "offset": 50},
            "made": {"row": 1000, "from_ms": 7},
        },
        state=["per-minute"],
        watermark=1_545_184_225_000,
        sinks={"out": [("part-1-0", 6), ("part-2-0", 1)]},
        more=[("sources/in/log/00000000000000000000.json", LOG)],
    )
    text = "\n".join(
        " ".join(line.split()) for line in poundlock(capsys, "savepoint", "diff", savepoint.root, after.root)
    )
    for said in (
        "source clicks events:0 120 -> 150 +30 records",
        "source clicks events:2 - -> 4",
        "source in 120 -> 150 +30 bytes",
        "source made 900 -> 1000 +100 records",
        "source other 12 -> -",
        "watermark 2018-12-19T01:50:20.000Z -> 2018-12-19T01:50:25.000Z +5,000 ms",
        "operator late sink -> -",
        "operator window-0 stateful (not named) -> -",
        "pending file of out dt=20181219/part-0-0 7 rows, 70 bytes -> -",
        "pending file of out dt=20181219/part-1-0 5 rows, 50 bytes -> 6 rows, 60 bytes",
        "pending file of out dt=20181219/part-2-0 - -> 1 rows, 10 bytes",
        "size of sink out 120 B -> 70 B -50 bytes",
    ):
        assert said in text, f"{said!r} is not in\n{text}"
    assert "events:1" not in text
    back = as_json(capsys, "diff", after.root, savepoint.root)["differences"]
    assert {d["what"]: d["distance"] for d in back}["source clicks events:0"] == -30
    assert poundlock(capsys, "savepoint", "diff", after.root, after.root)[-1] == "nothing differs"


def test_a_job_may_be_called_as_a_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["-D", f"state_dir={tmp_path}"]
    for words in (["inspect-me", *state], ["take", "inspect", *state], ["--json", "nobody", *state]):
        assert "there is no job" in poundlock(capsys, "savepoint", *words, code=2)[0]
    assert "Missing JobID" in poundlock(capsys, "savepoint", code=2)[0]
    assert any("inspect" in line for line in poundlock(capsys, "savepoint", "--help"))


def test_a_position_of_no_known_form_is_left_as_it_is(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for position in ({"a": {"x": 1}}, {"a": {"0": True}}, {}, [1], "p", None, {"row": 1, "more": 2}):
        assert not is_kafka(position)
        assert reading(storage, "s", position).kind == "other"
    assert reading(storage, "s", AT_FILE).counted == {}, "its log is gone: how much was read is not known"
