"""Nexmark's queries over a few events: the final tables are Flink's, of which `python -m benchmarks.nexmark.answers` keeps digests."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from benchmarks.nexmark.answers import BIDS, answer_of, few_events, final_rows, written_rows
from benchmarks.nexmark.events import side_input
from benchmarks.nexmark.scripts import QUERIES, script
from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from support.sql_scripts import Answers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

FLINKS = json.loads((Path(__file__).parents[1] / "conformance/data/nexmark.json").read_text())["answers"]
PRINTED = re.compile(r"^(q\d+):\d+> (.*)$")


def test_every_query_gives_what_flink_gives(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """All of them are one job here, over four checkpoints, and what they print stands beside each other."""
    events, out = tmp_path / "events", tmp_path / "out"
    events.mkdir()
    for number, path in enumerate(few_events(events, files=4)):
        os.utime(path, (1e9 + number, 1e9 + number))
    source = {"connector": "filesystem", "path": str(events), "format": "json", "source.max-files-per-checkpoint": "1"}
    text = script(
        QUERIES,
        source,
        {"connector": "print", "print-identifier": "${query}"},
        {"connector": "filesystem", "path": str(out), "format": "csv"},
        {"connector": "filesystem", "path": str(side_input(tmp_path)), "format": "csv"},
    )
    settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]"])
    answers = Answers()
    ScriptRunner("nexmark", answers.take, answers.known, settings=settings, parallelism=2).run(text)
    printed: dict[str, list[str]] = {query: [] for query in QUERIES}
    for line in capfd.readouterr().out.splitlines():
        if (found := PRINTED.match(line)) is not None:
            printed[found[1]].append(found[2])
    got = {query: answer_of(final_rows(lines)) for query, lines in printed.items()}
    got["q10"] = answer_of(written_rows(out))
    assert {query: answer for query, answer in got.items() if query != "q12"} == FLINKS
    # In which ten seconds of the clock a bid is read is another one each time, and those that are open at the end do not come out.
    assert sum(int(row.split(", ")[1]) for row in final_rows(printed["q12"])) <= BIDS
