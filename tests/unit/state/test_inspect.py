"""State that people read and write: one key, all of them, timers; a value by hand, values of a Parquet file."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import encode_key
from poundlock.state.edit import KeyInWindow, StateEditor
from poundlock.state.inspect import StateReader, described
from poundlock.state.key_text import plain
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
            state.declare("elements", "evictable windows", windowed=True)
            state.declare("merged", "merging windows")
            state.declare("buffers", "interval join")
            state.declare("trigger:fired", "value", windowed=True)
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


def test_much_is_gone_through_a_little_at_a_time(store: ScratchState, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = StateReader(store.manifest, store.files)
    entries, timers = list(reader.entries(OPERATOR)), list(reader.timers(OPERATOR))
    monkeypatch.setattr("poundlock.state.inspect.CHUNK", 1)
    monkeypatch.setattr("poundlock.state.runs.timers._CHUNK", 1)
    assert sorted(map(repr, reader.entries(OPERATOR))) == sorted(map(repr, entries))
    assert reader.count(OPERATOR) == len(entries)
    assert list(reader.timers(OPERATOR)) == timers
    for key in ("a", "b", ("c", 1), None, "nobody"):
        assert list(reader.timers(OPERATOR, key)) == [timer for timer in timers if timer.key == key]
    whole, some = (described(store.manifest, store.files, OPERATOR, limit=limit) for limit in (None, 1))
    assert {name: len(table["entries"]) for name, table in some["state"].items()} == dict.fromkeys(whole["state"], 1)
    counted = {name: len(table["entries"]) for name, table in whole["state"].items()}
    assert {name: table["count"] for name, table in some["state"].items()} == counted
    assert some["timers"] == {"event": len(whole["event_timers"]), "processing": len(whole["processing_timers"])}


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
    manifest = edit.finish()
    clock = store.manifest.operators[OPERATOR].processing_time
    assert clock is not None
    assert clock < 5000
    assert manifest.operators[OPERATOR].processing_time == clock, "what is due by now has yet to fire"
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
    manifest = edit.finish()
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
        (OPERATOR, "state:other", "no state of 'other' of"),
        (OPERATOR, "contents", "is kept by key and window"),
        (OPERATOR, "window:sum", "is kept by key and window"),
        (OPERATOR, "sessions", "is kept by key and window"),
        (OPERATOR, "elements", "is not written by hand: it holds elements with their times"),
        (OPERATOR, "merged", "is not written by hand: it says which windows a key has"),
        (OPERATOR, "buffers", "is not written by hand: it holds the rows of two streams"),
        (OPERATOR, "trigger:fired", "is not written by hand: it follows from windows"),
    ],
)
def test_what_cannot_be_written_is_said(store: ScratchState, operator: str, table: str, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        editor(store).put(operator, table, "a", 1)


def test_what_an_open_window_holds_is_written_by_key_and_start(store: ScratchState, tmp_path: Path) -> None:
    times = pa.array([0, 0], pa.timestamp("ms"))
    pq.write_table(pa.table({"k": ["b", "y"], "w": times, "n": [[7], [8]]}), tmp_path / "panes.parquet")
    edit = StateEditor(store.manifest, store.participant, store.files, attempt="e", now=0, slots=[OPERATOR])
    edit.put(OPERATOR, "contents", KeyInWindow("a", 0), [90])
    edit.put(OPERATOR, "contents", KeyInWindow("new", 0, 10), [91])
    edit.delete(OPERATOR, "contents", KeyInWindow(None, 0))
    path = str(tmp_path / "panes.parquet")
    assert edit.put_parquet(OPERATOR, "contents", path, keys=["k"], value="n", window="w") == 2
    edit.put(OPERATOR, "sessions", KeyInWindow("a", 9), 92)
    edit.delete(OPERATOR, "sessions", KeyInWindow("b", 0))
    edit.put(OPERATOR, "window:sum", KeyInWindow(("c", 1), 1), 93)
    edit.put(OPERATOR, "broadcast:rules", "more", 94)
    edit.delete(OPERATOR, "broadcast:rules", "rule")
    manifest = edit.finish()
    found: dict[str, dict[Any, Any]] = {}
    for e in StateReader(manifest, store.files).entries(OPERATOR):
        found.setdefault(e.table, {})[e.key, e.window] = e.value
    assert found["contents"] == {
        ("a", (0, 10)): [90], ("b", (0, 10)): [7], (("c", 1), (0, 10)): [2], ("new", (0, 10)): [91],
        ("y", (0, 10)): [8],
    }  # fmt: skip
    sessions = {key: value for key, value in found["sessions"].items() if key[0] in ("a", "b")}
    assert sessions == {("a", (0, 5)): 2, ("a", (9, 12)): 92, ("b", (9, 12)): 2}
    assert found["window:sum"][("c", 1), (1, 11)] == 93
    assert found["window:sum"][("c", 1), (2, 12)] == 2
    assert [value for key, value in found["broadcast:rules"].items()] == [{"more": 94}]
    assert manifest.next_timers(OPERATOR) == store.manifest.next_timers(OPERATOR)


@pytest.mark.parametrize(
    ("table", "key", "value", "what"),
    [
        ("contents", KeyInWindow("a", 5), [1], "no open window of 'a' from 5 on"),
        ("contents", KeyInWindow("a", 0, 11), [1], "no open window of 'a' from 0 on"),
        ("contents", KeyInWindow("a", 0), [1, 2], "is no accumulator"),
        ("contents", KeyInWindow("new", 0), 5, "is no accumulator"),
        ("sessions", KeyInWindow("new", 0), 1, "no open window of 'new'"),
        ("window:sum", KeyInWindow("a", 7), 1, "no open window of 'a'"),
        ("state:count", KeyInWindow("a", 0), 1, "is kept by key alone"),
    ],
)
def test_no_window_is_made_by_hand(store: ScratchState, table: str, key: KeyInWindow, value: Any, what: str) -> None:
    edit = StateEditor(store.manifest, store.participant, store.files, attempt="e", now=0, slots=[OPERATOR])
    with pytest.raises(DefinitionError, match=what):
        edit.put(OPERATOR, table, key, value)


def test_a_window_is_said_in_ms_or_as_a_time() -> None:
    for window in (1000, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01", "1970-01-01T01:00:01+01:00"):
        assert KeyInWindow.of("a", window) == KeyInWindow("a", 1000)
    assert KeyInWindow.of("a", [1000, "1970-01-01T00:00:02Z"]) == KeyInWindow("a", 1000, 2000)
    for wrong in ("x", None, 1.5, [1, 2, 3], []):
        with pytest.raises(DefinitionError, match="is no window"):
            KeyInWindow.of("a", wrong)


@pytest.mark.parametrize(
    ("there", "given", "wanted"),
    [
        (1.5, 2, 2.0),
        (Decimal("1.10"), "2.5", Decimal("2.50")),
        (Decimal("1.10"), 2.5, Decimal("2.50")),
        (date(2018, 12, 19), "2018-12-20", date(2018, 12, 20)),
        (datetime(2018, 12, 19, tzinfo=UTC), "2018-12-19T08:00:00+08:00", datetime(2018, 12, 19, tzinfo=UTC)),
        (datetime(2018, 12, 19), "2018-12-19 08:00:00", datetime(2018, 12, 19, 8)),
        (("a", 1.5), ("b", 2), ("b", 2.0)),
        ("a", None, None),
        (1, "1", 1),
        (1, 1.5, None),
        (True, "true", True),
        (b"a", "b", b"b"),
        ("1", 1, "1"),
        (date(2018, 12, 19), "soon", None),
        (("a", 1), "a", None),
        (("a", 1), ("a",), None),
    ],
)
def test_a_key_of_json_gets_the_type_of_the_keys_that_are_there(there: Any, given: Any, wanted: Any) -> None:
    store = ScratchState(8, 1)
    state = store.open(0, 0, 0)
    state.declare("state:n", "value")
    state.prefetch([None, there])
    state.table("state:n")[None] = 0
    state.table("state:n")[there] = 1
    store.write()
    reader = StateReader(store.manifest, store.files)
    text = json.dumps(plain(given))
    if wanted is None and given is not None:
        with pytest.raises(DefinitionError, match=r"is no key of .*, whose keys are such as"):
            reader.key_of(OPERATOR, text)
        return
    typed = reader.key_of(OPERATOR, text)
    assert encode_key(typed) == encode_key(wanted)


TABLES: dict[str, tuple[str, Any, list[Any], list[Any]]] = {
    # kind of state: what is there, what may be written, what may not
    "list": ("list", ["p"], [["q"], []], [5, "q", {"a": 1}, None]),
    "map": ("map", {"a": 1}, [{"b": "x"}, {}], [5, [1], None]),
    "rolling": (
        "rolling",
        {"user": "a", "n": 1.5},
        [{"user": "b", "n": 2}, {"user": None, "n": None}],
        [{"user": "b"}, {"user": "b", "n": "2"}, {"user": 1, "n": 2.0}, {"user": "b", "n": 1.5, "x": 1}, [1], 5],
    ),
    "last": (
        "last",
        [1000, {"user": "a"}],
        [[None, {"user": "b"}], [7, {"user": "c"}]],
        [{"user": "b"}, [7, {"usr": "b"}], [7, {"user": 5}], ["x", {"user": "b"}], [1, 2, 3]],
    ),
    "counted": ("counted", [2, 7], [[1, 9]], [[0, 9], [1], 5, ["1", 9]]),
    "counts": ("counts", [2, 7], [[1, 9]], [[1, "9"], [1], [1, 2, 3], 5]),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("ttl_ms", [None, 60_000])
def test_a_value_that_the_operator_could_not_read_is_refused(kind: str, ttl_ms: int | None) -> None:
    kind, there, right, wrong = TABLES[kind]
    store = ScratchState(16)
    state = store.open()
    alive = {"list": lambda: [[1, each] for each in there], "map": lambda: {key: [1, there[key]] for key in there}}
    held = there if ttl_ms is None else alive.get(kind, lambda: [1, there])()
    state.declare("of-keys", kind, ttl_ms, holds=("sum bigint",) if kind == "counts" else ())
    state.prefetch(["a"])
    state.table("of-keys")["a"] = held
    store.write()
    edit = editor(store)
    for value in wrong:
        with pytest.raises(DefinitionError, match=f"of {OPERATOR}") as caught:
            edit.put(OPERATOR, "of-keys", "new", value)
        assert str(caught.value).count("\n") == 1
    for number, value in enumerate(right):
        edit.put(OPERATOR, "of-keys", f"new{number}", value)
