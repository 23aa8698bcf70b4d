"""What a user gets for bad input, as real command lines: two lines on standard error, an exit code, and nothing changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.control.registry import JobEntry, Registry, registered
from poundlock.rest.server import RestServer, take_port
from poundlock.savepoint.metadata import METADATA
from support.error_lines import bare
from support.rest_job import ID, TOKEN, observed
from support.saved import files_of, save

pytestmark = pytest.mark.slow

OTHER = "c0ff00" + "0" * 26
JOB = """
from poundlock import DatagenSource, FileSink, Job
job = Job({name!r}, checkpoint_dir="checkpoint")
job.from_source(DatagenSource(count=1), name="events").sink_to(FileSink("out", row="value"), name="out")
"""


class Terminal:
    """A folder with a job, a savepoint, and whatever else is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        (folder / "job.py").write_text(JOB.format(name="made"))
        (folder / "other.py").write_text(
            JOB.format(name="other").replace("events", "clicks").replace('"out")', '"files")')
        )
        self.savepoint = Path(save(folder / "saved", positions={"events": {"offset": 5}}).root)

    def fails(self, *arguments: str, code: int = 2) -> str:
        """Run a command that is refused, and changes nothing but a log; return its two lines."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("POUNDLOCK_")}
        before = self.files()
        done = subprocess.run(
            [sys.executable, "-m", "poundlock", *arguments],
            cwd=self.folder,
            env={**environment, "POUNDLOCK_STATE_DIR": str(self.folder / "state")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done
        what, next = map(bare, done.stderr.splitlines())
        assert what.startswith("error: "), what
        assert next.startswith("Next: "), next
        assert len(next) > len("Next: ") + 8
        assert "Traceback" not in done.stdout
        assert self.files() == before
        assert not (self.folder / "checkpoint").exists()
        return f"{what}\n{next}\n"

    def files(self) -> dict[str, bytes]:
        return {path: data for path, data in files_of(self.folder).items() if not path.startswith("state/logs/")}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def half(folder: Path) -> None:
    (folder / METADATA).unlink()


def cut_off(folder: Path) -> None:
    path = next(folder.rglob("sinks/**/.*"))
    path.write_bytes(path.read_bytes()[:-1])


def cut_off_metadata(folder: Path) -> None:
    (folder / METADATA).write_bytes((folder / METADATA).read_bytes()[:-100])


def of_a_later_version(folder: Path) -> None:
    said = json.loads((folder / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps({**said, "v": 99}))


RUN = ("run", "job.py", "-s", "PATH", "-D", "master=local[1]")
INSPECT, DISPOSE = ("savepoint", "inspect", "PATH"), ("savepoint", "-d", "PATH")
EDIT = ("savepoint", "edit", "PATH", "--drop-operator", "out")


@pytest.mark.parametrize(
    ("damage", "commands", "said"),
    [
        (half, (RUN, INSPECT, DISPOSE), f"has no {METADATA}: it was not copied whole"),
        (cut_off, (RUN, INSPECT, EDIT), "bytes instead of"),
        (cut_off_metadata, (RUN, EDIT), "cannot be read"),
        (of_a_later_version, (RUN, INSPECT, DISPOSE), "format 99 is not known to this version"),
    ],
)
def test_a_savepoint_that_is_not_whole_or_not_known(
    terminal: Terminal, damage: Callable[[Path], None], commands: Sequence[Sequence[str]], said: str
) -> None:
    damage(terminal.savepoint)
    for command in commands:
        text = terminal.fails(*(str(terminal.savepoint) if word == "PATH" else word for word in command))
        assert said in text
        assert str(terminal.savepoint) in text


def test_a_savepoint_of_another_job(terminal: Terminal) -> None:
    text = terminal.fails("run", "other.py", "-s", str(terminal.savepoint))
    assert f"the savepoint {terminal.savepoint} is of job 'made', and 'other' has no operator in common with it" in text


def test_no_savepoint_and_options_without_one(terminal: Terminal) -> None:
    assert "there is no savepoint in" in terminal.fails("run", "job.py", "-s", "missing")
    assert "none is given" in terminal.fails("run", "job.py", "-n")
    assert "--on-newer-output=ask is not known" in terminal.fails("run", "job.py", "-s", "x", "--on-newer-output=ask")


def test_operators_without_a_name_are_in_the_log_of_every_run(terminal: Terminal) -> None:
    (terminal.folder / "job.py").write_text(JOB.format(name="made").replace(', name="out"', ""))
    terminal.fails("run", "job.py", "-s", "missing")
    (log,) = (terminal.folder / "state" / "logs").glob("made*.log")
    lines = map(json.loads, log.read_text().splitlines())
    (said,) = (line for line in lines if line["message"].startswith("operators without a name"))
    assert said["ids"] == ["sink-0"]


def entry(job_id: str = ID, **changes: Any) -> JobEntry:
    made = registered(
        job_id=job_id,
        name="orders",
        checkpoint_dir="c",
        log=Path("orders.log"),
        job_file="job.py",
        arguments=["job.py"],
    )
    return replace(made, **{"state": "RUNNING", **changes})


@pytest.fixture
def served(terminal: Terminal) -> Iterator[Terminal]:
    """A job that answers by REST: it takes what is asked of it, and would note it."""
    job, _ = observed(terminal.folder / "ledger")
    server = RestServer(take_port("127.0.0.1", 0), TOKEN)
    running = Registry(terminal.folder / "state").register(entry(rest=server.address), TOKEN)
    server.start(job)
    terminal.token = Path(running.entry.token_file or "")
    yield terminal
    server.close()
    assert not job.stop.stopping
    assert not job.stop.canceling
    assert job.requests.take() is None


COMMANDS = (("stop",), ("cancel",), ("cancel", "-s", "saved"), ("savepoint",), ("checkpoint",))


@pytest.mark.parametrize("command", [*COMMANDS, ("info",), ("logs",), ("checkpoints",)])
def test_an_id_that_nobody_has_and_the_beginning_of_two(served: Terminal, command: Sequence[str]) -> None:
    assert "ffff" in served.fails(*command, "ffff")
    Registry(served.folder / "state").register(entry(OTHER))
    text = served.fails(*command, "c0ff")
    assert ID in text
    assert OTHER in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_token(served: Terminal, command: Sequence[str]) -> None:
    served.token.write_text("wrong")
    assert "does not take the token" in served.fails(*command, "orders")


def test_a_port_that_is_taken(terminal: Terminal) -> None:
    with take_port("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        text = terminal.fails("run", "job.py", "-s", str(terminal.savepoint), "-D", f"rest.port={port}")
    assert f"127.0.0.1:{port}" in text
