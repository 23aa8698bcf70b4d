"""The Python part of a pipeline inside one task: chunks are pushed from a head through user functions into sinks.

Every row that enters is accounted for on the way to every sink: read + produced = written + filtered + rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, Records
from poundlock.formats.origin import within
from poundlock.stream.stream import Side

__all__ = [
    "MAIN",
    "Chain",
    "Decode",
    "Edge",
    "Filter",
    "FlatMap",
    "Map",
    "MapBatches",
    "Operator",
    "Pass",
    "Step",
    "Tally",
]

Emit = Callable[[str, Chunk], None]  # (tag, chunk); the main output is the tag ""
MAIN = ""


class Operator(Protocol):
    """One step's work. Picklable; used by one thread of one task."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Handle one chunk and emit what comes of it."""
        ...


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of a step: the output of another one under a tag."""

    step: str
    tag: str = MAIN


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with its place in the graph. `inputs` is empty for the head."""

    id: str
    operator: Operator
    inputs: Sequence[Edge]


@dataclass(slots=True)
class Tally:
    """What passed through one step."""

    rows_in: int = 0
    rows_out: dict[str, int] = field(default_factory=dict)
    filtered: int = 0
    rejected: int = 0


class Chain:
    """A graph of steps, ready to run. Push chunks into the head; terminal steps are the ones nobody reads from."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = {step.id: step for step in steps}
        self.tallies = {step.id: Tally() for step in steps}
        self.head = next(step.id for step in steps if not step.inputs)
        self._readers: dict[tuple[str, str], list[str]] = {}
        for step in steps:
            for edge in step.inputs:
                self._readers.setdefault((edge.step, edge.tag), []).append(step.id)

    def push(self, chunk: Chunk, step: str | None = None) -> None:
        """Send a chunk through a step (the head) and all that follows."""
        name = self.head if step is None else step
        tally = self.tallies[name]
        rows = len(chunk)
        tally.rows_in += rows

        def emit(tag: str, out: Chunk) -> None:
            if len(out):
                tally.rows_out[tag] = tally.rows_out.get(tag, 0) + len(out)
                for reader in self._readers.get((name, tag), ()):
                    self.push(out, reader)

        operator = self.steps[name].operator
        if isinstance(operator, Filter):
            before = tally.rows_out.get(MAIN, 0)
            operator.process(chunk, emit)
            tally.filtered += rows - (tally.rows_out.get(MAIN, 0) - before)
        else:
            operator.process(chunk, emit)

    def upstream(self, step: str) -> set[str]:
        """Return the steps that lead to a step, itself included."""
        found = {step}
        todo = [step]
        while todo:
            for edge in self.steps[todo.pop()].inputs:
                if edge.step not in found:
                    found.add(edge.step)
                    todo.append(edge.step)
        return found

    def account(self, sink: str) -> tuple[int, int, int, int]:
        """Return (read, produced, filtered, rejected) of the rows on the way to a terminal step, its own rejects left out."""
        inside = self.upstream(sink)
        produced = filtered = rejected = 0
        for name in inside - {sink}:
            tally = self.tallies[name]
            filtered += tally.filtered
            rejected += tally.rejected
            out = sum(
                rows * sum(1 for reader in self._readers.get((name, tag), ()) if reader in inside)
                for tag, rows in tally.rows_out.items()
            )
            produced += out - tally.rows_in + tally.filtered + tally.rejected
        return self.tallies[self.head].rows_in, produced, filtered, rejected


class Pass:
    """Hand chunks on as they are: the head of a chain, a union, a side output."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        emit(MAIN, chunk)


@dataclass(slots=True)
class Decode:
    """Turn values into rows by a formats decoder; bad ones go to `reject`, which is set where the step runs."""

    decoder: Any
    want: str
    reject: Callable[[Any], None] | None = None

    def process(self, chunk: Chunk, emit: Emit) -> None:
        emit(MAIN, self.decoder.decode(chunk, self.reject, self.want))


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the user's function is true, in the form they came in."""

    function: Callable[[dict[str, Any]], Any]

    def process(self, chunk: Chunk, emit: Emit) -> None:
        keep = [bool(self.function(row)) for row in convert.to_records(chunk).rows]
        emit(MAIN, chunk if all(keep) else convert.take(chunk, keep))


def _shaped(row: Any, names: tuple[str, ...], known: frozenset[str], step: str) -> dict[str, Any]:
    """Return a user's record with exactly the declared columns."""
    if not isinstance(row, dict):
        raise DefinitionError(
            f"{step} returned {type(row).__name__}, not a dict",
            next="return {column: value, …} with the declared schema",
        )
    extra = row.keys() - known
    if extra:
        raise DefinitionError(
            f"{step} returned the undeclared column {min(extra)!r}",
            next=f"add it to schema=, or return only {', '.join(names)}",
        )
    return {name: row.get(name) for name in names}


@dataclass(frozen=True)
class Map:
    """One record in, one record out."""

    id: str
    function: Callable[[dict[str, Any]], dict[str, Any]]
    columns: tuple[str, ...]

    def process(self, chunk: Chunk, emit: Emit) -> None:
        records = convert.to_records(chunk)
        known = frozenset(self.columns)
        function = self.function
        rows = [function(row) for row in records.rows]
        for i, row in enumerate(rows):
            if type(row) is not dict or row.keys() != known:
                rows[i] = _shaped(row, self.columns, known, self.id)
        emit(MAIN, Records(rows, records.origin, records.index))


@dataclass(frozen=True)
class FlatMap:
    """One record in, any number out, some of them to side outputs."""

    id: str
    function: Callable[[dict[str, Any]], Iterable[Any]]
    columns: Mapping[str, tuple[str, ...]]  # tag to columns; "" is the main output

    def process(self, chunk: Chunk, emit: Emit) -> None:
        records = convert.to_records(chunk)
        known = {tag: frozenset(names) for tag, names in self.columns.items()}
        rows: dict[str, list[dict[str, Any]]] = {tag: [] for tag in self.columns}
        index: dict[str, list[int]] = {tag: [] for tag in self.columns}
        for i, record in enumerate(records.rows):
            place = i if records.index is None else records.index[i]
            for out in self.function(record) or ():
                tag, row = (out.tag, out.record) if isinstance(out, Side) else (MAIN, out)
                if tag not in known:
                    raise DefinitionError(
                        f"{self.id} sent a record to the undeclared side output {tag!r}",
                        next=f'declare it: flat_map(…, side_outputs={{"{tag}": "…"}})',
                    )
                if type(row) is not dict or row.keys() != known[tag]:
                    row = _shaped(row, self.columns[tag], known[tag], self.id)
                rows[tag].append(row)
                index[tag].append(place)
        for tag, found in rows.items():
            emit(tag, Records(found, records.origin, index[tag]))


@dataclass(frozen=True)
class MapBatches:
    """Arrow in, Arrow out. `schema` is what the function declared to give; `input_schema` what it is given, where known."""

    id: str
    function: Callable[[pa.RecordBatch], Any]
    schema: pa.Schema
    input_schema: pa.Schema | None = None

    def process(self, chunk: Chunk, emit: Emit) -> None:
        batch = convert.to_batch(chunk, self.input_schema if isinstance(chunk, Records) else None)
        result = self.function(batch.batch)
        for part in _batches(result, self.id):
            extra = set(part.schema.names) - set(self.schema.names)
            if extra:
                raise DefinitionError(
                    f"{self.id} returned the undeclared column {min(extra)!r}",
                    next=f"add it to schema=, or return only {', '.join(self.schema.names)}",
                )
            origin = batch.origin if part.num_rows == len(chunk) else within(batch.origin, part.num_rows)
            emit(MAIN, convert.to_batch(Batch(part, origin), self.schema))


def _batches(result: Any, step: str) -> Iterable[pa.RecordBatch]:
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    elif result is None or isinstance(result, (str, bytes, dict)) or not isinstance(result, Iterable):
        raise DefinitionError(
            f"{step} returned {type(result).__name__}, not Arrow",
            next="return a pyarrow.RecordBatch, a Table, or yield them",
        )
    else:
        for part in result:
            yield from _batches(part, step)
