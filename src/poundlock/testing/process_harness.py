"""Drives process functions, rolling aggregates, deduplication, top-n and joins in a test: given as a function, or as the stream that has it.

Each instance has a copy of the function of its own, as each task has; a new copy goes on after a restore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError
from poundlock.operators.factory import process_operator
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, MAIN, OutputChunk
from poundlock.operators.process.process import ProcessOperator, is_keyed
from poundlock.operators.records import as_dict, record_of
from poundlock.state.hashing import DEFAULT_MAX_PARALLELISM
from poundlock.stream.functions.base import Function
from poundlock.stream.functions.process import element_calls
from poundlock.stream.functions.records import RecordType, requested_record
from poundlock.stream.functions.state import MapStateDescriptor
from poundlock.stream.nodes import DeduplicateNode, KeyedNode, ProcessNode, TopNNode
from poundlock.stream.stream import DataStream
from poundlock.testing.harness import Element, Emitted, KeyedOperatorHarness, KeySelector, selector

if TYPE_CHECKING:
    import pyarrow as pa


_COLUMN = re.compile(r"\w+", re.ASCII)


class ProcessHarness(KeyedOperatorHarness):
    """A process function, a rolling aggregate or a join. A function that asks for records of a type may be given these, or dicts.

    Args:
        what: an object of one of the six kinds of process functions, or the stream that `process`, `sum`, `reduce`, `deduplicate`,
            `top_n`, `select` of a join or `apply` of a window join gave. What comes out of a stream is held against the columns it declares.
        key: of an element: a function, the name of a column, or several for a tuple. A stream that is keyed by columns knows them.
        key2: of an element of the second input, where that is another one.
        broadcast: descriptors of the broadcast state of a function; a stream knows its own.
        bounded: whether the input is to end and only final results are wanted, which matters to rolling aggregates of a stream,
            and to its last records and first n.
        key_groups: how many groups keys are spread over.
        instances: how many share them. Without keys elements go to them in turn.
        chunk_rows: about how many rows come out of the operator at a time.

    Raises:
        DefinitionError: it is nothing of that kind, or keys are missing; later, a stream's function emits what it did not
            declare.
    """

    def __init__(
        self,
        what: Function | DataStream,
        *,
        key: KeySelector = None,
        key2: KeySelector = None,
        broadcast: Sequence[MapStateDescriptor] = (),
        bounded: bool = False,
        key_groups: int = 8,
        instances: int = 1,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        keys: tuple[KeySelector, KeySelector] = (None, None)
        self._id, self._broadcasts = "", bool(broadcast)
        self._declared: Mapping[str, pa.Schema] = {}
        self._records: Sequence[RecordType | None] = ()
        make: Callable[[], KeyedOperator]
        if isinstance(what, DataStream):
            node = _keyed_node(what)
            of_node = [_columns(expressions) for expressions in node.keys]
            self._broadcasts = isinstance(node, ProcessNode) and bool(node.broadcast)
            self._records = node.records if isinstance(node, ProcessNode) else ()
            keys = of_node[0], of_node[0 if self._broadcasts else -1]
            self._keyed, self._id, self._declared = any(node.keys), node.id, _declared(node)
            make = partial(_operator_of, node, bounded=bounded, chunk_rows=chunk_rows)
        else:
            self._keyed = is_keyed(what)
            self._records = [requested_record(call, "process") for call in element_calls(what)]
            make = partial(_operator_with, what, broadcast=broadcast, chunk_rows=chunk_rows)
        selectors = [key or keys[0], key2 or key or keys[1]]
        if self._keyed and None in selectors:
            raise DefinitionError("the harness does not know the key of an element", next='give it, such as key="user"')
        self._turn = 0
        groups = key_groups if self._keyed else DEFAULT_MAX_PARALLELISM
        super().__init__(make, key=selectors[0], key_groups=groups, instances=instances)
        self._keys = [self._key, selector(selectors[1])]

    def process_element1(self, value: Any, timestamp: int | None = None) -> list[Emitted]:
        """Push one element into the first input and return what came out of the main output."""
        return self.process_element(value, timestamp)

    def process_element2(self, value: Any, timestamp: int | None = None) -> list[Emitted]:
        """Push one element into the second input and return what came out of the main output."""
        return self.process_element(value, timestamp, side=1)

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> list[Emitted]:
        """Push one element into every instance, as it comes to every task of a job; return what came out.

        Raises:
            DefinitionError: nothing is broadcast.
        """
        if not self._broadcasts:
            raise DefinitionError(
                "a broadcast element for something without a broadcast input",
                next='give the descriptors of its state: broadcast=[MapStateDescriptor("rules")]',
            )
        return self.process_element(value, timestamp, side=1)

    def _check(self, chunk: OutputChunk) -> None:
        if chunk.tag in self._declared:
            from poundlock.formats.convert import declared_rows

            declared_rows(self._id, self._declared[chunk.tag], chunk.values)

    def _route(self, element: Element) -> Iterable[tuple[int, Any, Element]]:
        count = self._state.parallelism
        if self._broadcasts and element.side == 1:
            return [(task, None, self._typed(element._replace(value=deepcopy(element.value)))) for task in range(count)]
        if self._keyed:
            key = self._keys[element.side](as_dict(element.value, ()))
            return [(self._instance_of(key), key, self._typed(element))]
        self._turn += 1
        return [((self._turn - 1) % count, None, self._typed(element))]

    def _typed(self, element: Element) -> Element:
        """Return an element as the record that the function asks for, where it is a dict."""
        wanted = self._records[element.side] if element.side < len(self._records) else None
        if wanted is None or type(element.value) is not dict:
            return element
        return element._replace(value=record_of(element.value, wanted))


def _operator_with(function: Any, *, broadcast: Sequence[MapStateDescriptor], chunk_rows: int) -> KeyedOperator:
    return ProcessOperator(deepcopy(function), broadcast=broadcast, chunk_rows=chunk_rows)


def _keyed_node(stream: DataStream) -> KeyedNode:
    node = stream.node
    if not isinstance(node, KeyedNode):
        raise DefinitionError(
            f"{node.id} is no process function, rolling aggregate or join",
            next="give the stream that one of them returned; WindowHarness is for windows",
        )
    return node


def _operator_of(node: Any, *, bounded: bool, chunk_rows: int) -> KeyedOperator:
    # The whole graph hangs on a node's inputs, and only the function may differ from instance to instance.
    changes: dict[str, Any] = {"inputs": []}
    if not isinstance(node, (DeduplicateNode, TopNNode)):
        changes["function"] = deepcopy(node.function)
    return process_operator(replace(node, **changes), bounded=bounded, chunk_rows=chunk_rows)


def _declared(node: KeyedNode) -> dict[str, pa.Schema]:
    """Return the columns that a stream declares of its outputs, by tag."""
    from poundlock.formats import ddl

    texts = {MAIN: node.schema, **node.side_outputs}
    return {tag: ddl.parse(text) for tag, text in texts.items() if text is not None}


def _columns(keys: Sequence[str]) -> KeySelector:
    """Return the columns of a key, None where it is made by other expressions."""
    if not keys or not all(_COLUMN.fullmatch(key) for key in keys):
        return None
    return keys[0] if len(keys) == 1 else tuple(keys)
