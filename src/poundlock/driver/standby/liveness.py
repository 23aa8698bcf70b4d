"""Whether something still changes, by the monotonic clock of the one who looks.

Times of two machines are never compared. What counts is how long the looks of this process have shown the same; time in which it did
not look, because it was stopped itself or the store was away, does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Liveness:
    """Looks at one thing, one after the other.

    Args:
        now: a monotonic clock, seconds.
    """

    now: Callable[[], float] = time.monotonic
    _seen: object = field(default=None, init=False)
    _since: float | None = field(default=None, init=False)  # when it was first seen as it is
    _looked: float = field(default=0.0, init=False)

    def has_expired(self, seen: object, lasts_s: float, *, looked: float) -> bool:
        """Return whether it has been seen without a change for so long.

        Args:
            seen: what this look showed.
            lasts_s: for how long, seconds.
            looked: when this look began, by `now`: what was read may be older than its answer.
        """
        blind = looked - self._looked > lasts_s / 2
        self._looked = self.now()
        if self._since is None or blind or seen != self._seen:
            self._seen, self._since = seen, self._looked
            return False
        return looked - self._since >= lasts_s

    def unseen(self) -> None:
        """Take note that a look has failed: the wait begins again."""
        self._since = None
