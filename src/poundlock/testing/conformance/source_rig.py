"""One source in one place of its own, and what a check does with it: read it checkpoint by checkpoint, in child processes."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import ClosableEnumerator, Enumerator, Reader, ReaderContext, Split
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.formats.convert import to_records
from poundlock.formats.reject import Reject
from poundlock.spark.pickled_functions import shipped
from poundlock.storage import LocalStorage
from poundlock.testing.conformance.children import Children
from poundlock.testing.conformance.report import Broken, difference

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Read:
    """What came of reading some splits: the rows of each, in order, and what was rejected."""

    rows: Sequence[Sequence[Row]]
    rejects: Sequence[Reject]

    @property
    def all(self) -> list[Row]:
        """The rows of all splits."""
        return [row for rows in self.rows for row in rows]


def _read(reader: Reader, splits: Sequence[Split], rejects: list[Reject]) -> Read:
    rejects.clear()
    rows = [[dict(row) for chunk in reader.read(split) for row in to_records(chunk).rows] for split in splits]
    return Read(rows, list(rejects))


def read(source: bytes, splits: Sequence[Split], want: Literal["batch", "records"] = "batch") -> Read:
    """Be a task that reads splits."""
    rejects: list[Reject] = []
    return _read(pickle.loads(source).reader(ReaderContext(reject=rejects.append, want=want)), splits, rejects)


def read_twice(source: bytes, splits: Sequence[Split]) -> tuple[Read, Read] | str:
    """Read splits twice with one reader, as a task; return the text of the error if the source refuses to."""
    rejects: list[Reject] = []
    try:
        reader = pickle.loads(source).reader(ReaderContext(reject=rejects.append))
        return _read(reader, splits, rejects), _read(reader, splits, rejects)
    except PoundlockError as error:
        return str(error)


@contextmanager
def enumerator_of(source: bytes, workspace: str) -> Iterator[Enumerator]:
    """The driver's half, made again as after a restart."""
    made: Enumerator = pickle.loads(source).enumerator(LocalStorage(workspace))
    try:
        yield made
    finally:
        if isinstance(made, ClosableEnumerator):
            made.close()


def plan(source: bytes, workspace: str, start: JSON, end: JSON) -> Sequence[Split]:
    """Be the driver of another life that plans a range."""
    with enumerator_of(source, workspace) as enumerator:
        return list(enumerator.splits(start, end))


@dataclass(frozen=True)
class SourceSubject:
    """What the author gave: see `source_conformance`."""

    make: Callable[[Path], Any]
    rows: Sequence[Row] | Callable[[Any], Sequence[Row]]
    more: Callable[[Any], Sequence[Row]] | None
    bad: int
    patience_s: float
    change: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        """Raise DefinitionError for what cannot be worked with."""
        if not callable(self.make):
            raise DefinitionError(
                f"{type(self.make).__name__} is no function that makes a source",
                next="give one: lambda folder: MySource(…)",
            )
        if not callable(self.rows) and len(self.rows) < 2:
            raise DefinitionError(f"{len(self.rows)} rows are too few", next="let the source have at least two")


@dataclass
class Way:
    """A source read from its beginning to where it stands: the positions, and what was read between each two."""

    positions: list[JSON] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for one in self.reads for row in one.all]

    def after(self, i: int) -> list[Row]:
        """Return the rows behind a position."""
        return [row for one in self.reads[i:] for row in one.all]


class SourceRig:
    """One check's source, in a place of its own."""

    def __init__(self, subject: SourceSubject, folder: Path, children: Children, name: str) -> None:
        self.subject, self.children = subject, children
        self.folder = folder / f"{name}-{uuid.uuid4().hex[:6]}"
        place = self.folder / f"p{uuid.uuid4().hex[:10]}"
        place.mkdir(parents=True)
        self.workspace = str(self.folder / "workspace")
        self.source = subject.make(place)
        self.shipped = shipped(self.source)
        self.expected = list(subject.rows(self.source) if callable(subject.rows) else subject.rows)
        self.source.preflight()

    def enumerator(self) -> AbstractContextManager[Enumerator]:
        """The driver's half, made again on the same workspace as after a restart."""
        return enumerator_of(self.shipped, self.workspace)

    def step(self, enumerator: Enumerator, at: JSON, *, wait: bool) -> JSON:
        """Return how far the next checkpoint reads, as the ledger would give it back; `at` if nothing is new."""
        deadline = time.monotonic() + (self.subject.patience_s if wait else 0)
        while True:
            end: JSON = enumerator.latest(at)
            try:
                again = json.loads(json.dumps(end, allow_nan=False))
            except (TypeError, ValueError) as error:
                raise Broken(f"the position {end!r} is not JSON: {error}") from None
            if again != end:
                raise Broken(f"the position {end!r} comes back from JSON as {again!r}")
            if end != at or time.monotonic() >= deadline or enumerator.finished(at):
                return end
            time.sleep(0.02)

    def read(self, splits: Sequence[Split], want: Literal["batch", "records"] = "batch") -> Read:
        """Read splits in a process of their own, sent as a directive sends them."""
        result: Read = self.children.call(read, self.shipped, _sent(splits), want)
        return result

    def read_twice(self, splits: Sequence[Split]) -> tuple[Read, Read] | str:
        """Read splits twice in a process of their own; return the text of the error if the source refuses to."""
        result: tuple[Read, Read] | str = self.children.call(read_twice, self.shipped, _sent(splits))
        return result

    def walk(self, enumerator: Enumerator, start: JSON | None = None, *, more: bool = True) -> Way:
        """Read on to where the source stands; `more`: have more data made on the way, where the author can."""
        at = json.loads(json.dumps(enumerator.initial() if start is None else start))
        way, wanted = Way([at]), len(self.expected)
        while True:
            end = self.step(enumerator, at, wait=start is None and len(way.rows) < wanted)
            if end == at:
                if not more or self.subject.more is None:
                    return way
                added = list(self.subject.more(self.source))
                self.expected += added
                wanted, more = wanted + len(added), False
                continue
            if end in way.positions:
                raise Broken(f"latest({at!r}) goes back to {end!r}")
            way.reads.append(self.read(enumerator.splits(at, end)))
            way.positions.append(end)
            at = end

    @contextmanager
    def walked(self, *, more: bool = True) -> Iterator[tuple[Enumerator, Way]]:
        """A driver's half, and its way from the beginning to where the source stands; see `walk`."""
        with self.enumerator() as enumerator:
            yield enumerator, self.walk(enumerator, more=more)

    def way(self) -> Way:
        """Return the way from the beginning to where the source stands; the driver's half is closed behind it."""
        with self.walked() as (_, way):
            return way

    def expect(self, rows: Sequence[Row], wanted: Sequence[Row], when: str) -> None:
        """Raise Broken unless the rows are these."""
        if problem := difference(rows, wanted):
            raise Broken(f"{when}: {problem.replace('are visible', 'were read')}")


def _sent(splits: Sequence[Split]) -> list[Split]:
    return [Split(split.id, json.loads(json.dumps(split.payload)), split.weight) for split in splits]
