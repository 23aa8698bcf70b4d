"""State that people read and write: one key, all of them, timers; a value by hand, values of a Parquet file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.errors import DefinitionError
from poundlock.state.edit import StateEditor
from poundlock.state.inspect import StateReader
from poundlock.state.scratch import OPERATOR, ScratchState


@pytest.fixture
def store() -> ScratchState:
    """State of every sort, in three runs."""
    store = ScratchState(16, 2)
    for number in range(3):
        for task in (0, 1):
            state = store.open(task, 50, 1000 + number)
            state.timer_entries = "keys and windows"
            state.declare("state:count", "value")
            state.declare("state:seen", "list", 500)
            state.declare("window:sum", "value", windowed=True)
            state.declare("contents", "panes")
            state.declare("sessions", "sessions")
            state.declare("broadcast:rules", "map", broadcast=True)
            mine = [key for key in ("a", "b", ("c", 1), None) if of(key, store) == task]
            state.prefetch(mine)
            for key in mine:
                state.table("state:count")[key] = number
                state.table("state:seen")[key] = [[1000 + number, "x"]]
                state.table("window:sum")[key, (number, number + 10)] = number
                state.table("contents", (0, 10))[key] = [number]
                state.table("sessions")[key] = [[0, 5, number], [9, 12, number]]
                state.event_timers.register(60 + number, (key, (number, number + 10)))
                state.processing_timers.register(2000, (key, None))
            state.table("broadcast:rules")[None] = {"rule": number}
        store.write()
    return store


def of(key: Any, store: ScratchState) -> int:
    from poundlock.state.hashing import groups_of, hashes_of

    return int(groups_of(hashes_of([key]), 16)[0]) * 2 // 16


def test_one_key(store: ScratchState) -> None:
    reader = StateReader(store.manifest, store.files)
    found = [(e.table, e.window, e.windowed, e.value) for e in reader.entries_of(OPERATOR, ("c", 1))]
    assert sorted(found, key=repr) == [
        ("contents", (0, 10), True, [2]),
        ("sessions", (0, 5), True, 2),
        ("sessions", (9, 12), True, 2),
        ("state:count", None, False, 2),
        ("state:seen", None, False, [[1002, "x"]]),
        ("window:sum", (0, 10), True, 0),
        ("window:sum", (1, 11), True, 1),
        ("window:sum", (2, 12), True, 2),
    ]
    timers = [(t.domain, t.time, t.key, t.window) for t in reader.timers(OPERATOR, "a")]
    assert timers == [
        ("event", 60, "a", (0, 10)),
        ("event", 61, "a", (1, 11)),
        ("event", 62, "a", (2, 12)),
        ("processing", 2000, "a", None),
    ]
    assert list(reader.entries_of(OPERATOR, "nobody")) == []


def test_all_keys(store: ScratchState) -> None:
    reader = StateReader(store.manifest, store.files)
    entries = list(reader.entries(OPERATOR))
    assert len(entries) == 4 * 8 + 1
    assert {e.key for e in entries if e.table == "state:count"} == {"a", "b", ("c", 1), None}
    assert [e.value for e in entries if e.table == "broadcast:rules"] == [{"rule": 2}]
    assert len(list(reader.timers(OPERATOR))) == 4 * 4
    with pytest.raises(DefinitionError, match="no state of an operator 'other'"):
        list(reader.entries("other"))


def test_reading_needs_neither_spark_nor_pandas() -> None:
    code = "import sys, poundlock.state.inspect, poundlock.state.task_state; print('pyspark' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def editor(store: ScratchState, attempt: str = "edit") -> StateEditor:
    return StateEditor(store.manifest, store.participant, store.files, attempt=attempt, now=5000)


def test_a_person_writes_a_key(store: ScratchState) -> None:
    edit = editor(store)
    edit.put(OPERATOR, "state:count", "a", 99)
    edit.put(OPERATOR, "state:count", ("c", 2), {"new": 1})
    edit.put(OPERATOR, "state:seen", "a", ["p", "q"])
    edit.delete(OPERATOR, "state:count", "b")
    _, manifest = edit.finish()
    reader = StateReader(manifest, store.files)
    counts = {e.key: e.value for e in reader.entries(OPERATOR) if e.table == "state:count"}
    assert counts == {"a": 99, ("c", 2): {"new": 1}, ("c", 1): 2, None: 2}
    [seen] = [e.value for e in reader.entries_of(OPERATOR, "a") if e.table == "state:seen"]
    assert seen == [[5000, "p"], [5000, "q"]]
    # The state that was there is there still, and the job goes on from the new one, timers included.
    assert {e.key for e in StateReader(store.manifest, store.files).entries(OPERATOR)} == {"a", "b", ("c", 1), None}
    store.manifest = manifest
    state = store.open(of("a", store), 50, 5000)
    state.declare("state:count", "value")
    state.prefetch(["a"])
    assert state.table("state:count")["a"] == 99
    assert len(list(StateReader(manifest, store.files).timers(OPERATOR, "a"))) == 4
    assert manifest.next_timers(OPERATOR) == store.manifest.next_timers(OPERATOR) == (60, 2000)


def test_values_of_a_parquet_file(store: ScratchState, tmp_path: Path) -> None:
    table = pa.table({"user": ["a", "z"], "day": [1, 2], "n": [5, 6], "text": ["x", None]})
    pq.write_table(table, tmp_path / "state.parquet")
    edit = editor(store)
    assert edit.put_parquet(OPERATOR, "state:count", str(tmp_path / "state.parquet"), keys=["user"], value="n") == 2
    path = str(tmp_path / "state.parquet")
    edit.put_parquet(OPERATOR, "state:count", path, keys=["user", "day"])
    _, manifest = edit.finish()
    entries = StateReader(manifest, store.files).entries(OPERATOR)
    counts = {e.key: e.value for e in entries if e.table == "state:count"}
    assert counts["a"] == 5
    assert counts["z"] == 6
    assert counts["z", 2] == {"n": 6, "text": None}
    with pytest.raises(DefinitionError, match="has no column nobody"):
        editor(store, "again").put_parquet(OPERATOR, "state:count", path, keys=["nobody"])


@pytest.mark.parametrize(
    ("operator", "table", "what"),
    [
        ("other", "state:count", "no state of an operator 'other'"),
        (OPERATOR, "state:other", "no state of 'state:other'"),
        (OPERATOR, "contents", "is panes state, which is not written by hand"),
        (OPERATOR, "window:sum", "is value state, which is not written by hand"),
        (OPERATOR, "broadcast:rules", "is broadcast state, which is not written by hand"),
    ],
)
def test_what_cannot_be_written_is_said(store: ScratchState, operator: str, table: str, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        editor(store).put(operator, table, "a", 1)
