"""The command line with a real Spark: a new project runs, is stopped, goes on; failures end in two lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.connectors.files.sink.names import owner_tag

pytestmark = pytest.mark.engine


@pytest.fixture
def project(bare_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a job adds its folder
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    assert main(["new", "trial"]) == 0
    monkeypatch.chdir("trial")
    return bare_folder / "trial"


def _visible(project: Path) -> list[str]:
    """Return the lines of all finished files but the dead letters, sorted."""
    return sorted(
        line
        for path in (project / "output").rglob("*")
        if path.is_file() and not path.name.startswith(".") and "_dead_letters" not in path.parts
        for line in path.read_text().splitlines()
    )


def _events(project: Path) -> list[str]:
    return sorted(line for line in (project / "input" / "events.jsonl").read_text().splitlines() if line[0] == "{")


@contextmanager
def _running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "poundlock", "run", "job.py", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _run(*arguments: str) -> tuple[int, list[str], list[str]]:
    with _running(*arguments) as process:
        out, err = process.communicate(timeout=300)
        return process.returncode, out.splitlines(), err.splitlines()


def _job_id(project: Path) -> str:
    found: str = json.loads((project / "checkpoint" / "job.json").read_text())["job_id"]
    return found


def test_a_new_project_runs_to_its_end_and_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run("--json")
    assert (code, err) == (0, [])
    progress: list[dict[str, Any]] = [json.loads(line) for line in out]
    assert progress[-1]["state"] == "FINISHED"
    assert progress[-1]["rows_read"] == 2_001
    assert progress[-1]["dead_lettered"] == 1
    assert _visible(project) == _events(project)
    assert sorted(p.name for p in (project / "output").glob("dt=*")) == ["dt=20181219", "dt=20181220"]
    (letters,) = (p for p in (project / "output" / "_dead_letters").rglob("*") if p.is_file() and p.name[0] != ".")
    assert "this line is no event" in letters.read_text()
    logs = list((project / ".poundlock" / "logs").iterdir())
    assert any(path.name.startswith("trial-") and path.suffix == ".log" for path in logs)

    code, out, err = _run()
    assert (code, err) == (0, [])
    assert "FINISHED" in out[-1]
    assert _visible(project) == _events(project)

    # No code of the job is needed: its sinks said of themselves what it takes.
    capsys.readouterr()
    hidden = (
        next((project / "output").glob("dt=*")) / f".part-0-9.inprogress.{owner_tag(_job_id(project), 'files')}-0-0"
    )
    hidden.write_bytes(b"left behind")
    for path, fix, expected in (
        ("checkpoint", [], 1),
        ("job.py", [], 1),
        ("checkpoint", ["--fix"], 0),
        ("job.py", [], 0),
    ):
        assert main(["fsck", path, "--json", *fix]) == expected
        report = json.loads(capsys.readouterr().out)
        assert set(report["orphans"]) == {"files", "dead-letter"}
        assert not report["unchecked"]
    assert not hidden.exists()
    assert main(["files", "checkpoint", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)
    assert sum(file["rows"] for file in files) == 2_001
    assert all(file["min_event_ms"] for file in files if file["sink"] == "files")


def test_a_project_of_a_source_and_a_sink_runs_as_made(bare_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["new", "ends", "--from", "files", "--to", "files"]) == 0
    monkeypatch.chdir("ends")
    project = bare_folder / "ends"
    events = [
        json.dumps(
            {"at": 1_545_263_998_000 + number, "event": "page_view", "uuid": f"u{number}"}, separators=(",", ":")
        )
        for number in range(100)
    ]
    (project / "input" / "events.jsonl").write_text("\n".join([*events, *events[:30], "no event"]) + "\n")
    code, out, err = _run("--json")
    assert (code, err) == (0, [])
    assert json.loads(out[-1])["dead_lettered"] == 1
    assert _visible(project) == sorted(events)


def test_explain_names_the_stages(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "job.py"]) == 0
    out = capsys.readouterr().out
    assert "stage 1: source" in out
    assert "read, decode and write in one pass" in out
    assert "events" in out
    assert main(["explain", "job.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "trial"


def test_one_signal_stops_cleanly_with_every_file_finished(project: Path) -> None:
    text = (project / "job.py").read_text()
    (project / "job.py").write_text(text.replace('FileSource("input")', 'FileSource("input", watch=True)'))
    with _running("--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["rows_read"] == 2_001:
                break
        os.killpg(process.pid, signal.SIGTERM)  # as `timeout` and shells do: Java must not end by it
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out.splitlines()[-1])["state"] == "FINISHED"
    assert _visible(project) == _events(project)


def test_a_second_signal_stops_hard_and_the_next_run_loses_nothing(project: Path) -> None:
    text = (project / "job.py").read_text()
    (project / "job.py").write_text(text.replace('FileSource("input")', 'FileSource("input", watch=True)'))
    with _running("--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["state"] == "RUNNING":
                break
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        # The clean stop may have been quicker than the second signal.
        assert process.returncode in (0, 130)
    (project / "job.py").write_text(text)
    assert _run("--json")[0] == 0
    assert _visible(project) == _events(project)


def test_a_function_that_always_fails_ends_in_two_lines_that_name_it(project: Path) -> None:
    text = (project / "job.py").read_text()
    text = text.replace(
        "events.sink_to(",
        'def broken(record):\n    return 1 / 0\n\n\nevents = events.map(broken, schema="value binary")\nevents.sink_to(',
    )
    (project / "job.py").write_text(text)
    line = text.splitlines().index("    return 1 / 0") + 1
    code, _, err = _run(
        "-D", "on_error=fail", "-D", "restart-strategy.type=exponential-delay",
        "-D", "restart-strategy.exponential-delay.initial-backoff=100 ms",
    )  # fmt: skip
    assert code == 4
    assert len(err) == 2, err
    assert f"{project / 'job.py'}:{line} in broken: ZeroDivisionError" in err[0]
    assert "3 times" in err[0]
    assert err[1].startswith("Next: ")
