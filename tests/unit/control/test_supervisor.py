"""The supervisor with real processes that are no jobs: what is started again and what is not, signals, and its own death."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.control.channel import SignalChannel
from poundlock.control.process_id import CANCEL, process_start
from poundlock.control.registry import Registry
from poundlock.control.supervisor import Ending, is_final
from poundlock.driver.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    strategy_from_json,
    strategy_json,
)

pytestmark = pytest.mark.slow

ID = "c0ffee" + "0" * 26

# A process that is listed like a job; each of its lives does what the next line of `lives` says.
CHILD = """
import dataclasses, os, signal, sys, time
from pathlib import Path
from poundlock.driver.progress import StopRequest
from poundlock.control.registry import Registry, registered
from poundlock.driver.restart import FixedDelayRestart, strategy_json
from poundlock.control.supervisor import Ending, supervised

line = supervised()
its = line.situation
entry = registered(job_id=its.job_id, name="job", checkpoint_dir="c", log=Path("l"), job_file="j", arguments=[])
entry = dataclasses.replace(entry, pid=its.pid, process_start=its.process_start, started_ms=its.started_ms,
                            child=os.getpid(), process_restarts=its.restarts)
Registry(Path("state")).register(entry, "token").update(state="RUNNING")
print("life", its.restarts, os.getpid(), its.job_id, *(what for what, _ in its.troubles), sep="|", flush=True)
asked, stop = [], StopRequest()
def ask(number):
    asked.append(number)
    print("asked", number, sep="|", flush=True)
    (stop.stop if len(asked) == 1 else stop.cancel)()
lives = Path("lives").read_text().splitlines()
exec(lives[min(its.restarts, len(lives) - 1)].replace("; ", "\\n"))
"""

PARENT = """
import os, sys, time
from pathlib import Path
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError
from poundlock.control.process_id import process_start
from poundlock.control.registry import Registry
from poundlock.driver.restart import strategy_from_json
from poundlock.control.supervisor import Situation
from poundlock.control.supervisor import Supervisor
import json

try:
    sys.exit(Supervisor(
        command=[sys.executable, "child.py"],
        registry=Registry(Path("state")),
        strategy=strategy_from_json(json.loads(sys.argv[1])),
        situation=Situation(pid=os.getpid(), process_start=process_start(os.getpid()),
                            started_ms=time.time_ns() // 1_000_000, job_id=sys.argv[2]),
        strategy_of=strategy_from_json,
        say=lambda text: print("note", text, sep="|", flush=True),
    ).run())
except PoundlockError as error:
    Output(out=sys.stdout, err=sys.stdout).error(error)
    sys.exit(error.exit_code)
"""

QUICK = ExponentialDelayRestart(initial="10 ms", maximum="20 ms", attempts=5)


class Watched:
    """A supervisor and what it and its processes print, read line by line."""

    def __init__(self, folder: Path, lives: Sequence[str], strategy: RestartStrategy) -> None:
        self.folder = folder
        (folder / "child.py").write_text(textwrap.dedent(CHILD))
        (folder / "lives").write_text("\n".join(lives))
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, json.dumps(strategy_json(strategy)), ID],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[list[str]] = []

    def next(self, word: str) -> list[str]:
        """Return the next line that begins with a word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n").split("|"))
            if self.said[-1][0] == word:
                return self.said[-1]
        raise AssertionError(f"ended without {word!r}: {self.said}")

    def ended(self) -> int:
        """Read to the end and return the exit code."""
        assert self.process.stdout is not None
        self.said += [line.rstrip("\n").split("|") for line in self.process.stdout]
        return self.process.wait(120)

    def lives(self) -> list[list[str]]:
        return [words for words in self.said if words[0] == "life"]

    def entry(self) -> Any:
        (found,) = Registry(self.folder / "state").entries()
        return found


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Any]:
    made: list[Watched] = []

    def start(*lives: str, strategy: RestartStrategy = QUICK) -> Watched:
        made.append(Watched(tmp_path, lives, strategy))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
SLEEP = "line.listen(ask, stop); time.sleep(60)"
END = "line.end(Ending(state='FINISHED', exit_code=0, final=True, progress={'checkpoint': 7}))"


@pytest.mark.parametrize(
    ("code", "ending", "final"),
    [
        (0, None, True),
        (2, None, True),
        (4, None, True),
        (5, None, True),
        (130, None, True),
        (143, None, True),
        (1, None, False),
        (3, None, False),
        (137, None, False),
        (-signal.SIGKILL, None, False),
        (-signal.SIGSEGV, None, False),
        (-signal.SIGTERM, None, False),
        (1, Ending(state="FAILED", exit_code=1, final=True), True),
        (3, Ending(state="FAILED", exit_code=3, final=False), False),
    ],
)
def test_what_ends_the_job(code: int, ending: Ending | None, final: bool) -> None:
    assert is_final(code, ending) == final


@pytest.mark.parametrize(
    "strategy",
    [
        NoRestart(),
        FixedDelayRestart(attempts=3, delay="2 s"),
        FailureRateRestart(max_failures=4, interval="3 min", delay="1500 ms"),
        ExponentialDelayRestart(initial="250 ms", jitter=0.5, attempts=9),
    ],
)
def test_a_strategy_crosses_the_line_whole(strategy: RestartStrategy) -> None:
    assert strategy_from_json(json.loads(json.dumps(strategy_json(strategy)))) == strategy


def test_a_process_that_crashes_is_started_again_as_the_same_job(watched: Any) -> None:
    job = watched(KILL, "os._exit(3)", f"{END}; sys.exit(0)")
    assert job.ended() == 0
    lives = job.lives()
    assert [words[1] for words in lives] == ["0", "1", "2"]
    assert len({words[2] for words in lives}) == 3
    assert {words[3] for words in lives} == {ID}
    assert lives[2][4:] == ["the job's process was killed by SIGKILL", "the job's process ended with exit code 3"]
    entry = job.entry()
    assert (entry.state, entry.exit_code, entry.process_restarts, entry.pid) == ("FINISHED", 0, 2, job.process.pid)
    assert entry.progress == {"checkpoint": 7}
    assert not list((job.folder / "state" / "jobs").glob("*.token"))


@pytest.mark.parametrize("code", [2, 4, 5])
def test_what_starting_again_cannot_mend_ends_it(watched: Any, code: int) -> None:
    failure = f"line.end(Ending(state='FAILED', exit_code={code}, final=False, failure=('it is wrong', 'mend it')))"
    job = watched(f"{failure}; sys.exit({code})")
    assert job.ended() == code
    assert len(job.lives()) == 1
    assert (job.entry().state, job.entry().failure) == ("FAILED", ("it is wrong", "mend it"))


def test_a_job_whose_own_strategy_has_given_up_is_not_started_again(watched: Any) -> None:
    job = watched("line.end(Ending(state='FAILED', exit_code=3, final=True)); sys.exit(3)")
    assert job.ended() == 3
    assert len(job.lives()) == 1


def test_the_limit_of_restarts_is_the_jobs(watched: Any) -> None:
    job = watched(f"line.tell(strategy=strategy_json(FixedDelayRestart(attempts=2, delay='1 ms'))); {KILL}")
    assert job.ended() == 3
    assert len(job.lives()) == 3
    assert ["error: the job's process was killed by SIGKILL [PL-1203]"] in job.said
    assert job.said[-1][0].startswith("Next: nothing is lost")
    entry = job.entry()
    assert (entry.state, entry.exit_code, entry.process_restarts) == ("FAILED", 3, 2)
    assert entry.failure[0] == "the job's process was killed by SIGKILL"


def test_three_crashes_of_one_kind_without_a_checkpoint_end_it(watched: Any) -> None:
    crash = "os.kill(os.getpid(), signal.SIGABRT)"
    job = watched(crash)
    assert job.ended() == 4
    assert len(job.lives()) == 3
    assert "3 times in the same way" in job.entry().failure[0]


def test_a_checkpoint_in_between_is_progress(watched: Any) -> None:
    crash = "line.checkpointed(); os.kill(os.getpid(), signal.SIGABRT)"
    job = watched(crash, crash, crash, crash, f"{END}; sys.exit(0)")
    assert job.ended() == 0
    assert len(job.lives()) == 5


def test_signals_are_handed_on_with_their_meaning(watched: Any) -> None:
    clean = "line.listen(ask, stop); stop.wait(60); sys.exit(0)"
    job = watched(clean)
    job.next("life")
    job.process.send_signal(signal.SIGTERM)
    assert job.next("asked") == ["asked", str(int(signal.SIGTERM))]
    assert job.ended() == 0
    assert job.entry().state == "FINISHED"


def test_the_third_signal_ends_it_on_the_spot(watched: Any) -> None:
    job = watched("line.listen(ask, stop); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    job.next("life")
    for number in (signal.SIGINT, signal.SIGTERM):
        job.process.send_signal(number)
        job.next("asked")
    job.process.send_signal(signal.SIGTERM)
    assert job.ended() == 143
    assert job.entry().state == "CANCELED"
    assert len(job.lives()) == 1


# Ends as a job does that has nothing to finish: at the very moment in which it is asked, by whatever it sees then.
AT_ONCE = "line.listen(signals.ask, stop); stop.wait(60); sys.exit(130 if stop.canceling else 0)"
SIGNALS = "from poundlock.cli.signals import Signals; signals = Signals(stop, print)"


@pytest.mark.parametrize("many", range(5))
def test_a_cancel_is_one_signal_and_never_a_stop(watched: Any, many: int) -> None:
    """With two, a job that has nothing to finish had ended cleanly behind the first."""
    job = watched(f"{SIGNALS}; {AT_ONCE}")
    job.next("life")
    SignalChannel(job.entry()).ask("cancel")
    assert job.ended() == 130
    assert job.entry().state == "CANCELED"


def test_a_cancel_between_two_processes_starts_none(watched: Any) -> None:
    job = watched(KILL, SLEEP, strategy=FixedDelayRestart(attempts=9, delay="1 h"))
    job.next("note")
    SignalChannel(job.entry()).ask("cancel")
    assert job.ended() == 130
    assert (job.entry().state, len(job.lives())) == ("CANCELED", 1)


def test_a_second_cancel_ends_it_on_the_spot(watched: Any) -> None:
    job = watched("line.listen(ask, stop); time.sleep(60)")
    job.next("life")
    for _ in range(2):
        SignalChannel(job.entry()).ask("cancel")
        if not any(words[0] == "asked" for words in job.said):
            assert job.next("asked") == ["asked", str(int(CANCEL))]
    assert job.ended() == 130
    assert job.entry().state == "CANCELED"


def test_a_process_that_crashes_while_it_stops_is_not_started_again(watched: Any) -> None:
    job = watched(f"line.listen(ask, stop); stop.wait(60); {KILL}")
    job.next("life")
    job.process.send_signal(signal.SIGTERM)
    assert job.ended() == 3
    assert len(job.lives()) == 1


def test_a_stop_that_somebody_else_asked_for_ends_it_too(watched: Any) -> None:
    """As REST does: the job's process is asked, not the supervisor."""
    tell = "line.listen(ask, stop); stop.stop(); time.sleep(0.5)"
    job = watched(f"{tell}; {KILL}")
    assert job.ended() == 3
    assert len(job.lives()) == 1


def test_asked_to_stop_between_two_processes_it_starts_one_that_stops(watched: Any) -> None:
    job = watched(
        KILL, "line.listen(ask, stop); stop.wait(60); sys.exit(0)", strategy=FixedDelayRestart(attempts=9, delay="1 h")
    )
    job.next("note")
    assert job.entry().state == "RESTARTING"
    assert job.entry().rest is None
    job.process.send_signal(signal.SIGINT)
    assert job.ended() == 0
    assert [words[1] for words in job.lives()] == ["0", "1"]
    assert ["asked", str(int(signal.SIGINT))] in job.said


def test_a_process_ends_with_its_supervisor(watched: Any) -> None:
    job = watched(SLEEP)
    child = int(job.next("life")[2])
    handle = os.pidfd_open(child)
    try:
        job.process.kill()
        assert select.select([handle], [], [], 30)[0], "the child outlived its supervisor"
    finally:
        os.close(handle)
    assert process_start(child) is None
    job.process.wait()  # a process that ends lets its children know before it is gone itself
    entry = job.entry()
    assert (entry.state, entry.gone, entry.child) == ("FAILED", True, child)


def test_a_process_ends_with_its_supervisor_without_the_kernels_help(watched: Any) -> None:
    """The end of the line does it alone, as on a system that has no such signal."""
    job = watched(f"import ctypes; ctypes.CDLL(None).prctl(1, 0); {SLEEP}")
    child = int(job.next("life")[2])
    handle = os.pidfd_open(child)
    try:
        job.process.kill()
        assert select.select([handle], [], [], 30)[0], "the child outlived its supervisor"
    finally:
        os.close(handle)
