"""How a run is shown and stopped, without Spark: watchers, signals, and what becomes of a job that cannot start."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.cli.output import Output
from poundlock.cli.progress_display import status_line, watcher
from poundlock.cli.signals import signals_asking
from poundlock.control.process_id import CANCEL
from poundlock.driver.progress import Progress, StopRequest
from support.error_lines import bare

pytestmark = pytest.mark.slow

RUNNING = Progress(
    state="RUNNING",
    checkpoint=12,
    rows_read=3_120_000,
    rows_written=3_119_990,
    rows_per_s=48_210.4,
    lag=1204,
    last_ms=1230,
    files_finished=7,
)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress("INITIALIZING"), "INITIALIZING"),
        (
            RUNNING,
            "RUNNING  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  7 files  last 1.2 s",
        ),
        (
            replace(RUNNING, lag=None, dead_lettered=10, skipped=2, restarts=1),
            "RUNNING  checkpoint 12  48,210 rows/s  3,120,000 rows  7 files  10 dead letters  2 skipped  last 1.2 s"
            "  1 restart",
        ),
        (
            replace(RUNNING, watermark=1_545_184_226_432, held_by="clicks-1 of time"),
            "RUNNING  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  7 files"
            "  watermark 2018-12-19T01:50:26.432Z held by clicks-1 of time  last 1.2 s",
        ),
        (
            Progress("FINISHED", files_finished=1),
            "FINISHED  1 file",
        ),
        (
            replace(RUNNING, watermark=2**63 - 1),
            "RUNNING  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  7 files  watermark at the end  last 1.2 s",
        ),
        (
            replace(RUNNING, held_by="clicks-1 of time"),
            "RUNNING  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  7 files  watermark - held by clicks-1 of time"
            "  last 1.2 s",
        ),
    ],
)
def test_status_line(progress: Progress, line: str) -> None:
    assert status_line(progress) == line


def test_plain_output_has_a_line_a_change() -> None:
    out = io.StringIO()
    with watcher("a", Path("/l/a.log"), Output(out=out)) as watch:
        watch.update(Progress("INITIALIZING"))
        watch.update(RUNNING)
        watch.update(replace(RUNNING, checkpoint=13))
        watch.update(replace(RUNNING, state="RESTARTING", message="a broker is away"))
        watch.update(replace(RUNNING, checkpoint=14))
        watch.say("stopping")
        watch.done(replace(RUNNING, state="FINISHED", checkpoint=15))
    assert [line.split("  ")[:2] for line in out.getvalue().splitlines()] == [
        ["job a, log /l/a.log"],
        ["RUNNING", "checkpoint 12"],
        ["RESTARTING", "a broker is away"],
        ["RUNNING", "checkpoint 14"],
        ["stopping"],
        ["FINISHED", "checkpoint 15"],
    ]


def test_a_job_that_ends_with_a_message_has_its_end_line_too() -> None:
    out = io.StringIO()
    with watcher("a", Path("/l/a.log"), Output(out=out)) as watch:
        watch.update(RUNNING)
        ended = replace(RUNNING, state="FINISHED", message="Savepoint completed. Path: /s", files_finished=8)
        watch.update(ended)
        watch.done(ended)
    *_, message, end = out.getvalue().splitlines()
    assert message == "FINISHED  Savepoint completed. Path: /s"
    assert end == "FINISHED  checkpoint 12  48,210 rows/s  lag 1,204  3,120,000 rows  8 files  last 1.2 s"


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_shown_of_a_job_that_never_ran(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error says it all. Of a job that ran, the error is the last that is said."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    shown = []
    for first in (Progress("INITIALIZING"), replace(RUNNING, message="going")):
        out = _Terminal() if terminal else io.StringIO()
        with watcher("a", Path("/l/a.log"), Output(out=out)) as watch:
            if first.message:
                watch.update(first)
            watch.update(replace(first, state="FAILED", message=""))
        # What is drawn in place and taken back is not what stays.
        shown.append([line for line in out.getvalue().splitlines() if "\x1b" not in line and line.strip()])
        assert "FAILED" not in out.getvalue()
    assert shown[0] == []
    assert [line.strip() for line in shown[1]][-1].endswith("going")


def test_json_output_is_one_object_a_change_and_nothing_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    with watcher("a", Path("/l/a.log"), Output(as_json=True, out=out, err=err)) as watch:
        watch.update(RUNNING)
        watch.say("stopping")
        watch.done(replace(RUNNING, state="FINISHED"))
    objects = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [each["state"] for each in objects] == ["RUNNING", "FINISHED"]
    assert objects[0]["rows_read"] == 3_120_000
    assert set(objects[0]) == set(Progress.__slots__) - {"load", "timeline", "newest_failed"}
    assert err.getvalue() == "stopping\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_line_and_messages_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out = _Terminal()
    with watcher("a", Path("/l/a.log"), Output(out=out)) as watch:
        watch.update(replace(RUNNING, message="restored [topic=t] at 5"))
        watch.update(RUNNING)
        watch.done(replace(RUNNING, state="FINISHED"))
    text = out.getvalue()
    assert "restored [topic=t] at 5\n" in text.replace("\r", "")
    assert "FINISHED  checkpoint 12" in text
    assert "\x1b[" in text


def test_a_closed_pipe_does_not_reach_the_job() -> None:
    out = io.StringIO()
    with watcher("a", Path("/l"), Output(out=out)) as watch:
        out.close()
        watch.update(RUNNING)
        watch.say("x")


_PROGRAM = """
import os, sys, time
from poundlock.cli.signals import signals_asking
from poundlock.driver.progress import StopRequest
stop = StopRequest()
said = []
def say(text):
    os.write(1, text.split(":")[0].encode() + b"\\n")
    said.append(text)
with signals_asking(stop, say) as signals:
    print("ready", flush=True)
    while not stop.canceling or len(said) < 2:
        stop.wait(0.05) or time.sleep(0.05)
        time.sleep(0.02)
    print(stop.stopping, stop.canceling, signals.count, signals.newest, flush=True)
    time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_stops_second_cancels_third_ends(number: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for expected in ("ready", "stopping", "stopping hard"):
            assert process.stdout.readline().strip() == expected
            if expected != "stopping hard":
                process.send_signal(number)
        assert process.stdout.readline().split() == ["True", "True", "2", str(int(number))]
        process.send_signal(number)
        assert process.wait(300) == 128 + number
    finally:
        process.kill()
        process.wait()


def test_a_cancel_is_both_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.replace("< 2", "< 1")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "ready"
        process.send_signal(CANCEL)
        assert process.stdout.readline().strip() == "stopping hard", "nothing is said of a clean stop"
        assert process.stdout.readline().split() == ["True", "True", "2", str(int(signal.SIGINT))]
        process.send_signal(CANCEL)
        assert process.wait(300) == 130
    finally:
        process.kill()
        process.wait()


def test_a_cancel_that_comes_too_late_ends_nothing() -> None:
    """The job's last word is written behind the handlers."""
    before = signal.getsignal(CANCEL)
    try:
        with signals_asking(StopRequest(), print):
            pass
        assert signal.getsignal(CANCEL) == signal.SIG_IGN
        os.kill(os.getpid(), CANCEL)
    finally:
        signal.signal(CANCEL, before)


def _run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(textwrap.dedent(text))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("POUNDLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "poundlock", "run", "job.py", "-D", f"state_dir={folder}/state", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_job_without_a_sink_is_told_in_two_lines_and_in_the_log(tmp_path: Path) -> None:
    done = _run(tmp_path, "from poundlock import Job\njob = Job('lonely')\n")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: job 'lonely' has no sink [PL-0102]",
        "Next: end a stream with .sink_to(…)",
    ]
    (log,) = (tmp_path / "state" / "logs").glob("lonely-*.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["message"] == "run"
    assert "DefinitionError" in lines[-1]["exception"]


def test_a_log_folder_that_is_not_writable_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = _run(tmp_path, "from poundlock import Job\njob = Job('a')\n", "-D", f"log_dir={tmp_path}/file/logs")
    assert done.returncode == 2
    assert "log folder" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def supervised(folder: Path, job: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(job)
    return subprocess.run(
        [sys.executable, "-m", "poundlock", "run", "--restart", "job.py", *more],
        cwd=folder,
        env={**os.environ, "POUNDLOCK_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


COUNTED = """
with open("lives", "a") as lives:
    lives.write("a life\\n")
"""


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (f"{COUNTED}\nraise ValueError('as the user wrote it')", "as the user wrote it"),
        (
            f"{COUNTED}\nfrom poundlock import *\njob = Job('a')\n"
            "job.from_source(FileSource('nowhere'), name='in').sink_to(FileSink('out', row='value'), name='out')",
            "nowhere",
        ),
    ],
)
def test_a_users_mistake_is_told_once_and_not_started_again(tmp_path: Path, job: str, said: str) -> None:
    done = supervised(tmp_path, job)
    assert done.returncode == 2
    what, next = done.stderr.splitlines()
    assert said in what
    assert next.startswith("Next: ")
    assert (tmp_path / "lives").read_text().count("\n") == 1


def test_a_process_that_always_dies_ends_at_the_limit_of_the_settings(tmp_path: Path) -> None:
    done = supervised(
        tmp_path,
        f"{COUNTED}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        *("-D", "restart-strategy.fixed-delay.attempts=2", "-D", "restart-strategy.fixed-delay.delay=1 ms"),
    )
    assert done.returncode == 3
    assert (tmp_path / "lives").read_text().count("\n") == 3
    lines = [bare(line) for line in done.stderr.splitlines()]
    assert [line.split("; ")[0] for line in lines[:2]] == ["the job's process was killed by SIGKILL"] * 2
    assert lines[2] == "error: the job's process was killed by SIGKILL"
    assert lines[3].startswith("Next: nothing is lost")


@pytest.mark.parametrize(
    ("arguments", "what", "next"),
    [
        ([], "--standby: job made has no checkpoint folder of its own", "-D checkpoint_dir=s3://bucket/job"),
        (
            ["--restart", "-D", "checkpoint_dir=c"],
            "--restart starts the process of a driver again",
            "leave --restart out",
        ),
        (
            ["-s", "savepoint", "-D", "checkpoint_dir=c"],
            "-s begins a job with a savepoint",
            "begin it without --standby",
        ),
        (
            ["--master", "yarn", "--deploy-mode", "cluster", "-D", "checkpoint_dir=c"],
            "--standby has a second driver wait on a machine",
            "leave --standby out",
        ),
        (
            ["-D", "lease_duration=1 s", "-D", "checkpoint_dir=c"],
            "a lease of less than 2 s would expire",
            "set it to 6 s",
        ),
    ],
)
def test_what_cannot_stand_by_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], what: str, next: str
) -> None:
    text = """
        from poundlock import DatagenSource, FileSink, Job

        job = Job("made")
        job.from_source(DatagenSource(count=1), name="made").sink_to(FileSink("out", row="value"), name="files")
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(text))
    assert main(["run", str(tmp_path / "job.py"), "--standby", *arguments, "-D", f"state_dir={tmp_path}"]) == 2
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert what in first
    assert next in second
    assert not (tmp_path / "c").exists()
