"""`poundlock run --restart`: this process stays small, and runs the job in another one as long as that one crashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.config import Settings


def supervise(target: str, arguments: Sequence[str], settings: Settings, output: Output) -> int:
    """Run a job in a process of its own until its end, and return its exit code.

    Raises PoundlockError: the process crashed, and the restart strategy has given up.
    """
    from poundlock.checkpoint.identity import new_job_id
    from poundlock.control.process_id import process_start
    from poundlock.control.registry import Registry, now_ms
    from poundlock.control.supervisor import Supervisor
    from poundlock.control.supervisor_link import Situation
    from poundlock.driver.restart import ExponentialDelayRestart, restart_strategy, strategy_from_json

    return Supervisor(
        command=[sys.executable, "-m", "poundlock", "run", target, *arguments],
        registry=Registry(settings.state_dir),
        strategy=restart_strategy(settings) or ExponentialDelayRestart(),
        situation=Situation(
            pid=os.getpid(), process_start=process_start(os.getpid()) or "", started_ms=now_ms(), job_id=new_job_id()
        ),
        strategy_of=strategy_from_json,
        say=output.note,
    ).run()
