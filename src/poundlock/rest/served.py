"""Which jobs a server answers for: a job's own server for that one, `poundlock dashboard` for all it knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from poundlock.rest.observed import Observed


class ServedJobs(Protocol):
    """The jobs of a server."""

    def all(self) -> Sequence[Observed]:
        """Return every job."""

    def find(self, job_id: str) -> Observed | None:
        """Return the job of an id of 32 lower-case hex digits; None if it is not here."""

    def where(self) -> str:
        """Return where to look for the jobs there are, for whoever asked for one that is not."""

    def unreadable(self) -> Sequence[str]:
        """Return places that could not be looked at, and why."""


@dataclass(frozen=True)
class OneJob:
    """The jobs of a job's own server."""

    job: Observed

    def all(self) -> Sequence[Observed]:
        return [self.job]

    def find(self, job_id: str) -> Observed | None:
        return self.job if job_id == self.job.job_id else None

    def where(self) -> str:
        return f"see the one job of this process, {self.job.entry.name}: GET /jobs/{self.job.job_id}"

    def unreadable(self) -> Sequence[str]:
        return []
