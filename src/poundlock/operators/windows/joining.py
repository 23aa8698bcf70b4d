"""Window joins and co-groups: the windows of two streams put together, as in Flink.

Both streams' records go into one window operator as [side, record]; the function sees them apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from poundlock.arguments import function_name
from poundlock.operators.process.rows import check_rows, check_tag
from poundlock.stream.functions.base import Function, RuntimeContext
from poundlock.stream.functions.process import CoGroupFunction, JoinFunction
from poundlock.stream.nodes import WindowJoinNode
from poundlock.stream.stream import Side
from poundlock.stream.windows.window_functions import ProcessWindowFunction, WindowContext


class JoinedSides(ProcessWindowFunction):
    """Gives the elements of a window to the user's function, by side: each pair of a join, all of both sides of a co-group."""

    def __init__(self, node: WindowJoinNode, tags: Iterable[str]) -> None:
        function = node.function
        self._pairs = node.kind == "join"
        self._tags = frozenset(tags)
        self._opened = function if isinstance(function, Function) else None
        self._who = function_name(function)
        self._call: Callable[[Any, Any], Any]
        if isinstance(function, JoinFunction):
            self._call = function.join
        elif isinstance(function, CoGroupFunction):
            self._call = function.co_group
        else:
            self._call = function

    def open(self, context: RuntimeContext) -> None:
        if self._opened is not None:
            self._opened.open(context)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def process(self, key: Any, context: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
        left = [value for side, value in elements if side == 0]
        right = [value for side, value in elements if side == 1]
        if not self._pairs:
            yield from self._rows(self._call(left, right))
            return
        for one in left:
            for other in right:
                yield from self._rows(self._call(one, other))

    def _rows(self, given: Any) -> Iterator[Any]:
        """Yield what a function gave: nothing, one record, or several."""
        if given is None:
            return
        for row in [given] if isinstance(given, dict) else check_rows(given, self._who):
            if isinstance(row, Side):
                check_tag(row.tag, self._tags, self._who)
            yield row
