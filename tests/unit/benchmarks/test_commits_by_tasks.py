"""Commits by the driver and by tasks: the figures follow from what a run found, and the store takes the CPU that it plays."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.commits_by_tasks import figures_of, growth
from benchmarks.far_store import CALLS, BusyUploads, Calls
from benchmarks.jobs.commits_by_tasks import Way

DRIVER = Way(
    files=10, by="driver", verify_s=10, commit_s=10, abort_s=10, sweep_s=10, cpu_s=40, peak_kb=20, pieces=0
)  # fmt: skip
TASKS = replace(DRIVER, by="tasks", verify_s=4, commit_s=6, cpu_s=1, pieces=8)


def test_figures_of_both_ways() -> None:
    more = [
        replace(way, files=100, verify_s=10 * way.verify_s, commit_s=10 * way.commit_s, abort_s=100, sweep_s=100,
                cpu_s=20 * way.cpu_s, peak_kb=200)
        for way in (DRIVER, TASKS)
    ]  # fmt: skip
    assert growth(TASKS, more[1]) == pytest.approx(2)
    figures = figures_of([DRIVER, TASKS, *more])
    assert figures["growth"] == pytest.approx(2)
    assert figures["tasks / driver"] == pytest.approx(0.5)
    assert figures["driver's CPU, tasks / driver"] == pytest.approx(1 / 40)
    assert figures["driver, by tasks MB"] == 0.2
    assert figures["by driver, verify s at 10"] == 10
    assert figures["by tasks, pieces at 100"] == 8
    assert figures["by tasks, driver's kB a file at 100"] == 2


def test_a_call_takes_cpu_of_whoever_makes_it_unless_it_takes_no_time(tmp_path: Path) -> None:
    for seconds, least in ((0.001, BusyUploads.client_s), (0.0, 0.0)):
        store, made, before = BusyUploads(str(tmp_path), seconds), CALLS.made, time.thread_time()
        assert store.stat("nothing") is None
        assert time.thread_time() - before >= least
        assert CALLS.made == made + 1
    assert store.client_s > 0, "tasks make very many of its calls"


def test_calls_travel_with_a_store_into_tasks() -> None:
    calls = Calls()
    calls.wait(0)
    there = pickle.loads(pickle.dumps(calls))
    there.wait(0)
    assert (calls.made, there.made) == (1, 2)
