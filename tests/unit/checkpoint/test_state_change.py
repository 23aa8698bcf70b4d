"""What changed of a state gives the state back, and is as small as what changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.ledger.record_file import SMALL, WHOLE_EVERY
from poundlock.checkpoint.ledger.state_change import applied, change_of, encoded
from poundlock.checkpoint.participant import JSON
from poundlock.errors import TerminalError
from poundlock.storage import LocalStorage

SCALARS = st.none() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=5)
)
OBJECTS = st.dictionaries(st.sampled_from("abcde"), VALUES, max_size=5)


@given(OBJECTS, OBJECTS)
def test_any_object_comes_back(before: JSON, after: JSON) -> None:
    then = json.loads(json.dumps(before))
    change = json.loads(json.dumps(change_of(before, after)))
    assert encoded(applied(before, change)) == encoded(after)
    assert before == then, "what was before is as it was"


def part(number: int, **more: Any) -> JSON:
    return {
        "bucket": f"b{number}",
        "name": f"part-{number}",
        "rows": 1,
        "segments": [{"path": f".seg-{number}"}],
        **more,
    }


def state(parts: list[JSON], **more: Any) -> JSON:
    return {"v": 1, "parts": parts, "counters": {str(n): 1 for n in range(100)}, **more}


@pytest.mark.parametrize("touched", [0, 1, 5])
def test_a_change_is_as_large_as_what_was_touched(touched: int) -> None:
    parts = [part(n) for n in range(1000)]
    again = [part(n, rows=2, segments=[{"path": f".seg-{n}"}, {"path": f".new-{n}"}]) for n in range(touched)]
    closed = parts[touched + 1 :]  # one is finished
    after = state([*again, *closed, part(1000)])
    change = change_of(state(parts), after)
    assert applied(state(parts), change) == after
    assert len(encoded(change)) < 250 + 100 * touched


def test_a_change_of_something_else_is_refused() -> None:
    change = change_of(state([part(n) for n in range(9)]), state([part(n) for n in range(8)]))
    for other in ({}, {"parts": 3}, state([part(1)])):
        with pytest.raises(ValueError, match="not what stands before it"):
            applied(other, change)


# --- in the ledger ---------------------------------------------------------------------------------------------------


def decision(number: int, sinks: dict[str, JSON], occasion: str = "checkpoint") -> Decision:
    return Decision(
        number=number, occasion=occasion, checkpoint=number, job_id="0" * 32, epoch=1, time_ms=number, sources={},
        sinks={name: SinkDecision([], each) for name, each in sinks.items()},
    )  # fmt: skip


def life(count: int) -> list[Decision]:
    """Return decisions of a sink with many parts, of which each touches one, and of a small one."""
    parts = [part(n) for n in range(200)]
    made = []
    for number in range(count):
        parts[number % 200] = part(number % 200, rows=number)
        made.append(decision(number, {"files": state(list(parts)), "small": {"v": 1, "n": number}}))
    return made


def size(storage: LocalStorage, number: int) -> int:
    return len(storage.read(record_path(number)))


def test_records_are_small_and_say_all_the_same(tmp_path: Path) -> None:
    storage, decisions = LocalStorage(str(tmp_path)), life(3 * WHOLE_EVERY)
    ledger = Ledger(storage)
    for each in decisions:
        ledger.append(each)
    sizes = [size(storage, number) for number in range(len(decisions))]
    assert [number for number, each in enumerate(sizes) if each > SMALL] == [0, WHOLE_EVERY, 2 * WHOLE_EVERY]
    assert max(each for each in sizes if each <= SMALL) < 1000
    assert Ledger(storage).newest() == decisions[-1]
    assert list(Ledger(storage)) == decisions
    assert list(Ledger(storage).back(decisions[-1])) == decisions[::-1]
    mixed = Ledger(storage)
    assert [mixed.read(n) for n in (40, 3, 74, 41, 40)] == [decisions[n] for n in (40, 3, 74, 41, 40)]


def test_the_archive_begins_with_a_whole_record(tmp_path: Path) -> None:
    storage, decisions = LocalStorage(str(tmp_path)), life(64)
    ledger = Ledger(storage, per_file=10, retention_ms=25)
    for each in decisions:
        ledger.append(each)
    first = Ledger(storage).first()
    assert first > 0
    assert list(Ledger(storage)) == decisions[first:]


def test_the_first_record_of_a_life_is_whole(tmp_path: Path) -> None:
    storage, decisions = LocalStorage(str(tmp_path)), life(4)
    for each in decisions:
        Ledger(storage).append(each)
    assert all(size(storage, number) > SMALL for number in range(4)), (
        "what is before it was not written by this process"
    )
    ledger = Ledger(storage)
    start = replace(decisions[-1], number=4, occasion="start")
    ledger.append(start)
    ledger.append(replace(start, number=5, occasion="roll"))
    assert size(storage, 4) > SMALL > size(storage, 5)
    assert Ledger(storage).newest() == replace(start, number=5, occasion="roll")


def test_a_state_that_somebody_changed_after_it_was_written_is_written_whole(tmp_path: Path) -> None:
    storage, (one, two) = LocalStorage(str(tmp_path)), life(2)
    ledger = Ledger(storage)
    ledger.append(one)
    one.sinks["files"].state["parts"].append(part(999))
    ledger.append(two)
    assert size(storage, 1) > SMALL
    assert Ledger(storage).newest() == two


@pytest.mark.parametrize("odd", [1 << 70, True])
def test_values_that_are_not_told_apart_are_written_whole(tmp_path: Path, odd: Any) -> None:
    """A number that is too long for the encoder, and a truth value that Python takes for the number before."""
    storage, (one, two) = LocalStorage(str(tmp_path)), life(2)
    parts = two.sinks["files"].state["parts"]
    two = decision(1, {"files": state([*parts[:-1], part(199, segments=[{"n": odd}])])})
    one = decision(0, {"files": state([*one.sinks["files"].state["parts"][:-1], part(199, segments=[{"n": 1}])])})
    ledger = Ledger(storage)
    ledger.append(one)
    ledger.append(two)
    assert Ledger(storage).newest() == two
    assert encoded_n(Ledger(storage)) == json.dumps(odd)


def encoded_n(ledger: Ledger) -> str:
    newest = ledger.newest()
    assert newest is not None
    return json.dumps(newest.sinks["files"].state["parts"][-1]["segments"][0]["n"])


def test_a_change_without_what_it_changes_is_refused_by_name(tmp_path: Path) -> None:
    storage, decisions = LocalStorage(str(tmp_path)), life(3)
    ledger = Ledger(storage)
    for each in decisions:
        ledger.append(each)
    storage.replace(record_path(0), storage.read(record_path(0)).replace(b'"parts":[', b'"other":['))
    with pytest.raises(TerminalError, match=r"00000000000000000002\.json cannot be read"):
        Ledger(storage).newest()
