"""Jobs that run beside a test, in threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def until_saved(run: Callable[..., None], folder: Path, lines: list[str]) -> Iterator[Callable[..., str]]:
    """Run a job in a thread; yield what waits until it has read so many rows and ends it with a savepoint, whose place is returned.

    Windows that the rows end come in the checkpoint that reads them. Raises what the job raises.

    Args:
        run: runs the job; takes `on_progress`, `stop` and `requests`.
        folder: of the savepoints.
        lines: gets the messages of the job.
    """
    stop, requests, seen = StopRequest(), Requests(), list[Progress]()
    failure: list[BaseException] = []

    def note(progress: Progress) -> None:
        seen.append(progress)
        lines.append(progress.message)

    def work() -> None:
        try:
            run(on_progress=note, stop=stop, requests=requests)
        except BaseException as error:
            failure.append(error)

    def wait(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 400
        while not failure and not done():
            assert time.monotonic() < deadline, seen[-1:]
            time.sleep(0.05)

    def save(rows: int, **more: Any) -> str:
        wait(lambda: any(p.rows_read >= rows for p in seen))
        trigger = requests.trigger("savepoint", directory=str(folder), then="stop", **more)
        wait(lambda: trigger.wait(0))
        return str(trigger.location)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield save
    finally:
        stop.stop()
        thread.join()
    if failure:
        raise failure[0]
