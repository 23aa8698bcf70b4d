"""The audit: read every finished file and dead letter, and compare with what was produced, record by record.

It knows nothing of ledgers or manifests; it trusts only the bytes a reader would see. Hidden files are counted, never read.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from poundlock.testing.events import event_time_ms

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What became of the produced records.

    Args:
        produced: records produced.
        in_files: lines in finished files.
        dead_lettered: records in finished dead-letter files.
        lost: records produced more often than they were read.
        duplicated: records read more often than they were produced.
        misplaced: lines in a bucket that is not theirs, and dead letters that have a bucket.
        hidden: in-progress, pending and leftover files below both folders.
        files: number of finished files.
        examples: up to five records of each of "lost", "duplicated", "misplaced", as text with escapes.
    """

    produced: int
    in_files: int
    dead_lettered: int
    lost: int
    duplicated: int
    misplaced: int
    hidden: int
    files: int = 0
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every record is in exactly one place, and that place is the right one."""
        return not (self.lost or self.duplicated or self.misplaced)


def day_bucket(
    zone: str | tzinfo = UTC, field: str = "timestamp", prefix: str = "dt="
) -> Callable[[bytes], str | None]:
    """Return the oracle of the reference job: a record's `dt=yyyyMMdd` in a zone, None for records without event time."""
    place = ZoneInfo(zone) if isinstance(zone, str) else zone

    def bucket(value: bytes) -> str | None:
        time_ms = event_time_ms(value, field)
        if time_ms is None:
            return None
        return datetime.fromtimestamp(time_ms // 1000, place).strftime(prefix + "%Y%m%d")

    return bucket


def finished_files(root: Path, *, leave_out: Path | None = None) -> tuple[list[Path], list[Path]]:
    """Return the finished and the hidden files below a folder, each sorted.

    A name that starts with "." anywhere below the root is hidden; one that starts with "_" is metadata and in neither list,
    and so is everything below `leave_out`.
    """
    finished, hidden = [], []
    for path in sorted(root.rglob("*")):
        if not path.is_file() or (leave_out is not None and path.is_relative_to(leave_out)):
            continue
        below = path.relative_to(root)
        if any(part.startswith(".") for part in below.parts):
            hidden.append(path)
        elif not any(part.startswith("_") for part in below.parts):
            finished.append(path)
    return finished, hidden


_OPEN: Mapping[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a finished file, without their ends; what it is compressed with goes by its name."""
    if path.suffix in (".zst", ".zstd"):
        import pyarrow as pa

        opened = pa.input_stream(str(path), compression="zstd")
    else:
        opened = _OPEN.get(path.suffix, Path.open)(path, "rb")
    with opened as handle:
        data = handle.read()
    # split on "\n" alone: records may hold "\r" and the other characters that splitlines takes for line ends
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _value(letter: Mapping[str, Any], path: Path) -> bytes:
    missing = [] if letter.get("reason") else ["reason"]
    if "value_base64" in letter:
        value = base64.b64decode(letter["value_base64"], validate=True)
    elif "value" in letter:
        value = letter["value"].encode()
    else:
        missing.append("value")
    if missing:
        raise ValueError(f"{path}: a dead letter without {', '.join(missing)}: {dict(letter)!r}")
    return value


def dead_letter_values(files: Iterable[Path]) -> Iterator[bytes]:
    """Yield the raw records of dead-letter files. Raises ValueError for a line that lacks its reason or its value."""
    for path in files:
        for line in lines_of(path):
            yield _value(json.loads(line), path)


def _excess(many: Counter[bytes], few: Counter[bytes]) -> tuple[int, tuple[str, ...]]:
    surplus = many - few
    return surplus.total(), tuple(ascii(value)[2:-1] for value, _ in surplus.most_common(_EXAMPLES))


def audit_output(
    out_dir: str | Path,
    dead_letter_dir: str | Path | None,
    produced: Iterable[bytes] | Mapping[bytes, int],
    *,
    bucket: Callable[[bytes], str | None] | None = None,
) -> AuditResult:
    """Compare what a job wrote with what was produced, as multisets of raw records.

    Args:
        out_dir: folder of the file sink. `dead_letter_dir` may lie in it.
        dead_letter_dir: folder of the dead-letter files, None = there are none.
        produced: the records, without line ends, or a mapping of record to number of times.
        bucket: oracle of the bucket (path below out_dir, forward slashes) of a record, None = no bucket;
            default: `dt=yyyyMMdd` of the field "timestamp" in UTC.

    Raises:
        ValueError: a dead letter is not whole.
    """
    out, oracle = Path(out_dir), bucket or day_bucket()
    letters_dir = Path(dead_letter_dir) if dead_letter_dir is not None else None
    finished, hidden = finished_files(out, leave_out=letters_dir)
    expected = Counter(produced)
    written: Counter[bytes] = Counter()
    misplaced: list[bytes] = []
    in_files = dead_lettered = 0
    for path in finished:
        place = path.relative_to(out).parent.as_posix()
        for line in lines_of(path):
            in_files += 1
            written[line] += 1
            if oracle(line) != place:
                misplaced.append(line)
    if letters_dir is not None and letters_dir.exists():
        letter_files, hidden_letters = finished_files(letters_dir)
        hidden += hidden_letters
        for value in dead_letter_values(letter_files):
            dead_lettered += 1
            written[value] += 1
            if oracle(value) is not None:
                misplaced.append(value)
    lost, lost_examples = _excess(expected, written)
    duplicated, duplicated_examples = _excess(written, expected)
    return AuditResult(
        produced=expected.total(),
        in_files=in_files,
        dead_lettered=dead_lettered,
        lost=lost,
        duplicated=duplicated,
        misplaced=len(misplaced),
        hidden=len(hidden),
        files=len(finished),
        examples={
            "lost": lost_examples,
            "duplicated": duplicated_examples,
            "misplaced": tuple(ascii(value)[2:-1] for value in misplaced[:_EXAMPLES]),
        },
    )
