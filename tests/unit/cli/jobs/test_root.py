"""`list --root`: jobs of other users and machines by what they wrote into a folder that is shared."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from poundlock.checkpoint.epoch import DriverLock
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.main import main
from poundlock.control.control_files import put_entry
from poundlock.control.registry import now_ms, registered
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.rest_job import decision

IDS = {"orders": "a" * 32, "clicks": "b" * 32, "silent": "c" * 32, "bare": "d" * 32}


def write(folder: Path, name: str, *, age_ms: int | None = 0, **changes: object) -> LocalStorage:
    """Make a checkpoint folder of a job on another machine, whose driver wrote so long ago; None = no driver wrote."""
    storage = LocalStorage(str(folder / name))
    open_identity(storage, name=name, clock=SystemClock(), job_id=IDS[name])
    Ledger(storage).append(replace(decision(0, 17), job_id=IDS[name], time_ms=now_ms() - 90_000))
    if age_ms is not None:
        entry = registered(
            job_id=IDS[name],
            name=name,
            checkpoint_dir=storage.root,
            log=folder / "log",
            job_file="job.py",
            arguments=(),
        )
        entry = replace(entry, host="other", pid=7, state="RUNNING", written_ms=now_ms() - age_ms)
        put_entry(storage, replace(entry, **changes))  # type: ignore[arg-type]
    return storage


@pytest.fixture
def root(own_folder: Path, tmp_path: Path) -> Iterator[Path]:
    shared = tmp_path / "shared"
    orders = write(shared / "team-a", "orders", age_ms=2_000)
    write(shared / "team-b" / "prod", "clicks", state="FINISHED", ended_ms=5, exit_code=0)
    write(shared, "bare", age_ms=None)
    (shared / "notes.txt").write_text("no job")
    (shared / "empty").mkdir()
    with DriverLock.acquire(orders, clock=SystemClock()):
        yield shared


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_running_jobs_of_other_machines_with_the_age_of_what_they_wrote(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, line, _, scheduled = lines(capsys, "--root", str(root))
    assert "Running/Restarting Jobs" in title
    assert line.partition(" : ")[2].startswith(f"{IDS['orders']} : orders (RUNNING) on other, checkpoint 17 decided ")
    assert re.search(r", its driver wrote (?:[2-9]|[1-9][0-9]) s ago$", line)
    assert scheduled == "No scheduled jobs."


def test_ended_ones_and_those_of_which_no_driver_wrote(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(lines(capsys, "--root", str(root), "-a"))
    assert f"{IDS['clicks']} : clicks (FINISHED) on other" in text
    assert f"- : {IDS['bare']} : bare (UNKNOWN) checkpoint 17 decided" in text
    data = json.loads("\n".join(lines(capsys, "--root", str(root), "-a", "--json")))
    assert [(job["name"], job["state"], job["host"], job["checkpoint"]) for job in data] == [
        ("orders", "RUNNING", "other", 17),
        ("bare", "UNKNOWN", None, 17),
        ("clicks", "FINISHED", "other", 17),
    ]
    assert all(90_000 <= job["decision_age_ms"] < 600_000 for job in data)
    assert data[1]["written_age_ms"] is None


def test_a_job_that_has_only_begun(own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = write(tmp_path, "silent")
    Ledger(storage).append(replace(decision(1, -1, "start"), job_id=IDS["silent"], time_ms=now_ms()))
    assert "no checkpoint yet, begun" in "\n".join(lines(capsys, "--root", str(tmp_path), "-a"))


def test_a_driver_that_went_silent_does_not_run(
    own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = write(tmp_path, "silent", age_ms=3_600_000)
    os.utime(Path(storage.root) / "control/driver.json", (1, 1))
    assert lines(capsys, "--root", str(tmp_path)) == ["No running jobs.", "No scheduled jobs."]
    assert "silent (FAILED, gone) on other" in "\n".join(lines(capsys, "--root", str(tmp_path), "-a"))


def test_a_folder_that_is_damaged_hides_no_other(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "team-a" / "damaged").mkdir()
    (root / "team-a" / "damaged" / "job.json").write_text("{")
    (record,) = (root / "bare" / "ledger").glob("*.json")
    record.write_text("{")
    text = "\n".join(lines(capsys, "--root", str(root), "-a"))
    assert "orders (RUNNING)" in text
    assert "damaged (UNKNOWN)" in text
    assert "bare (UNKNOWN)" in text


def test_what_is_no_root_is_refused(own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--root", str(tmp_path)]) == 2
    assert "no job has a checkpoint folder in" in capsys.readouterr().err
    assert main(["list", str(tmp_path), "--root", str(tmp_path)]) == 2
    assert "both a folder and --root are given" in capsys.readouterr().err
