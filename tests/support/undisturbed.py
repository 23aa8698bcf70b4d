"""What a job gives that nobody kills, to hold beside what came of one that died again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from support.finished import lines_by_sink
from support.lives import Lives, folders_of


def undisturbed(job: Path, folder: Path, given: Path, sinks: Collection[str]) -> Mapping[str, Counter[str]]:
    """Run a job once, in a folder of its own; return the lines of each sink.

    Args:
        job: the job file.
        folder: made here.
        given: the input.
        sinks: those that have to get lines: without, nothing would be compared.
    """
    folder.mkdir()
    with Lives(job, environment=folders_of(folder, given), folder=folder, patience_s=1_800) as lives:
        assert lives.run() == [0]
    seen = lines_by_sink(folder / "out")
    assert not [name for name in sinks if not seen.get(name)]
    return seen


def difference(seen: Mapping[str, Counter[str]], wanted: Mapping[str, Counter[str]]) -> dict[str, Sequence[str]]:
    """Return some lines of each sink that only one of both has; of sinks without such lines nothing."""
    found = {name: [*(wanted[name] - seen[name]), *(seen[name] - wanted[name])][:5] for name in wanted}
    return {name: lines for name, lines in found.items() if lines}
