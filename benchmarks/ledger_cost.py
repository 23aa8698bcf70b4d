"""What the ledger costs over a long life: time per checkpoint, files, bytes and the time of a start, a listing and an audit after
1,000, 10,000 and 100,000 checkpoints, with a retention and without. The last has to cost what the ones before it did.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.jobs.ledger_life import STEP_MS, source_range
from benchmarks.measure import run
from benchmarks.result import Result
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage.local import LocalStorage

__all__ = ["CASES", "growth", "kept_records", "prove"]

_MARKS, _QUICK_MARKS = (1_000, 10_000, 100_000), (300, 3_000, 9_000)
_RETENTION_S = 5_000
_KEPT = ("ms", "cpu_ms", "calls", "start_ms", "list_newest_ms", "find_ms", "audit_ms", "record_bytes")
_GROW = (*_KEPT, "files", "bytes")


def ledger_cost(bench: Bench) -> Result:
    """A hundred thousand checkpoints of two sinks in memory, one second of the job's clock apart, of which the newest are kept."""
    return _life(bench, "ledger_cost/poundlock", _RETENTION_S, _GROW)


def kept_for_ever(bench: Bench) -> Result:
    """The same without a retention: the archive grows, and nothing else."""
    return _life(bench, "ledger_cost/kept_for_ever", 0, _KEPT)


def _life(bench: Bench, name: str, retention_s: int, what: Sequence[str]) -> Result:
    work = bench.folder(name.replace("/", "-"))
    marks = _QUICK_MARKS if bench.quick else _MARKS
    words = program("jobs/ledger_life.py", work / "checkpoints", work / "bands", retention_s, *marks)
    usage = run(words, env=bench.environment(work), log=bench.log(name))
    kept_ms = retention_s * 1000 if retention_s else marks[-1] * STEP_MS
    prove(work / "checkpoints", last=marks[-1] - 1, retention_ms=kept_ms)
    bands = json.loads((work / "bands").read_text())
    shutil.rmtree(work)
    figures = {f"{each} at {band['checkpoint']:,}": band[each] for band in bands for each in what}
    grown = growth(bands[-2], bands[-1], what)
    return Result.of(name, marks[-1], usage, median_ms=bands[-1]["ms"], figures={**figures, "growth": grown})


def growth(before: Mapping[str, float], after: Mapping[str, float], what: Sequence[str] = _GROW) -> float:
    """Return how many times as much the costliest of some measures is in a later band.

    Waiting for the disk is left out: it says how busy the disk was in that minute.
    """
    return max(after[each] / before[each] for each in what if each != "ms")


def kept_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every record on disk once, by its number, reading the files without poundlock.

    Raises:
        WrongOutput: two files hold different records of one number.
    """
    found: dict[int, bytes] = {}
    lines = [
        line
        for path in sorted((folder / "ledger-archive").glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    lines += [path.read_bytes().rstrip(b"\n") for path in sorted((folder / "ledger").glob("*.json"))]
    for line in lines:
        number = json.loads(line)["number"]
        if found.setdefault(number, line) != line:
            raise WrongOutput(f"two records of number {number}")
    for number in sorted(found):
        record = json.loads(found[number])
        del record["crc32"]  # it is of the bytes, and what reads them again compares it
        yield record


def prove(folder: Path, *, last: int, retention_ms: int) -> None:
    """Read what is left of a ledger, and compare every checkpoint within the retention with what it was given.

    Args:
        folder: the job's checkpoint folder.
        last: the newest checkpoint.
        retention_ms: what must be there still, counted back from the newest record.

    Raises:
        WrongOutput: a checkpoint is missing, twice, or says something else than happened.
    """
    records = list(kept_records(folder))
    numbers = [record["number"] for record in records]
    if not records or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise WrongOutput(f"{len(numbers)} ledger records with a gap between them")
    ledger = Ledger(LocalStorage(str(folder)))
    decided = [record for record in records if record["occasion"] == "checkpoint"]
    for record in decided:
        start, end = source_range(record["checkpoint"])
        span = record["sources"]["events"]
        if (span["start"], span["end"]) != (start, end) or ledger.read(record["number"]).to_json() != record:
            raise WrongOutput(f"record {record['number']} is not what was decided")
    reach = retention_ms // STEP_MS
    first = max(0, last - reach)
    if [record["checkpoint"] for record in decided][-(last - first + 1) :] != list(range(first, last + 1)):
        raise WrongOutput(f"not every checkpoint from {first} to {last} is in the ledger once")


CASES: tuple[Case, ...] = (
    Case("ledger_cost/poundlock", ledger_cost),
    Case("ledger_cost/kept_for_ever", kept_for_ever),
)
