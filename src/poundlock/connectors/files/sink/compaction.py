"""Small parts merged before they become visible: the user's setting, and the pure coordinator that says which go when.

Files wait hidden and named by the newest decision, so a crash can neither lose them nor show them twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from poundlock.connectors.files.sink.rolling import to_ms
from poundlock.errors import DefinitionError
from poundlock.values import duration, size

if TYPE_CHECKING:
    from poundlock.connectors.files.file_values import CompactionState, WaitingFile


@dataclass(frozen=True, kw_only=True)
class FileCompaction:
    """Merge small finished parts of a bucket, over all subtasks, into one before readers see them.

    Args:
        min_size: merge what waits in a bucket once it adds up to this, such as "64 MB".
        every_checkpoints: and at every n-th checkpoint, whatever waits.
        max_wait: and at the latest after this time, so that an idle bucket's data becomes visible; None = not by time.

    Raises:
        DefinitionError: neither a size nor a number of checkpoints is given, or one is not positive.
    """

    min_size: str | int | None = None
    every_checkpoints: int | None = None
    max_wait: str | timedelta | None = "10 min"

    def __post_init__(self) -> None:
        if self.min_size is None and self.every_checkpoints is None:
            raise DefinitionError("FileCompaction says nothing", next='give min_size="64 MB" or every_checkpoints=10')
        if self.min_size is not None:
            object.__setattr__(self, "min_size", size(self.min_size))
        count = self.every_checkpoints
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise DefinitionError(f"every_checkpoints={count!r} is not a number", next="give 1 or more")
        if self.max_wait is not None:
            object.__setattr__(self, "max_wait", duration(self.max_wait))

    @property
    def max_wait_ms(self) -> int | None:
        """The longest wait in ms."""
        return to_ms(self.max_wait)


@dataclass(frozen=True, slots=True)
class Request:
    """Files of one bucket that become visible together."""

    bucket: str  # the bucket
    compact: list[WaitingFile] = field(default_factory=list)  # hidden files to merge into one, in order of arrival
    pass_through: list[WaitingFile] = field(default_factory=list)  # files that are visible as they are


class Compactor:
    """What waits per bucket, and when it goes. Made from a state and turned back into one."""

    def __init__(self, policy: FileCompaction, state: CompactionState | None = None) -> None:
        self._policy = policy
        self._checkpoints = state.checkpoints if state is not None else 0
        self._waiting: dict[tuple[str, str], list[WaitingFile]] = {}
        for entry in state.waiting if state is not None else ():
            self._waiting.setdefault((entry.bucket, entry.file.kind), []).append(entry.file)

    def state(self) -> CompactionState:
        """Return what waits."""
        from poundlock.connectors.files.file_values import CompactionState, Waiting

        waiting = [Waiting(bucket, file) for (bucket, _), files in self._waiting.items() for file in files]
        return CompactionState(self._checkpoints, waiting)

    def pending(self, bucket: str, file: WaitingFile) -> list[Request]:
        """Take one more file; return what goes now because the bucket's hidden bytes have reached the size."""
        key = (bucket, file.kind)
        self._waiting.setdefault(key, []).append(file)
        limit = self._policy.min_size
        hidden = sum(file.bytes for file in self._waiting[key] if _hidden(file))
        return [self._take(key)] if limit is not None and hidden >= int(limit) else []

    def checkpoint(self) -> list[Request]:
        """Count a checkpoint; return what goes because it is the n-th."""
        self._checkpoints += 1
        every = self._policy.every_checkpoints
        return self.end_of_input() if every is not None and self._checkpoints % every == 0 else []

    def overdue(self, now_ms: int) -> list[Request]:
        """Return what goes because its oldest file has waited long enough."""
        due = [key for key in self._waiting if (at := self._due(key)) is not None and at <= now_ms]
        return [self._take(key) for key in due]

    def next_due_ms(self) -> int | None:
        """Return when `overdue` next has an answer; None = never by time."""
        return min((d for d in map(self._due, self._waiting) if d is not None), default=None)

    def end_of_input(self) -> list[Request]:
        """Return everything that waits."""
        return [self._take(key) for key in list(self._waiting)]

    def _due(self, key: tuple[str, str]) -> int | None:
        wait = self._policy.max_wait_ms
        return None if wait is None else min(file.queued_ms for file in self._waiting[key]) + wait

    def _take(self, key: tuple[str, str]) -> Request:
        files = self._waiting.pop(key)
        return Request(key[0], [f for f in files if _hidden(f)], [f for f in files if not _hidden(f)])


def _hidden(file: WaitingFile) -> bool:
    return file.file.rpartition("/")[2].startswith(".")
