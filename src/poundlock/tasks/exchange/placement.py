"""Which task a row without a key group goes to: by its place in its split, or as a function of the user's says.

It depends on where a row was read, on what is in it and on how many tasks there are, and never on who read it, or in what batches:
so the same ranges give the same placement in every attempt.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.tasks.event_time import SplitPlace

Partitioner = Callable[[Any, int], int]
"""Returns the number of a task, given a key and how many tasks there are."""
Numbers = npt.NDArray[np.int64]
_ASKED_TWICE = 8  # keys of a batch


@dataclass
class RoundRobin:
    """Gives the rows of each split to one of some targets after the other.

    Args:
        targets: how many there are.
        splits: per source, how many splits it has in the checkpoint, where each split has only a few of the targets; None =
            each has all.
    """

    targets: int
    splits: Mapping[str, int] | None = None
    _rows: dict[tuple[str, int], int] = field(default_factory=dict, init=False)

    def of(self, rows: int, place: SplitPlace) -> Numbers:
        """Return the targets of the next rows of a split."""
        where = place.source, place.sequence
        before = self._rows.get(where, 0)
        self._rows[where] = before + rows
        first, count = (0, self.targets) if self.splits is None else self._share(place)
        # The first row of each split goes to another target, so that many short splits do not all meet in one.
        return first + (np.arange(before, before + rows) + place.sequence) % count

    def _share(self, place: SplitPlace) -> tuple[int, int]:
        """Return the first target of a split, and how many it has."""
        assert self.splits is not None
        splits = self.splits.get(place.source, self.targets)
        number = place.sequence % splits
        first = number * self.targets // splits
        return first, max((number + 1) * self.targets // splits - first, 1)


@dataclass(frozen=True)
class Custom:
    """Asks a function of the user's, once for each key of a batch, and twice for the first ones. `operator` is the id of the step, for messages.

    A task that Spark runs once more, since what it sent to the next stage was lost, has to place its rows as it did before: some of the
    tasks that it sends them to may have ended, and a row that goes elsewhere now is there twice or not at all.
    """

    operator: str
    partitioner: Partitioner
    targets: int

    def of(self, keys: Sequence[pa.Array]) -> Numbers:
        """Return the targets of rows, given the columns of their key."""
        columns = [column.to_pylist() for column in keys]
        values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        known: dict[Any, int] = {}
        places = np.fromiter((self._target(value, known) for value in values), np.int64, len(values))
        first = list(islice(known.items(), _ASKED_TWICE)) or [*zip(values[:1], places[:1].tolist(), strict=True)] * 2
        self._ask_again(first)
        return places

    def _ask_again(self, placed: Sequence[tuple[Any, int]]) -> None:
        """Refuse a partitioner that places a key elsewhere when it is asked once more."""
        for value, before in reversed(placed):  # or one that counts in a circle may come round to the same
            if (now := self._checked(value)) != before:
                raise DefinitionError(
                    f"{self.operator}: the partitioner placed the key {value!r} in task {before}, and then in task {now}",
                    next="return the same number for the same key and number of tasks, in any process and at any time",
                )

    def _target(self, value: Any, known: dict[Any, int]) -> int:
        try:
            target = known.get(value)
        except TypeError:  # a list or a struct
            return self._checked(value)
        if target is None:
            target = known[value] = self._checked(value)
        return target

    def _checked(self, value: Any) -> int:
        answer = self.partitioner(value, self.targets)
        try:
            target = operator.index(answer)
        except TypeError:
            target = -1
        if not 0 <= target < self.targets:
            raise DefinitionError(
                f"{self.operator}: the partitioner gave {answer!r} for the key {value!r}, and there are {self.targets} tasks",
                next="return a whole number from 0 to the number of tasks less one, such as hash % tasks",
            )
        return target
