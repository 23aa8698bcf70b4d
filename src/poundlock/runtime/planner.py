"""Plans what a checkpoint reads of the split-planned sources, from the positions in the ledger.

Nothing is remembered but what was decided: a checkpoint that was planned and not decided is planned anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poundlock.checkpoint.decision import SourceRange
from poundlock.connectors.base import ClosableEnumerator, Split, SplitSource
from poundlock.storage.base import Storage

__all__ = ["SplitPlanner"]


class SplitPlanner:
    """The enumerators of one query. Not thread-safe: its user holds the coordinator's lock.

    Args:
        sources: the split-planned sources by name.
        decided: gives, per source, the newest decided range.
        workspace: gives the durable folder of a source.
    """

    def __init__(
        self,
        sources: Mapping[str, SplitSource],
        decided: Callable[[], Mapping[str, SourceRange]],
        workspace: Callable[[str], Storage],
    ) -> None:
        self._decided = decided
        self._enumerators = {name: source.enumerator(workspace(name)) for name, source in sources.items()}
        self._initial = {name: found.initial() for name, found in self._enumerators.items()}

    @property
    def names(self) -> list[str]:
        """The names of the sources."""
        return list(self._enumerators)

    def ranges(self) -> dict[str, SourceRange]:
        """Return what each source may read next; nothing new is a range that ends where it starts."""
        ranges = {}
        for name, enumerator in self._enumerators.items():
            start = self._position(name)
            # As the ledger will give it back, so that the next checkpoint can be seen to begin here.
            ranges[name] = SourceRange(start, json.loads(json.dumps(enumerator.latest(start))))
        return ranges

    def splits(self, name: str, span: SourceRange) -> Sequence[Split]:
        """Return the work in a range."""
        return [] if span.start == span.end else self._enumerators[name].splits(span.start, span.end)

    def committed(self) -> None:
        """Tell the sources that everything before their positions is decided and committed."""
        for name, enumerator in self._enumerators.items():
            enumerator.committed(self._position(name))

    def close(self) -> None:
        """Let go of what the sources hold, such as connections."""
        for enumerator in self._enumerators.values():
            if isinstance(enumerator, ClosableEnumerator):
                enumerator.close()

    def finished(self, name: str) -> bool:
        """Return whether a source was read to its end."""
        return bool(self._enumerators[name].finished(self._position(name)))

    def ends_at(self, name: str, position: Any) -> bool:
        """Return whether nothing can come from a source after a position."""
        return bool(self._enumerators[name].finished(position))

    def _position(self, name: str) -> Any:
        found = self._decided().get(name)
        return self._initial[name] if found is None else found.end
