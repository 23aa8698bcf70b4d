"""What a job left: the rows of its finished files, and whether its ledger says the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import open_storage


def visible(folder: Path) -> list[Path]:
    """Return the finished files below a folder."""
    return [
        p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not any(x[0] in "._" for x in p.relative_to(folder).parts)
    ]


def lines(folder: Path) -> list[bytes]:
    """Return the lines of the finished files below a folder."""
    return [line for path in visible(folder) for line in path.read_bytes().splitlines()]


def lines_by_sink(folder: Path) -> dict[str, Counter[str]]:
    """Return the lines of the finished files of each sink, by the name of its folder."""
    return {sink.name: Counter(line.decode() for line in lines(sink)) for sink in folder.iterdir()}


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the finished JSON files below a folder."""
    return [json.loads(line) for line in lines(folder)]


def assert_ledger_adds_up(tmp_path: Path, sinks: dict[str, int]) -> None:
    """Every record balances, and what the ledger says was written is what is in the files."""
    written: Counter[str] = Counter()
    for record in Ledger(open_storage(f"{tmp_path}/checkpoint")):
        for name, sink in record.sinks.items():
            assert sink.counts.balanced(), (record.number, name, sink.counts)
            written[name] += sink.counts.written
    assert {name: written[name] for name in sinks} == sinks
