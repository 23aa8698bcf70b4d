"""A sink and a source that are small enough to be seen to be right, and broken ones, each in one way.

The sink writes a hidden file per attempt of a task and renames it when it was decided. The source reads numbered lines of files.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock.checkpoint.participant import (
    JSON,
    CommitOutcome,
    Committed,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    WriterContext,
    unchecked,
)
from poundlock.connectors.base import ReaderContext, ReplayPromise, Split
from poundlock.errors import PoundlockError, TerminalError, TransientError
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Records, origin_of
from poundlock.formats.convert import to_records
from poundlock.formats.reject import Reject
from poundlock.storage import Storage

ROWS = [{"n": n, "text": f"row {n}"} for n in range(24)]
BAD = [{"n": 100, "text": None}, {"n": 101, "text": None}]


def read_box(sink: BoxSink) -> list[dict[str, Any]]:
    """Return the rows that a reader sees, who leaves hidden files alone."""
    files = [path for path in Path(sink.path).iterdir() if not path.name.startswith(".")]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class BoxSink:
    """Rows as lines of JSON into a folder."""

    path: str
    tag: str = ""

    kind = Kind.TRANSACTIONAL

    def bind(self, *, job_id: str, sink: str) -> BoxSink:
        return replace(self, tag=f"{job_id}.{sink}.")

    def name(self, context: WriterContext) -> str:
        return f"{self.tag}{context.checkpoint}-{context.subtask}-{context.attempt}"

    def open_writer(self, context: WriterContext) -> BoxWriter:
        return BoxWriter(self.hidden(self.name(context)), self.name(context), context)

    def hidden(self, name: str) -> Path:
        return Path(self.path) / f".{name}"

    def visible(self, name: str) -> Path:
        return Path(self.path) / name

    def directive(self, state: JSON) -> JSON:
        return {}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        for item in prepared:
            if not self.hidden(item.payload["name"]).exists():
                raise TransientError(f"{item.payload['name']} is gone")

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return Staged({"v": 1, "pending": []}, [dict(item.payload) for item in prepared])

    def next_roll_ms(self, state: JSON) -> int | None:
        return None

    def commit(self, committable: JSON) -> Committed:
        name = committable["name"]
        if self.hidden(name).exists():
            self.hidden(name).rename(self.visible(name))
        elif not self.visible(name).exists():
            raise TerminalError(f"{name} is neither hidden nor visible")
        return Committed()

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        for committable in committables:
            try:
                yield self.commit(committable)
            except PoundlockError as error:
                yield error

    def abort(self, prepared: Prepared) -> None:
        self.hidden(prepared.payload["name"]).unlink(missing_ok=True)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        found = [path for path in Path(self.path).iterdir() if path.name.startswith(f".{self.tag}")]
        if remove and found:
            check()
            for path in found:
                path.unlink()
        return [Orphan(str(path), 0, 0) for path in found]


class BoxWriter:
    """One hidden file."""

    mode = "x"

    def __init__(self, path: Path, name: str, context: WriterContext) -> None:
        self.path, self.name, self.context = path, name, context
        self.file = path.open(self.mode)
        self.rows = 0

    def write(self, chunk: Chunk) -> int:
        written = 0
        records = to_records(chunk)
        for i, row in enumerate(records.rows):
            if row["text"] is None:
                self.context.reject(Reject("text is null", json.dumps(row).encode(), origin_of(chunk).at(i)))
                continue
            self.file.write(json.dumps(row) + "\n")
            written += 1
        self.rows += written
        return written

    def prepare(self) -> Sequence[JSON]:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if self.rows:
            return [{"v": 1, "name": self.name, "rows": self.rows}]
        self.path.unlink()
        return []

    def abandon(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


# --- broken ones: the check that has to find it, and the sink ---------------------------------------------------------


class KeepsALock(BoxSink):
    def commit(self, committable: JSON) -> Committed:
        object.__setattr__(self, "lock", threading.Lock())
        return super().commit(committable)


class LosesATask(BoxSink):
    def commit(self, committable: JSON) -> Committed:
        if "-1-" in committable["name"]:
            return Committed()
        return super().commit(committable)


class ShowsAtOnce(BoxSink):
    def hidden(self, name: str) -> Path:
        return self.visible(name)

    def open_writer(self, context: WriterContext) -> BoxWriter:
        return FlushingWriter(self.hidden(self.name(context)), self.name(context), context)


class FlushingWriter(BoxWriter):
    def write(self, chunk: Chunk) -> int:
        written = super().write(chunk)
        self.file.flush()
        return written


class StagesInTheOpen(BoxSink):
    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        for item in prepared:
            self.commit(item.payload)
        return super().stage(state, prepared, occasion, now_ms)

    def verify(self, prepared: Sequence[Prepared]) -> None:
        pass


class NotJson(BoxSink):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return TupleWriter(self.hidden(self.name(context)), self.name(context), context)


class TupleWriter(BoxWriter):
    def prepare(self) -> Sequence[JSON]:
        return [{**payload, "range": (1, 2)} for payload in super().prepare()]


class NoVersion(BoxSink):
    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return Staged({"pending": []}, [{"name": item.payload["name"]} for item in prepared])


class StagesByChance(BoxSink):
    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return Staged({"v": 1, "pending": []}, [{**item.payload, "id": uuid.uuid4().hex} for item in prepared])


class StagesIntoItsArguments(BoxSink):
    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        state["count"] = state.get("count", 0) + len(prepared)
        return super().stage({}, prepared, occasion, now_ms)


class RollsForNothing(BoxSink):
    def next_roll_ms(self, state: JSON) -> int | None:
        return 1


class CountsTheEmpty(BoxSink):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return EmptyCounter(self.hidden(self.name(context)), self.name(context), context)


class EmptyCounter(BoxWriter):
    def write(self, chunk: Chunk) -> int:
        return super().write(chunk) or 1


class ColumnsOnly(BoxSink):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return ColumnsWriter(self.hidden(self.name(context)), self.name(context), context)


class ColumnsWriter(BoxWriter):
    def write(self, chunk: Chunk) -> int:
        if not isinstance(chunk, Batch):
            raise TypeError(f"{type(chunk).__name__} is not Arrow")
        return super().write(chunk)


class CountsRejects(BoxSink):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return CountingWriter(self.hidden(self.name(context)), self.name(context), context)


class CountingWriter(BoxWriter):
    def write(self, chunk: Chunk) -> int:
        super().write(chunk)
        return len(chunk)


class KeepsAbandoned(BoxSink):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return LeavingWriter(self.hidden(self.name(context)), self.name(context), context)


class LeavingWriter(BoxWriter):
    def abandon(self) -> None:
        self.file.close()
        self.path.rename(self.path.with_name(self.path.name[1:]))


class NamesWithoutAttempt(BoxSink):
    def name(self, context: WriterContext) -> str:
        return f"{self.tag}{context.checkpoint}-{context.subtask}"


class AppendsToTheTasksFile(NamesWithoutAttempt):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return AppendingWriter(self.hidden(self.name(context)), self.name(context), context)


class AppendingWriter(BoxWriter):
    mode = "a"


class AppendsInTheEnd(NamesWithoutAttempt):
    def open_writer(self, context: WriterContext) -> BoxWriter:
        return LateWriter(self.hidden(f"{self.name(context)}-{context.attempt}"), self.name(context), context)


class LateWriter(BoxWriter):
    def prepare(self) -> Sequence[JSON]:
        payloads = super().prepare()
        if payloads:
            with self.path.with_name(f".{self.name}").open("a") as shared:
                shared.write(self.path.read_text() if self.path.exists() else "".join(self.kept))
        self.path.unlink(missing_ok=True)
        return payloads

    def write(self, chunk: Chunk) -> int:
        self.kept = [*getattr(self, "kept", []), *(json.dumps(row) + "\n" for row in to_records(chunk).rows)]
        return super().write(chunk)


class AbortsOnce(BoxSink):
    def abort(self, prepared: Prepared) -> None:
        self.hidden(prepared.payload["name"]).unlink()


class AbortsTheTask(BoxSink):
    def abort(self, prepared: Prepared) -> None:
        task = prepared.payload["name"].rpartition("-")[0]
        for path in Path(self.path).glob(f".{task}-*"):
            path.unlink()


class AbortsWhatIsDone(BoxSink):
    def abort(self, prepared: Prepared) -> None:
        task = prepared.payload["name"].rpartition("-")[0]
        for path in [*Path(self.path).glob(f".{task}-*"), *Path(self.path).glob(f"{task}-*")]:
            path.unlink()


class CommitsACopy(BoxSink):
    def commit(self, committable: JSON) -> Committed:
        name = committable["name"]
        shutil.copy(self.hidden(name), self.visible(f"{name}-{uuid.uuid4().hex}"))
        return Committed()


class CommitsOnce(BoxSink):
    def commit(self, committable: JSON) -> Committed:
        name = committable["name"]
        if not self.hidden(name).exists():
            raise TerminalError(f"{name} is gone")
        self.hidden(name).rename(self.visible(name))
        return Committed()


class CommitsByCopying(BoxSink):
    def commit(self, committable: JSON) -> Committed:
        name = committable["name"]
        if not self.visible(name).exists():
            with self.visible(name).open("w") as file:
                for line in self.hidden(name).read_text().splitlines(keepends=True):
                    file.write(line)
        self.hidden(name).unlink(missing_ok=True)
        return Committed()


class CommitsFromMemory(BoxSink):
    """Knows in the process that wrote it what it has to commit."""

    def open_writer(self, context: WriterContext) -> BoxWriter:
        os.environ[f"BOX-{self.name(context)}"] = "written here"
        return super().open_writer(context)

    def commit(self, committable: JSON) -> Committed:
        if f"BOX-{committable['name']}" in os.environ:
            return super().commit(committable)
        return Committed()


class SweepsNothing(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return []


class SweepsUnasked(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return super().sweep(state, remove=remove)


class SweepsWhenLooking(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return super().sweep(state, remove=True, check=check)


class SweepsWhatIsDone(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        if remove:
            for path in Path(self.path).glob(f"{self.tag}*"):
                path.unlink()
        return super().sweep(state, remove=remove, check=check)


class SweepsAllJobs(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return BoxSink(self.path).sweep(state, remove=remove, check=check)


class SweepsTheJob(BoxSink):
    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return BoxSink(self.path, self.tag.partition(".")[0]).sweep(state, remove=remove, check=check)


class CountsWhatIsNew(BoxSink):
    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        yield from super().commit_many(c for c in committables if self.hidden(c["name"]).exists())


MUTANTS: Sequence[tuple[str, type[BoxSink]]] = [
    ("commit-many", CountsWhatIsNew),
    ("pickling", KeepsALock),
    ("commits", LosesATask),
    ("hidden", ShowsAtOnce),
    ("hidden", StagesInTheOpen),
    ("plain-values", NotJson),
    ("plain-values", NoVersion),
    ("stage-pure", StagesByChance),
    ("stage-pure", StagesIntoItsArguments),
    ("rolls", RollsForNothing),
    ("empty", CountsTheEmpty),
    ("chunk-forms", ColumnsOnly),
    ("rejects", CountsRejects),
    ("abandon", KeepsAbandoned),
    ("task-killed", NamesWithoutAttempt),
    ("zombie", AppendsToTheTasksFile),
    ("zombie-of-older-driver", AppendsInTheEnd),
    ("abort-twice", AbortsOnce),
    ("abort-of-another", AbortsTheTask),
    ("commit-twice", CommitsACopy),
    ("commit-twice", CommitsOnce),
    ("replay-decided", AbortsWhatIsDone),
    ("sweep-orphans", SweepsNothing),
    ("sweep-orphans", SweepsUnasked),
    ("sweep-orphans", SweepsWhenLooking),
    ("sweep-keeps", SweepsWhatIsDone),
    ("other-job", SweepsAllJobs),
    ("other-sink", SweepsTheJob),
    ("crash.checkpoint.planned", SweepsWhatIsDone),
    ("crash.checkpoint.entered", SweepsWhatIsDone),
    ("crash.tasks.reading", SweepsWhatIsDone),
    ("crash.sink.writing", ShowsAtOnce),
    ("crash.sink.prepared", ShowsAtOnce),
    ("crash.prepare.verified", ShowsAtOnce),
    ("crash.decision.recorded", CommitsFromMemory),
    ("crash.sink.committing", CommitsFromMemory),
    ("crash.sink.committed", CommitsOnce),
    ("crash.checkpoint.done", SweepsWhatIsDone),
    ("crash-within-commit", CommitsByCopying),
]


# --- a source ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undeclared:
    """Reads lines of JSON {"n", "text"} from a file that only grows; a checkpoint takes `step` lines, a split two."""

    path: str
    step: int = 5
    bounded: bool = True

    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64()), ("text", pa.string())])

    def preflight(self) -> None:
        pass

    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        return BoxEnumerator(self)

    def reader(self, context: ReaderContext) -> BoxReader:
        return BoxReader(self, context)

    def describe(self, position: JSON) -> str:
        return f"line {position['line']}"

    def lines(self) -> list[bytes]:
        return Path(self.path).read_bytes().splitlines()


class BoxSource(Undeclared):
    """The same, and says what a second reading gives."""

    @property
    def replay(self) -> ReplayPromise:
        return ReplayPromise("if-unchanged", "nobody notices a line that is written over")


class BoxEnumerator:
    def __init__(self, source: Undeclared) -> None:
        self.source = source

    def initial(self) -> JSON:
        return {"line": 0}

    def latest(self, start: JSON) -> JSON:
        return {"line": min(start["line"] + self.source.step, len(self.source.lines()))}

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        return [
            Split(f"{at:09d}", {"from": at, "to": min(at + 2, end["line"])})
            for at in range(start["line"], end["line"], 2)
        ]

    def finished(self, position: JSON) -> bool:
        return self.source.bounded and bool(position["line"] >= len(self.source.lines()))

    def committed(self, position: JSON) -> None:
        pass


class BoxReader:
    def __init__(self, source: Undeclared, context: ReaderContext) -> None:
        self.source, self.context = source, context

    def read(self, split: Split) -> Iterator[Chunk]:
        rows: list[dict[str, Any]] = []
        first, last = split.payload["from"], split.payload["to"]
        for number, line in enumerate(self.source.lines()[first:last], first):
            try:
                rows.append({"n": json.loads(line)["n"], "text": json.loads(line)["text"]})
            except ValueError as error:
                self.context.reject(Reject(str(error), line, {"file": self.source.path, "offset": number}))
        yield Records(rows, FileOrigin(self.source.path, range(first, last)))


class Other(BoxEnumerator):
    """One method, or part of one, is another."""

    def __init__(self, source: BoxSource, **methods: Callable[..., Any]) -> None:
        super().__init__(source)
        for name, method in methods.items():
            setattr(self, name, method)


class SaysOtherColumns(BoxSource):
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])


class LosesTheLast(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain = BoxEnumerator(self)
        return Other(self, splits=lambda a, b: plain.splits(a, {"line": b["line"] - 1}))


class NoJsonPosition(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain = BoxEnumerator(self)
        return Other(self, latest=lambda a: {**plain.latest(a), "pair": (1, 2)})


class GoesBack(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain = BoxEnumerator(self)
        return Other(
            self, latest=lambda a: plain.latest(a) if a["line"] < len(self.lines()) else {"line": 0, "again": 1}
        )


class NeverEnds(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        return Other(self, finished=lambda position: False)


class EndsAtOnce(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        return Other(self, finished=lambda position: True)


class SplitsByChance(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain = BoxEnumerator(self)
        return Other(self, splits=lambda a, b: [replace(s, id=uuid.uuid4().hex) for s in plain.splits(a, b)])


class NumbersItsPlans(BoxSource):
    """Remembers in the process what it planned."""

    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain, calls = BoxEnumerator(self), [0]

        def splits(a: JSON, b: JSON) -> Sequence[Split]:
            calls[0] += 1
            return [replace(s, id=f"{calls[0]}-{s.id}") for s in plain.splits(a, b)]

        return Other(self, splits=splits)


class ReadsInAnyOrder(BoxSource):
    def reader(self, context: ReaderContext) -> BoxReader:
        return ShufflingReader(self, context)


class ShufflingReader(BoxReader):
    def read(self, split: Split) -> Iterator[Chunk]:
        mark = Path(f"{self.source.path}.{split.id}")
        for chunk in super().read(split):
            rows = to_records(chunk).rows
            yield Records(rows[::-1] if mark.exists() else rows, chunk.origin)
        mark.touch()


class SkipsAfterARestart(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain, first = BoxEnumerator(self), [True]

        def latest(a: JSON) -> JSON:
            if first[0] and a["line"] and a["line"] < len(self.lines()):
                first[0] = False
                return {"line": len(self.lines())}
            first[0] = False
            return plain.latest(a)

        def splits(a: JSON, b: JSON) -> Sequence[Split]:
            return plain.splits(a, {"line": min(b["line"], a["line"] + self.step)})

        return Other(self, latest=latest, splits=splits)


class OneStepOnly(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        plain = BoxEnumerator(self)
        return Other(self, splits=lambda a, b: plain.splits(a, {"line": min(b["line"], a["line"] + self.step)}))


class DeletesWhatWasCommitted(BoxSource):
    def enumerator(self, workspace: Storage) -> BoxEnumerator:
        def committed(position: JSON) -> None:
            lines = self.lines()
            if position["line"]:
                Path(self.path).write_bytes(b"".join(line + b"\n" for line in lines[1:]))

        return Other(self, committed=committed)


class DropsBadRecords(BoxSource):
    def reader(self, context: ReaderContext) -> BoxReader:
        return BoxReader(self, replace(context, reject=lambda record: None))


class NoRecords(BoxSource):
    def reader(self, context: ReaderContext) -> BoxReader:
        return NoRecordsReader(self, context)


class NoRecordsReader(BoxReader):
    def read(self, split: Split) -> Iterator[Chunk]:
        if self.context.want == "batch":
            yield from super().read(split)


class ClaimsToBeExact(BoxSource):
    @property
    def replay(self) -> ReplayPromise:
        return ReplayPromise("exact", "lines stay as they are")


class GivesNoReason(BoxSource):
    @property
    def replay(self) -> ReplayPromise:
        return ReplayPromise("if-unchanged", "")


class ReadsOnceAReader(BoxSource):
    def reader(self, context: ReaderContext) -> BoxReader:
        return OneReadReader(self, context)


class OneReadReader(BoxReader):
    def read(self, split: Split) -> Iterator[Chunk]:
        seen = self.__dict__.setdefault("seen", set())
        if split.id not in seen:
            yield from super().read(split)
        seen.add(split.id)


SOURCE_MUTANTS: Sequence[tuple[str, type[BoxSource]]] = [
    ("pickling", SaysOtherColumns),
    ("reads-all", LosesTheLast),
    ("positions", NoJsonPosition),
    ("monotone", GoesBack),
    ("ends", NeverEnds),
    ("ends", EndsAtOnce),
    ("splits-pure", SplitsByChance),
    ("splits-pure", NumbersItsPlans),
    ("replay", ReadsInAnyOrder),
    ("replay-promise", ClaimsToBeExact),
    ("replay-promise", GivesNoReason),
    ("replay-promise", ReadsOnceAReader),
    ("restart", SkipsAfterARestart),
    ("ranges", OneStepOnly),
    ("committed", DeletesWhatWasCommitted),
    ("rejects", DropsBadRecords),
    ("forms", NoRecords),
]
