"""State of many keys: written in bulk as runs, then a job that goes on from it. Arguments: make|run KEYS …; see `main`.

Each key has 168 bytes of value state that does not compress, which is some 206 bytes of a run. The runs are those that a job of
that age has: one for each key group, as merges leave them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.jobs.state_keys import Halves
from benchmarks.jobs.usage import anonymous_bytes, used
from poundlock import DatagenSource, FileSink, Job, KeyedProcessFunction, ValueStateDescriptor
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.connectors.datagen.rows import RowOrigin
from poundlock.connectors.datagen.source import DatagenEnumerator
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.formats.chunk import Batch, Chunk
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.state.decided_state import DecidedState, state_behind
from poundlock.state.hashing import first_hash, key_hashes
from poundlock.state.inspect import StateReader
from poundlock.state.manifest import Fragment, Manifest, RunFile
from poundlock.state.runs.columns import Rows
from poundlock.state.runs.files import RunFiles, run_name
from poundlock.state.runs.writing import RunWriter
from poundlock.storage.local import LocalStorage

TOUCHED, WARM_UP = 1_000, 10
_STRIDE = 0x9E3779B1  # a prime, so that a thousand rows in a row are a thousand keys far apart
_DIGITS, _PAYLOAD = 10, 160
_AT_ONCE = 2_000_000  # keys
_BIN8 = 0xC4  # what msgpack begins short bytes with
_FEW = 1_000  # keys of the job that is run to have a ledger to write into
_ASKED = 40  # keys that are looked up


def texts(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return the keys of some numbers: texts of ten digits."""
    digits = np.empty((len(numbers), _DIGITS), np.uint8)
    rest = numbers.copy()
    for place in reversed(range(_DIGITS)):
        digits[:, place] = rest % 10 + ord("0")
        rest //= 10
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * _DIGITS
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(digits)])


@dataclass(frozen=True)
class Keys:
    """Row i of the first `keys` has the key i; the rows behind them go through the keys in steps of `_STRIDE`."""

    keys: int

    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.string())])

    def numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the keys of rows as numbers."""
        rows = np.arange(start, stop, dtype=np.int64)
        return np.where(rows >= self.keys, rows * _STRIDE % self.keys, rows)

    def make(self, start: int, stop: int) -> Chunk:
        column = texts(self.numbers(start, stop))
        return Batch(pa.RecordBatch.from_arrays([column], schema=self.schema()), RowOrigin(start))


class Touching(DatagenSource):
    """`TOUCHED` rows a checkpoint."""

    def __init__(self, keys: int, count: int) -> None:
        super().__init__("key string", count=count)
        object.__setattr__(self, "rows", Keys(keys))

    def enumerator(self, workspace: Any) -> DatagenEnumerator:
        return _Planned(self)


class _Planned(Halves):
    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        return {**start, "row": min(int(start["row"]) + TOUCHED, self.source.count or 0)}


class Seen(KeyedProcessFunction):
    """Counts the rows of a key in the first bytes of its state, and sends on how many there were, from the second on."""

    def open(self, context: Any) -> None:
        self.held = context.get_state(ValueStateDescriptor("held"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        held = self.held.value()
        rows = 1 if held is None else int.from_bytes(held[:8], "big") + 1
        self.held.update(rows.to_bytes(8, "big") + (bytes(_PAYLOAD) if held is None else held[8:]))
        return [{"n": rows}] if rows > 1 else ()


def job(keys: int, rows: int, out: str, checkpoints: str, parallelism: int) -> Job:
    """Return the job, which ends behind so many rows."""
    made = Job("much", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=parallelism, on_error="fail")
    seen = (
        made.from_source(Touching(keys, rows), name="keys")
        .key_by("key")
        .process(Seen(), schema="n bigint", name="seen")
    )
    seen.sink_to(FileSink(out, format="json"), name="out")
    return made


def expected(keys: int, checkpoints: int) -> int:
    """Return the sum of all that `Seen` sends on when each key was there once before: every round through the keys finds one row more at each."""
    rounds, rest = divmod(checkpoints * TOUCHED, keys)
    return keys * sum(range(2, rounds + 2)) + rest * (rounds + 2)


# --- make: the state --------------------------------------------------------------------------------------------------


def make(keys: int, out: str, checkpoints: Path) -> None:
    """Write the state of a job that has seen each key once, and the record that names it."""
    job(keys, min(_FEW, keys), out, str(checkpoints), 2).run()
    storage = LocalStorage(str(checkpoints))
    ledger = Ledger(storage)
    newest = ledger.newest()
    assert newest is not None
    assert newest.job_id
    manifests = _state(ledger).manifest or {}
    ((space, known),) = manifests.items()
    files = list(_written(keys, storage, newest.job_id, newest.checkpoint, known))
    manifest = msgspec.structs.replace(
        known,
        files=tuple(files),
        fragments=tuple(Fragment(file.first, file.stop, (file.id,)) for file in files),
        next_file=len(files) + 1,
    )
    end = {**newest.sources["keys"].end, "row": keys}
    record = replace(
        newest,
        number=newest.number + 1,
        occasion="start",
        sources={"keys": SourceRange(end, end)},
        state=DecidedState.whole({space: manifest}),
    )
    ledger.append(record)
    ledger.mark_committed(record.number)
    (checkpoints / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def _state(ledger: Ledger) -> DecidedState:
    from poundlock.checkpoint.ledger.records import state_parts

    newest = ledger.newest()
    assert newest is not None
    state = state_behind(state_parts(ledger, newest))
    assert state is not None
    return state


def _written(keys: int, storage: LocalStorage, job_id: str, checkpoint: int, known: Manifest) -> Any:
    """Yield a run for each key group, written by the writer of tasks."""
    groups, files = known.max_parallelism, RunFiles(storage)
    (operator,) = known.operators.values()
    (table,) = operator.tables
    scratch = Path(storage.root) / "scratch"
    scratch.mkdir()
    per_file = max(1, min(groups, groups * _AT_ONCE * 2 // max(keys, 1)))  # groups that are sorted at once
    borders = [first_hash(group, groups) for group in range(0, groups, per_file)]
    kind = np.dtype([("hash", np.uint64), ("number", np.int64)])
    handles = [(scratch / f"{first}").open("wb") for first in range(len(borders))]
    for first in range(0, keys, _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, keys), dtype=np.int64)
        rows = np.empty(len(numbers), kind)
        rows["hash"], rows["number"] = key_hashes([texts(numbers)]), numbers
        rows = rows[np.argsort(rows["hash"], kind="stable")]
        cuts = [*np.searchsorted(rows["hash"], np.array(borders, np.uint64)).tolist(), len(rows)]
        for handle, start, stop in zip(handles, cuts, cuts[1:], strict=False):
            handle.write(rows[start:stop].tobytes())
    random, number = np.random.default_rng(7), 1
    for place, handle in enumerate(handles):
        handle.close()
        rows = np.fromfile(handle.name, kind)
        Path(handle.name).unlink()
        rows = rows[np.argsort(rows["hash"], kind="stable")]
        for group in range(place * per_file, min((place + 1) * per_file, groups)):
            ends = [first_hash(each, groups) for each in (group, group + 1)]
            start, stop = (
                len(rows) if end >> 64 else int(np.searchsorted(rows["hash"], np.uint64(end))) for end in ends
            )
            if start == stop:
                continue
            writer = RunWriter(held=1 << 40)
            writer.add((operator.number, table, None), _rows(rows[start:stop], random))
            data, count = writer.content([], max_parallelism=groups, operators={operator.number: "seen"})
            name = run_name(job_id, 0, checkpoint, group, "bulk")
            digest, size = files.write(name, data)
            yield RunFile(
                name=name, digest=digest, bytes=size, rows=count, checkpoint=checkpoint, first=group, stop=group + 1,
                id=number,
            )  # fmt: skip
            number += 1
    scratch.rmdir()


def _rows(rows: npt.NDArray[Any], random: np.random.Generator) -> Rows:
    width = 8 + _PAYLOAD
    values = np.empty((len(rows), 2 + width), np.uint8)
    values[:, 0], values[:, 1], values[:, 2:9], values[:, 9] = _BIN8, width, 0, 1
    values[:, 10:] = np.frombuffer(random.bytes(len(rows) * _PAYLOAD), np.uint8).reshape(len(rows), _PAYLOAD)
    ends = np.arange(len(rows) + 1, dtype=np.int64) * (2 + width)
    held = pa.Array.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(values)])
    keys = encode_key_columns([texts(rows["number"])])
    return Rows(np.ascontiguousarray(rows["hash"]), keys, None, held)


# --- run: a job goes on from it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """Of a checkpoint that is complete: its ms, and what the process tree has used so far."""

    ms: int
    cpu_ms: int
    written: int
    anonymous: int


def go_on(keys: int, before: int, count: int, out: str, checkpoints: str, parallelism: int, found: Path) -> None:
    """Run so many checkpoints behind those that were, take a savepoint, and note what all that took."""
    marks: list[Mark] = []
    began = time.monotonic()
    first_s: list[float] = []
    requests, stop, said = Requests(), StopRequest(), list[str]()

    def note(progress: Progress) -> None:
        if progress.message:
            said.append(progress.message)
        if len(marks) < progress.rows_read // TOUCHED:
            first_s[:] = first_s or [time.monotonic() - began]
            marks.append(Mark(progress.last_ms or 0, *used(), anonymous_bytes()))
            if len(marks) == WARM_UP:
                requests.trigger("savepoint", directory=f"{checkpoints}-savepoints")

    rows = keys + (before + count) * TOUCHED
    ended = run(job(keys, rows, out, checkpoints, parallelism), on_progress=note, requests=requests, stop=stop)
    print(ended)
    asked = _ask(keys, Path(checkpoints))
    (saved,) = [line for line in said if line.startswith("Savepoint ")] or [""]
    waited = saved.rpartition("waited ")[2].split(" ") if saved else []
    base, last = marks[WARM_UP], marks[-1]
    between = len(marks) - 1 - WARM_UP
    found.write_text(
        json.dumps(
            {
                "first s": first_s[0],
                "ms": statistics.median(mark.ms for mark in marks[WARM_UP + 1 :]),
                "CPU ms": (last.cpu_ms - base.cpu_ms) / between,
                "kB written": (last.written - base.written) / between / 1000,
                "memory MB": max(mark.anonymous for mark in marks) / 1e6,
                "savepoint ms": float(waited[3]) if waited else 0.0,
                "savepoint pause ms": float(waited[0]) if waited else 0.0,
                "key ms": statistics.median(asked),
                "first key ms": asked[0],
            }
        )
    )


def _ask(keys: int, checkpoints: Path) -> list[float]:
    """Return how long each of some look-ups took, ms; the files are opened by the first."""
    storage = LocalStorage(str(checkpoints))
    ((_, manifest),) = (_state(Ledger(storage)).manifest or {}).items()
    reader, took = StateReader(manifest, RunFiles(storage)), []
    for number in np.random.default_rng(11).integers(0, keys, _ASKED).tolist():
        began = time.monotonic()
        (entry,) = reader.entries_of("seen", f"{number:0{_DIGITS}d}")
        took.append((time.monotonic() - began) * 1000)
        assert len(entry.value) == 8 + _PAYLOAD
    return took


def main(words: Sequence[str]) -> None:
    """Run `make KEYS OUT CHECKPOINT_DIR`, or `run KEYS BEFORE COUNT OUT CHECKPOINT_DIR PARALLELISM FOUND`."""
    what, keys, *rest = words
    if what == "make":
        make(int(keys), rest[0], Path(rest[1]))
    else:
        before, count, out, checkpoints, parallelism, found = rest
        go_on(int(keys), int(before), int(count), out, checkpoints, int(parallelism), Path(found))


if __name__ == "__main__":
    main(sys.argv[1:])
