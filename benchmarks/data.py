"""The rows every benchmark reads, and the proof that a run wrote all of them: count, multiset and buckets.

Rows depend on a seed only, so figures of two machines and two years speak of the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["LINE_BYTES", "Input", "WrongOutput", "blocks", "check", "files", "finished", "lines_of"]

LINE_BYTES = 95
_EVENTS = (b"page_view", b"adv_click", b"thumbs_up")
_FIRST_S, _STEP_S, _SEED = 1545184226.432, 0.1, 42
_FILES = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)


class WrongOutput(Exception):
    """A run did not write exactly the rows it was given; it has no figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """A folder of input files and what must come out of it.

    Args:
        folder: folder with the files.
        rows: lines in them.
        fingerprint: order-free hash of all lines as a multiset.
        uuids: the same of the field `uuid` alone.
        buckets: rows per `dt=yyyyMMdd` bucket, UTC.
    """

    folder: Path
    rows: int
    fingerprint: int
    uuids: int
    buckets: dict[str, int]


def _lines(first: int, count: int, rng: np.random.Generator) -> bytes:
    random = rng.integers(0, 1 << 32, size=(count, 4), dtype=np.uint32).astype(">u4").tobytes().hex()
    rows = []
    for i in range(count):
        x = random[i * 32 : i * 32 + 32]
        stamp = _FIRST_S + (first + i) * _STEP_S
        event = _EVENTS[(first + i) % 3].decode()
        rows.append(
            f'{{"timestamp":{stamp:.3f},"event":"{event}","uuid":"{x[:8]}-{x[8:12]}-4{x[13:16]}-a{x[17:20]}-{x[20:]}"}}\n'
        )
    return "".join(rows).encode()


def blocks(rows: int) -> Iterator[bytes]:
    """Yield the rows as blocks of whole lines, at most 50 000 lines each."""
    rng = np.random.default_rng(_SEED)
    for first in range(0, rows, 50_000):
        yield _lines(first, min(50_000, rows - first), rng)


def lines_of(given: Input) -> Iterator[list[bytes]]:
    """Yield the lines of each file, without their ends."""
    return (path.read_bytes().splitlines() for path in sorted(given.folder.iterdir()))


def finished(folder: Path) -> list[Path]:
    """Return the files that a reader of the folder sees."""
    there = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [folder / path for path in there if not any(part.startswith((".", "_")) for part in path.parts)]


def fingerprint(block: bytes | memoryview) -> int:
    """Return the order-free hash of the lines in a block.

    Raises:
        WrongOutput: the block is not made of whole lines of the right length.
    """
    if len(block) % LINE_BYTES:
        raise WrongOutput(f"{len(block)} bytes are not whole lines of {LINE_BYTES}")
    table = np.frombuffer(block, np.uint8).reshape(-1, LINE_BYTES)
    if not (table[:, -1] == 10).all():
        raise WrongOutput("lines of another length than was produced")
    # The first 7 bytes are the same in every line; the other 88 make 11 words.
    return _hash(table[:, LINE_BYTES - 88 :])


def _uuids(block: bytes) -> int:
    """Return the order-free hash of the uuids in a block of lines that end in `"uuid":"…"}`, of any length."""
    octets = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(octets == 10)
    # 32 of the 36 bytes: the last ones, which the random part is in.
    return _hash(octets[ends[:, None] + np.arange(-34, -2)])


def _hash(table: NDArray[np.uint8]) -> int:
    words: NDArray[np.uint64] = np.ascontiguousarray(table).view(np.uint64)
    mixed = np.full(len(words), _MIX)
    for column in range(words.shape[1]):
        mixed = (mixed ^ words[:, column]) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def _buckets(block: bytes) -> dict[str, int]:
    table = np.frombuffer(block, np.uint8).reshape(-1, LINE_BYTES)
    seconds = np.ascontiguousarray(table[:, 13:23]).view("S10").ravel().astype(np.int64)
    days, counts = np.unique(seconds // 86400, return_counts=True)
    names = (str(np.datetime64(int(day), "D")).replace("-", "") for day in days)
    return {f"dt={name}": int(count) for name, count in zip(names, counts, strict=True)}


def files(folder: Path, rows: int, *, copies: int = 1) -> Input:
    """Return `rows * copies` rows in 8 files (hard links make the copies), made unless they are there already.

    Args:
        folder: where inputs are kept; each gets a folder of its own.
        rows: distinct rows; 2 000 000 are 190 MB.
        copies: how often each file is there.
    """
    target = folder / f"rows-{rows}x{copies}"
    note = folder / f"rows-{rows}x{copies}.json"
    if not note.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if copies == 1:
            facts = _write(target, rows)
        else:
            base = files(folder, rows)
            for copy in range(copies):
                for file in sorted(base.folder.iterdir()):
                    os.link(file, target / f"{file.stem}-{copy}{file.suffix}")
            facts = {
                "fingerprint": base.fingerprint * copies % (1 << 64),
                "uuids": base.uuids * copies % (1 << 64),
                "buckets": {name: count * copies for name, count in base.buckets.items()},
            }
        note.write_text(json.dumps(facts))
    facts = json.loads(note.read_text())
    return Input(folder=target, rows=rows * copies, **facts)


def _write(target: Path, rows: int) -> dict[str, object]:
    total, uuids, buckets, written = 0, 0, dict[str, int](), 0
    for block in blocks(rows):
        # A block goes to one file as a whole; files are filled one after the other, as a rolling writer would.
        with (target / f"events-{written * _FILES // rows}.json").open("ab") as file:
            file.write(block)
        written += len(block) // LINE_BYTES
        total = (total + fingerprint(block)) % (1 << 64)
        uuids = (uuids + _uuids(block)) % (1 << 64)
        for name, count in _buckets(block).items():
            buckets[name] = buckets.get(name, 0) + count
    return {"fingerprint": total, "uuids": uuids, "buckets": buckets}


def check(folder: Path, expected: Input, *, rewritten: bool = False) -> None:
    """Read everything a run made visible and compare it with its input.

    Args:
        folder: where the run's buckets are.
        expected: what it was given.
        rewritten: the lines were decoded and encoded again: compare uuids, counts and buckets, not bytes.

    Raises:
        WrongOutput: a row is missing, twice, changed or in another bucket, or a hidden file was left.
    """
    total, buckets = 0, dict[str, int]()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_dir() or _is_bookkeeping(inside):
            continue
        if path.name.startswith("."):
            raise WrongOutput(f"left behind: {inside}")
        bucket = inside.parts[0]
        for block in _whole_lines(path):
            total = (total + (_uuids(block) if rewritten else fingerprint(block))) % (1 << 64)
            buckets[bucket] = buckets.get(bucket, 0) + block.count(b"\n")
    if buckets != expected.buckets or total != (expected.uuids if rewritten else expected.fingerprint):
        raise WrongOutput(
            f"{sum(buckets.values())} of {expected.rows} rows came out, as {buckets}, for {expected.buckets}"
        )


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        rest = b""
        while block := file.read(8 << 20):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            rest = block[cut:]
            yield block[:cut]
    if rest:
        raise WrongOutput(f"{path.name} ends in the middle of a line")


def _is_bookkeeping(inside: Path) -> bool:
    """Whether a path is a log or checksum that is no row: Spark's `_spark_metadata`, `.x.crc`, `_SUCCESS`, our own `_` folders."""
    return any(part.startswith("_") for part in inside.parts) or inside.name.endswith(".crc")
