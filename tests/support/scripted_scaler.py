"""An autoscaler that follows a script, so that each checkpoint behind the first of a life has another parallelism, however busy the machine is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poundlock import Autoscaler
from poundlock.driver.autoscaler import CheckpointLoad, Utilization

# Each rise is followed by a fall: two in a row are only made where the first had an effect, which is a matter of time.
NEXT = {1: 3, 3: 2, 2: 4, 4: 1}


@dataclass(frozen=True, kw_only=True)
class ScriptedScaler(Autoscaler):
    """Says for each number of tasks the next, whatever was measured."""

    max_parallelism: int = 4
    stabilization_interval: str = "0 s"
    scale_down_interval: str = "0 s"

    @property
    def script(self) -> Mapping[int, int]:
        """The next number of tasks by what it is."""
        return NEXT

    def window(self, loads: Sequence[CheckpointLoad]) -> Sequence[CheckpointLoad]:
        return loads[-1:]

    def wanted(self, parallelism: int, seen: Utilization) -> int:
        return self.within(self.script.get(parallelism, parallelism))
