"""`poundlock run -d` and `run --restart`: the job as a process of its own, which goes on when the terminal is closed, or which this
process, staying small, starts again as long as it crashes.

Whoever detached it gets the job's id once it runs, or the two lines it failed with.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from poundlock.checkpoint.identity import new_job_id
from poundlock.cli.output import Output
from poundlock.config import Settings
from poundlock.control.logs import stamped
from poundlock.control.process_id import process_start
from poundlock.control.registry import JobEntry, Registry, now_ms
from poundlock.control.supervisor import Situation, Supervisor
from poundlock.driver.restart import ExponentialDelayRestart, restart_strategy, strategy_from_json
from poundlock.errors import PoundlockError, refusing

_POLL_S = 0.1
UNDER_WAY = ("RUNNING", "RESTARTING", "FINISHED")
_RESTORED = re.compile(
    r"^[A-Z]+  ((?:Restored from|Rescaling|Not restored|Not in the savepoint|Not looked at).*)$", re.MULTILINE
)
_FAILED = re.compile(r"^error: (.*) \[(PL-\d{4})\]\nNext: (.*)$", re.MULTILINE)


def detach(target: str, arguments: Sequence[str], settings: Settings, output: Output) -> int:
    """Start a job as a process of its own and wait until it runs or has failed; return the exit code.

    Raises:
        DefinitionError: the folder of logs cannot be written.
    """
    since, path = now_ms(), settings.logs / stamped(Path(target.partition(":")[0]).stem, ".out")
    process = _start(_command(target, arguments), path)
    entry = _wait(process, since, settings)
    if entry is not None and entry.state in UNDER_WAY:
        for line in _RESTORED.findall(_read(path)):  # what it printed of the savepoint it began with
            output.note(line)
        if entry.state == "RESTARTING" and entry.failure is not None:
            output.note(f"the job is restarting: {entry.failure[0]}")
        data = {name: getattr(entry, name) for name in ("job_id", "name", "pid", "state", "log")}
        output.show(f"Job has been submitted with JobID {entry.job_id}", {**data, "output": str(path)})
        return 0
    code = process.wait()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    failures = _FAILED.findall(_read(path))
    if entry is not None and entry.failure is not None:
        failures.insert(0, (entry.failure[0], entry.failure_code, entry.failure[1]))
    what, failure_code, next = (
        failures[-1] if failures else (f"the job ended before it ran ({how})", "", f"read {path}")
    )
    error = PoundlockError(what, next=next, code=failure_code)
    output.error(error)
    return 128 - code if code < 0 else code or error.exit_code


def _command(target: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "poundlock", "run", target, *arguments]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _start(command: Sequence[str], path: Path) -> subprocess.Popen[bytes]:
    with refusing(f"{path.parent} cannot be written", next="set log_dir to a folder of yours: -D log_dir=…"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )


def _wait(process: subprocess.Popen[bytes], since_ms: int, settings: Settings) -> JobEntry | None:
    """Return the job's entry once it is under way or has ended; None if it ended before it had one."""
    registry = Registry(settings.state_dir)
    while True:
        over = process.poll() is not None
        entry = registry.of_process(process.pid)
        if entry is not None and entry.started_ms >= since_ms:
            if entry.ended or entry.state in UNDER_WAY:
                return entry
        elif over:
            return None
        time.sleep(_POLL_S)


def supervise(target: str, arguments: Sequence[str], settings: Settings, output: Output) -> int:
    """Run a job in a process of its own until its end, telling its crashes, and return its exit code.

    Raises:
        PoundlockError: the process crashed, and the restart strategy has given up.
    """
    pid = os.getpid()
    return Supervisor(
        command=_command(target, arguments),
        registry=Registry(settings.state_dir),
        strategy=restart_strategy(settings) or ExponentialDelayRestart(),
        situation=Situation(pid=pid, process_start=process_start(pid) or "", started_ms=now_ms(), job_id=new_job_id()),
        strategy_of=strategy_from_json,
        say=output.note,
    ).run()
