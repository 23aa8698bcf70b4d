"""State whose rows are parts of sums: added up when it is read, merged or shown; a value that a person writes takes the place of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import binary_array
from poundlock.operators.columns.encoding import decode_accumulators, encode_accumulators, encode_spans
from poundlock.operators.columns.operator import EncodedRows
from poundlock.operators.keyed.codec import decode, encode_key
from poundlock.state.edit import KeyInWindow, StateEditor
from poundlock.state.hashing import hashes_of
from poundlock.state.inspect import StateReader
from poundlock.state.runs.adding import added_up
from poundlock.state.runs.columns import Rows, concat
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import OPERATOR, ScratchState

MERGES = ("count", "sum bigint")
SLICE = (0, 10)


def rows_of(values: dict[str, list[int] | None]) -> Rows:
    """Return rows by hash; None for a value that takes away what older runs have."""
    names = sorted(values, key=lambda name: int(hashes_of([name])[0]))
    there = [values[name] or [0, 0] for name in names]
    encoded = encode_accumulators([pa.array([pair[i] for pair in there], pa.int64()) for i in (0, 1)])
    data = [None if values[name] is None else row for name, row in zip(names, encoded.to_pylist(), strict=True)]
    return Rows(hashes_of(names), binary_array([encode_key(name) for name in names]), None, binary_array(data))


PARTS = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
    min_size=1,
    max_size=5,
)


@given(parts=PARTS, cut=st.integers(0, 5))
def test_rows_are_added_up_at_once_or_in_two_steps(parts: list[dict[str, Any]], cut: int) -> None:
    wanted: dict[str, list[int]] = {}
    for part in reversed(parts):
        for name, pair in part.items():
            if pair is None:
                wanted.pop(name, None)
            else:
                before = wanted.get(name, [0, 0])
                wanted[name] = [before[0] + pair[0], before[1] + pair[1]]
    rows = [rows_of(part) for part in parts]
    newer, older = rows[:cut], rows[cut:]
    if newer and older:
        rows = [added_up(newer, MERGES, drop_deleted=False), *older]
    summed = added_up(rows, MERGES, drop_deleted=True)
    columns = decode_accumulators(summed.values, [pa.int64(), pa.int64()])
    names = [decode(key) for key in summed.keys.to_pylist()]
    assert dict(zip(names, map(list, zip(*(c.to_pylist() for c in columns), strict=True)), strict=True)) == wanted
    assert (np.diff(summed.hashes.astype(object)) > 0).all()


def test_a_row_and_what_takes_away_older_ones_may_stand_in_one_run() -> None:
    both = concat([rows_of({"a": None}), rows_of({"a": [5, 50]})])
    older = rows_of({"a": [1, 10], "b": [2, 20]})
    summed = added_up([both, older], MERGES, drop_deleted=True)
    assert [decode(value) for value in summed.values.to_pylist()] in ([[5, 50], [2, 20]], [[2, 20], [5, 50]])
    kept = added_up([both], MERGES, drop_deleted=False)
    assert [None if v is None else decode(v) for v in kept.values.to_pylist()] == [None, [5, 50]]


@pytest.fixture
def store() -> ScratchState:
    """Three checkpoints that put rows beside one another."""
    store = ScratchState(16, policy=MergePolicy(fan_in=8))
    for number in range(1, 4):
        state = store.open()
        state.declare("slices", "slices", merges=MERGES)
        rows = rows_of({name: [1, number * 10] for name in "abc"[: number + 1]})
        state.append("slices", SLICE, lambda rows=rows: EncodedRows(rows.hashes, rows.keys, rows.values))
        store.write()
    return store


def entries(store: ScratchState, *key: str) -> dict[Any, Any]:
    reader = StateReader(store.manifest, store.files)
    shown = reader.entries_of(OPERATOR, key[0]) if key else reader.entries(OPERATOR)
    return {(entry.key, entry.window): entry.value for entry in shown}


def test_people_see_sums(store: ScratchState) -> None:
    assert entries(store) == {("a", SLICE): [3, 60], ("b", SLICE): [3, 60], ("c", SLICE): [2, 50]}
    assert entries(store, "c") == {("c", SLICE): [2, 50]}
    assert entries(store, "d") == {}


def test_what_a_person_writes_is_the_whole_and_later_rows_are_added_to_it(store: ScratchState) -> None:
    editor = StateEditor(store.manifest, store.participant, store.files, attempt="edit", now=0)
    editor.put(OPERATOR, "slices", KeyInWindow("a", 0), [100, 1000])
    editor.put(OPERATOR, "slices", KeyInWindow("d", 0), [7, 70])
    editor.delete(OPERATOR, "slices", KeyInWindow("b", 0))
    for wrong in ([1], [1, 2, 3], [1, "2"], [1, 2.5], [True, 1], {"n": 1}, 5, None):
        with pytest.raises(DefinitionError, match="is no accumulator of") as caught:
            editor.put(OPERATOR, "slices", KeyInWindow("a", 0), wrong)
        assert "a list of int64, int64" in caught.value.next
    store.manifest = editor.finish()
    written = {("a", SLICE): [100, 1000], ("c", SLICE): [2, 50], ("d", SLICE): [7, 70]}
    assert entries(store) == written
    assert entries(store, "a") == {("a", SLICE): [100, 1000]}
    state = store.open()
    (there,) = state.rows_of("slices", SLICE)
    assert not there.values.null_count, "operators see what counts"
    rows = rows_of({"a": [1, 1], "b": [2, 2]})
    state.append("slices", SLICE, lambda: EncodedRows(rows.hashes, rows.keys, rows.values))
    store.write()
    assert entries(store) == written | {("a", SLICE): [101, 1001], ("b", SLICE): [2, 2]}


def test_a_session_that_is_open_is_written_by_key_and_start_wherever_it_lies() -> None:
    store = ScratchState(16)
    state = store.open()
    state.declare("contents", "spans", windowed=True)
    base = 1 << 41
    for bucket, name in (((base, base + 1000), "a"), ((base + 1000, base + 2000), "b")):
        rows = rows_of({name: [1, 10]})
        spans = encode_spans(np.array([bucket[0] - 500]), np.array([bucket[0] + 5]))
        pending = EncodedRows(rows.hashes, rows.keys, rows.values, spans)
        state.append("contents", bucket, lambda pending=pending: pending)
    store.write()
    assert entries(store) == {("a", (base - 500, base + 5)): [1, 10], ("b", (base + 500, base + 1005)): [1, 10]}
    editor = StateEditor(store.manifest, store.participant, store.files, attempt="edit", now=0, slots=[OPERATOR])
    editor.put(OPERATOR, "contents", KeyInWindow("b", base + 500), [7, 70])
    editor.delete(OPERATOR, "contents", KeyInWindow("a", base - 500))
    with pytest.raises(DefinitionError, match="no open window of 'b' from 5 on"):
        editor.put(OPERATOR, "contents", KeyInWindow("b", 5), [7, 70])
    store.manifest = editor.finish()
    assert entries(store) == {("b", (base + 500, base + 1005)): [7, 70]}
    (there,) = (store.open().entries_of("contents", bucket) for bucket in [(base + 1000, base + 2000)])
    assert len(there) == 1
