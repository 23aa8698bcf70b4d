"""What a checkpoint costs that touches a thousand keys: entries read, bytes written. It must follow them, not what there is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.state import tables
from poundlock.state.hashing import hashes_of
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import ScratchState

TOUCHED, CHECKPOINTS = 1000, 24


def cost(keys: int) -> tuple[int, int, int]:
    """Return bytes written and the most entries read and looked at, over some checkpoints on so many keys."""
    store = ScratchState(128, 1)
    operator = RollingOperator(rolling_fold("sum", "n"))
    names = [f"user-{i:08d}" for i in range(keys)]
    state = store.open(0, 0, 0)
    state.declare("rolling", "rolling")
    state.prefetch(names)
    table = state.table("rolling")
    for name in names:
        table[name] = {"n": 1}
    store.write()
    chance = random.Random(1)
    written = decoded = encoded = 0
    for _ in range(CHECKPOINTS):
        chosen = [names[chance.randrange(keys)] for _ in range(TOUCHED)]
        batch = GroupBatch(chosen, [{"n": 1} for _ in chosen])
        assert sum(map(len, operator.process(store.open(0, 0, 0), batch))) == TOUCHED
        [report] = store.write()
        assert report.file is not None
        written += report.file.bytes
        decoded = max(decoded, report.work.decoded)
        encoded = max(encoded, report.work.encoded)
    return written, decoded, encoded


@pytest.mark.slow
def test_a_checkpoint_costs_what_it_touches() -> None:
    small, *_ = cost(10_000)
    large, decoded, encoded = cost(300_000)
    assert large <= 1.5 * small
    assert max(decoded, encoded) <= TOUCHED


def test_merges_keep_to_their_budget_and_say_what_they_owe() -> None:
    store = ScratchState(128, 1, policy=MergePolicy(fan_in=2, budget=100_000, rewrites=0))
    owed = []
    for number in range(8):
        state = store.open(0, 0, 0)
        names = [f"user-{i}" for i in range(5000)]
        state.prefetch(names)
        for name in names:
            state.table("count")[name] = [number, "x" * 40]
        [report] = store.write()
        assert report.work.merged_bytes <= 120_000
        owed.append(report.work.owed_bytes)
    assert max(owed) > 0
    for _ in range(200):  # with nothing new, what is owed is paid bit by bit
        store.open(0, 0, 0)
        [report] = store.write()
    assert report.work.owed_bytes == 0
    state = store.open(0, 0, 0)
    assert dict(state.table("count")) == {f"user-{i}": [7, "x" * 40] for i in range(5000)}


def test_merges_keep_up_with_checkpoints_that_change_everything() -> None:
    store = ScratchState(128, 1, policy=MergePolicy(budget=50_000))
    names = [f"user-{i}" for i in range(1000)]
    most = 0
    for number in range(60):
        state = store.open(0, 0, 0)
        state.prefetch(names)
        for name in names:
            state.table("count")[name] = [number, "x" * 40]
        [report] = store.write()
        assert report.file is not None
        assert report.file.bytes > 50_000, "a checkpoint adds more than the budget"
        most = max(most, *(len(fragment.runs) for fragment in store.manifest.fragments))
    assert most <= 2 * MergePolicy().fan_in
    assert len(store.manifest.files) <= 2 * MergePolicy().fan_in, "a file is gone once its last group is merged"
    assert dict(store.open(0, 0, 0).table("count")) == {name: [59, "x" * 40] for name in names}


def test_groups_with_the_most_runs_have_their_turn_first() -> None:
    store = ScratchState(8, 1, policy=MergePolicy(budget=1, rewrites=0))
    names = [f"user-{i}" for i in range(100)]
    for number in range(40):
        state = store.open(0, 0, 0)
        state.prefetch(names)
        for name in names:
            state.table("count")[name] = number
        store.write()
    # One group a checkpoint: each of the eight has its turn behind the seven others.
    assert max(len(fragment.runs) for fragment in store.manifest.fragments) <= 8 + MergePolicy().fan_in
    assert dict(store.open(0, 0, 0).table("count")) == dict.fromkeys(names, 39)


def test_a_budget_is_kept_where_one_group_has_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded(keys: Any) -> Any:
        hashes = hashes_of(keys)
        return np.where(hashes % np.uint64(8) != 0, (np.uint64(1) << np.uint64(63)) | (hashes >> np.uint64(9)), hashes)

    monkeypatch.setattr(tables, "hashes_of", crowded)
    store = ScratchState(128, 1, policy=MergePolicy(fan_in=2, budget=100_000, rewrites=0))
    names = [f"user-{i}" for i in range(8000)]
    for number in range(2):
        state = store.open(0, 0, 0)
        state.prefetch(names)
        for name in names:
            state.table("count")[name] = f"{number}{name * 8}"
        store.write()
    merged = []
    for _ in range(8):
        store.open(0, 0, 0)
        [report] = store.write()
        merged.append((report.work.merged_bytes, report.file.bytes if report.file else 0))
    over = [work for work in merged if work[0] > 100_000]
    assert len(over) == 1, "the large group alone is more than the budget"
    assert over[0][0] > over[0][1] > 500_000, "what it takes is what is reported"
    assert merged[-1] == (0, 0)


def test_a_window_that_fired_takes_its_files_along() -> None:
    store = ScratchState(128, 1)
    for number in range(30):
        window = (number * 10, number * 10 + 10)
        state = store.open(0, 0, 0)
        names = [f"user-{i}" for i in range(200)]
        state.prefetch(names)
        table = state.table("contents", window)
        for name in names:
            table[name] = number
        for fired in state.namespaces("contents"):
            if fired[1] <= window[0] - 20:
                state.drop("contents", fired)
        store.write()
        assert len(store.manifest.files) <= 4
    assert store.open(0, 0, 0).namespaces("contents") == [(270, 280), (280, 290), (290, 300)]


def test_nothing_to_do_writes_nothing() -> None:
    store = ScratchState(128, 1)
    store.open(0, 0, 0).prefetch(["a"])
    [report] = store.write()
    assert (report.file, report.removed, list(store.storage.list())) == (None, (), [])
