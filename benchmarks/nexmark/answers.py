"""What Flink answers to the queries over a few events, as digests that tests compare ours with: `python -m benchmarks.nexmark.answers FILE`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.data import finished
from benchmarks.flink.install import installed
from benchmarks.nexmark.events import bids_in, lines, side_input
from benchmarks.nexmark.scripts import QUERIES, script

__all__ = ["BIDS", "Answer", "answer_of", "few_events", "final_rows", "written_rows"]

EVENTS, _PER_SECOND = 20_000, 200  # a hundred seconds
BIDS = bids_in(EVENTS)
_PRINTED = re.compile(r"^(?:\d+> )?([+-][IUD])\[(.*)\]$")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d))?(?:\.(\d+))?(?![\d:])")
Answer = Mapping[str, int | str]


def few_events(folder: Path, files: int = 1) -> list[Path]:
    """Write the events that answers are of into files, one behind the other in time."""
    every = lines(0, EVENTS, per_second=_PER_SECOND).to_pylist()
    paths = []
    for number, some in enumerate(np.array_split(np.arange(EVENTS), files)):
        path = folder / f"events-{number}.json"
        path.write_text("".join(every[some[0] : some[-1] + 1]))
        paths.append(path)
    return paths


def final_rows(printed: Iterable[str]) -> Iterator[str]:
    """Yield the rows that are left of the changes that a print table wrote."""
    left: Counter[str] = Counter()
    for line in printed:
        change = _PRINTED.match(line)
        if change is not None:
            left[change[2]] += 1 if change[1] in ("+I", "+U") else -1
    if any(count < 0 for count in left.values()):
        raise ValueError("a row was taken back that was not there")
    yield from left.elements()


def written_rows(folder: Path) -> Iterator[str]:
    """Yield the lines of files with the names of their folders."""
    for path in finished(folder):
        for line in path.read_text().splitlines():
            yield f"{path.parent.relative_to(folder)}: {line.replace(chr(34), '')}"


def answer_of(rows: Iterable[str]) -> Answer:
    """Return how many rows there are, and a digest of them in any order."""
    plain = sorted(_MOMENT.sub(_moment, row) for row in rows)
    return {"rows": len(plain), "digest": blake2b("\n".join(plain).encode(), digest_size=8).hexdigest()}


def _moment(found: re.Match[str]) -> str:
    return f"{found[1]} {found[2]}:{found[3] or '00'}.{(found[4] or '').ljust(3, '0')}"


def flinks_answers() -> Iterator[tuple[str, Answer]]:
    """Run each query on Flink, on one task, so that rows come in the order of their file; q12 has no answer that is always the same."""
    flink = installed()
    if flink is None:
        sys.exit("Flink is not installed. Next: make bench-flink")
    with TemporaryDirectory() as made:
        home = Path(made)
        (home / "events").mkdir()
        few_events(home / "events")
        for query in (each for each in QUERIES if each != "q12"):
            out = home / query
            text = script(
                [query],
                {"connector": "filesystem", "path": str(home / "events"), "format": "json"},
                {"connector": "print"},
                {"connector": "filesystem", "path": str(out), "format": "csv"},
                {"connector": "filesystem", "path": str(side_input(home)), "format": "csv"},
            )
            (home / f"{query}.sql").write_text(text)
            command = flink.command("SqlScript", home / f"{query}.sql", home / f"{query}-checkpoints", 1)
            printed = subprocess.run(command, capture_output=True, text=True, check=False)
            if printed.returncode:
                sys.exit(f"{query}: {printed.stderr[-4000:]}")
            yield query, answer_of(written_rows(out) if query == "q10" else final_rows(printed.stdout.splitlines()))


if __name__ == "__main__":
    answers = {}
    for query, answer in flinks_answers():
        print(query, answer, flush=True)
        answers[query] = answer
    Path(sys.argv[1]).write_text(json.dumps({"events": EVENTS, "answers": answers}, indent=1) + "\n")
