"""Jobs that run beside a test, in threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poundlock import Job
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests


def settings(folder: Path, checkpoint: str = "checkpoint") -> Any:
    return load_settings([f"state_dir={folder}/state", f"checkpoint_dir={folder}/{checkpoint}", "master=local[2]"])


class Running:
    """A job that runs in a thread of its own."""

    def __init__(self, job: Job, settings: Any, **more: Any) -> None:
        self.stop, self.requests, self.progress = StopRequest(), Requests(), Progress("INITIALIZING")
        self.failure: BaseException | None = None
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(job, settings), kwargs=more, daemon=True)
        self._thread.start()

    def _run(self, job: Job, settings: Any, **more: Any) -> None:
        def note(progress: Progress) -> None:
            self.progress = progress
            self.lines.append(progress.message)

        try:
            run(job, settings=settings, stop=self.stop, requests=self.requests, on_progress=note, **more)
        except BaseException as error:
            self.failure = error

    def until(self, reached: Callable[[], bool], patience_s: float = 400) -> None:
        deadline = time.monotonic() + patience_s
        while not reached():
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, self.progress
            time.sleep(0.05)

    def end(self) -> None:
        self._thread.join(400)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure
