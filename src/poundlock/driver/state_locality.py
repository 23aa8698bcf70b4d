"""Whether key groups are worked where their state was written: on the executor that had them at the checkpoint before.

What an executor wrote it has on its disk and in its page cache; another one reads it from the checkpoint folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poundlock.tasks.report import TaskReport

_WANTED = 0.9
_PATIENCE = 3  # checkpoints in a row below that, until tasks are spread again

Places = Mapping[tuple[str, int], str]
"""The executor of each key group, by the name of its stage and its number."""


@dataclass
class StateLocality:
    """The key groups of one attempt of a job, and where they were at its newest decided checkpoint."""

    _decided: Places = field(default_factory=dict, init=False)
    _measured: Places = field(default_factory=dict, init=False)
    _share: float | None = field(default=None, init=False)
    _low: int = field(default=0, init=False)

    def measured(self, reports: Sequence[TaskReport]) -> float | None:
        """Return the share of key groups that were worked where they were at the checkpoint before; None where there is none."""
        self._measured = {
            (report.state[0], group): report.executor
            for report in reports
            if report.state is not None
            for group in range(report.state[1].first, report.state[1].stop)
        }
        known = [place for place in self._measured if place in self._decided]
        stayed = sum(self._measured[place] == self._decided[place] for place in known)
        self._share = stayed / len(known) if known else None
        return self._share

    def decided(self) -> bool:
        """Take note that the checkpoint measured last is decided; return whether tasks are to be spread again.

        That is so where they keep moving: more of them want one executor than it has cores, as after others came or went.
        """
        self._decided = self._measured
        self._low = self._low + 1 if self._share is not None and self._share < _WANTED else 0
        if self._low < _PATIENCE:
            return False
        self._low = 0
        return True
