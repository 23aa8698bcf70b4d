"""The source and the sink keep the contracts of poundlock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poundlock_spool import SpoolSink, SpoolSource

from poundlock.testing import sink_conformance, source_conformance

ROWS = [{"line": f"line {n}"} for n in range(24)]


def visible(sink: SpoolSink) -> list[dict[str, Any]]:
    return [{"line": line} for path in sink.folder.glob("*.txt") for line in path.read_text().splitlines()]


def test_sink() -> None:
    sink_conformance(lambda folder: SpoolSink(str(folder)), read=visible, rows=ROWS)


def filled(folder: Path) -> SpoolSource:
    for n in range(3):
        (folder / f"{n}.txt").write_text("".join(f"{row['line']}\n" for row in ROWS[n * 6 : n * 6 + 6]))
    (folder / "3.txt").write_bytes(b"\xff\n")
    return SpoolSource(str(folder), files_per_checkpoint=2)


def another(source: SpoolSource) -> Sequence[dict[str, Any]]:
    (Path(source.folder) / "4.txt").write_text("".join(f"{row['line']}\n" for row in ROWS[18:]))
    return ROWS[18:]


def test_source() -> None:
    source_conformance(filled, rows=ROWS[:18], more=another, bad=1)
