"""What the demo learns from the progress lines of a job over several lives: rows, rate, checkpoints, time to recover.

Only completed checkpoints count; a life that was killed before its first one adds nothing but the time it took.
"""

from __future__ import annotations

import time

from poundlock.testing.job_process import JobProcess, Line, completed


class DemoRun:
    """All lives of one job over a topic of so many records."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._lives: list[JobProcess] = []
        self._killed_at: list[float] = []

    def add(self, job: JobProcess) -> JobProcess:
        """Note a new life; return it."""
        self._lives.append(job)
        return job

    def killed(self) -> None:
        """Note that the newest life is killed now."""
        self._killed_at.append(time.monotonic())

    @staticmethod
    def _completed(job: JobProcess) -> list[Line]:
        """Return the line at which each checkpoint of a life was first reported."""
        lines: list[Line] = []
        for line in job.lines():
            if completed(line.value) > (completed(lines[-1].value) if lines else -1):
                lines.append(line)
        return lines

    def checkpoints(self, job: JobProcess) -> int:
        """Return how many checkpoints a life completed."""
        return len(self._completed(job))

    def all_checkpoints(self) -> int:
        """Return how many checkpoints all lives completed."""
        return sum(self.checkpoints(job) for job in self._lives)

    def checkpoint_s(self) -> float:
        """Return how long a checkpoint lately took, s."""
        lines = self._completed(self._lives[-1])
        return float(lines[-1].value["last_ms"]) / 1000 if lines else 0.0

    @staticmethod
    def _lag(job: JobProcess) -> int | None:
        return next((lag for line in reversed(job.lines()) if (lag := line.value.get("lag")) is not None), None)

    @property
    def read(self) -> int:
        """Return how many records are consumed, as far as is known."""
        for job in reversed(self._lives):
            lag = self._lag(job)
            if lag is not None:
                return max(0, self._total - lag)
        return 0

    def consumed(self, job: JobProcess) -> bool:
        """Return whether a life reported, after a checkpoint of its own, that no record waits."""
        return any(line.value.get("lag") == 0 and completed(line.value) >= 0 for line in job.lines())

    def rows_per_s(self) -> int:
        """Return rows a second between completed checkpoints, over all lives."""
        rows, seconds = 0, 0.0
        for job in self._lives:
            lines = self._completed(job)
            if len(lines) > 1:
                rows += int(lines[-1].value["rows_read"]) - int(lines[0].value["rows_read"])
                seconds += lines[-1].at - lines[0].at
        return round(rows / seconds) if seconds else 0

    def recoveries_s(self) -> list[float]:
        """Return, for each kill, the time until the next checkpoint was completed, s."""
        firsts = [line.at for job in self._lives for line in self._completed(job)[:1]]
        return [
            min(at - killed for at in firsts if at > killed)
            for killed in self._killed_at
            if any(at > killed for at in firsts)
        ]

    def note(self, job: JobProcess) -> str:
        """Return a few words on a life for the live display."""
        lines = job.lines()
        if not lines:
            return "starting"
        value = lines[-1].value
        if completed(value) < 0:
            return str(value.get("state", "starting")).lower()
        return (
            f"checkpoint {completed(value)}, {float(value.get('rows_per_s') or 0):,.0f} rows/s, lag {value.get('lag')}"
        )
