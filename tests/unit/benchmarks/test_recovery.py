"""The proof behind the times of a recovery: every event in one finished file, and each way to be wrong is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.data import WrongOutput
from benchmarks.jobs.life import durations_ms
from benchmarks.recovery import prove
from poundlock.storage import LocalStorage

pytestmark = pytest.mark.slow

EVERY = list(range(100))


def written(folder: Path, numbers: list[int], name: str = "part-1-0") -> LocalStorage:
    bucket = folder / "2018-12-19--01"
    bucket.mkdir(exist_ok=True)
    (bucket / name).write_text("".join(json.dumps({"number": n}) + "\n" for n in numbers))
    return LocalStorage(str(folder))


def test_every_event_once_passes(tmp_path: Path) -> None:
    written(tmp_path, EVERY[:60], "part-0-0")
    prove(written(tmp_path, EVERY[60:]), 100)


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        (EVERY[:-1], "1 are missing, and 0 came again"),
        ([*EVERY, 7], "0 are missing, and 1 came again"),
        ([7, *EVERY[:7], 7, *EVERY[8:]], "0 are missing, and 1 came again"),
        ([*EVERY, 100], "1 are none of them"),
        ([*EVERY[1:], 100], "1 are missing, and 0 came again, and 1 are none of them"),
    ],
    ids=["lost", "twice", "thrice", "of another run", "instead"],
)
def test_what_is_not_every_event_once_is_seen(tmp_path: Path, numbers: list[int], fault: str) -> None:
    with pytest.raises(WrongOutput, match=fault):
        prove(written(tmp_path, numbers), 100)


def test_a_hidden_file_is_seen(tmp_path: Path) -> None:
    written(tmp_path, [], ".part-0-1.inprogress")
    with pytest.raises(WrongOutput, match="left behind"):
        prove(written(tmp_path, EVERY), 100)


def test_the_parts_of_a_start_add_up_to_it() -> None:
    over = {"imports": 11.0, "claim": 11.5, "recovery": 12.0, "JVM": 14.0, "session": 14.25, "first checkpoint": 15.0}
    took = durations_ms(10.0, over)
    assert took["imports ms"] == 1000
    assert took["JVM ms"] == 2000
    assert sum(took.values()) == 5000
