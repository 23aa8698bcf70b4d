"""What a program of a job does besides the job: it ends when a file is there, and notes when the parts of its start were over."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poundlock import Job
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.spark.launch.jvm import Jvm

__all__ = ["durations_ms", "noted", "watched"]

# The epoch is claimed, the newest decision is carried out, Java answers, Spark's context is there, the first checkpoint is complete.
_PARTS = ("imports", "claim", "recovery", "JVM", "session", "first checkpoint")


def watched(file: Path) -> StopRequest:
    """Return a request to stop that is made when a file is there."""
    request = StopRequest()

    def watch() -> None:
        while not file.exists():
            time.sleep(0.2)
        request.stop()

    threading.Thread(target=watch, daemon=True).start()
    return request


def noted(job: Job, file: Path, *, stop: StopRequest | None = None) -> Progress:
    """Run a job; when its first checkpoint is complete, write to a file when each part of the start was over: seconds since 1970, by name."""
    over = {"imports": time.time()}

    def note(part: str) -> None:
        over.setdefault(part, time.time())

    begin, answer = Jvm.start, Jvm.await_gateway

    def started(*words: Any) -> Jvm:
        note("recovery")
        return begin(*words)

    def answered(jvm: Jvm) -> tuple[int, str]:
        try:
            return answer(jvm)
        finally:
            note("JVM")

    def progressed(progress: Progress) -> None:
        if progress.state == "RUNNING":
            note("session")
        if progress.checkpoint is not None and "first checkpoint" not in over:
            note("first checkpoint")
            file.write_text(json.dumps(over))

    # No listener is called there, and these are the two steps between which Java starts.
    Jvm.start, Jvm.await_gateway = started, answered  # type: ignore[method-assign,assignment]
    return run(job, on_progress=progressed, on_claim=lambda _: note("claim"), stop=stop)


def durations_ms(begun: float, over: Mapping[str, float]) -> dict[str, float]:
    """Return how long each part of a start took, ms.

    Args:
        begun: when the process was started, seconds since 1970.
        over: what `noted` wrote.
    """
    ends = [begun, *(over[part] for part in _PARTS)]
    return {f"{part} ms": (end - start) * 1000 for part, start, end in zip(_PARTS, ends, ends[1:], strict=False)}
