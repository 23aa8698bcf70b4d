"""Process functions against the conformance cases, through the harness that users test with; also across restores and rescaling."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSource, Job
from poundlock.testing import Element, ProcessHarness
from support.process_cases import (
    LETTERS,
    BroadcastLetters,
    CountToSide,
    RunningSum,
    SharedCountAndTimer,
    StatesBefore,
    SumToSide,
    TwoSides,
    concatenated,
)

CASES = json.loads((Path(__file__).parent / "data" / "state.json").read_text())["cases"]
SIDES = {"left": 0, "right": 1, "broadcast": 1}
IN_MEMORY = {
    "broadcast_letters",
    "shared_count_and_timer",
}  # they keep something in the object itself, as Flink's own tests do

MAKE: Mapping[str, Callable[[Mapping[str, Any], int], ProcessHarness]] = {
    "running_sum": lambda case, n: ProcessHarness(RunningSum(case["state"]), key="key", instances=n),
    "states_before": lambda case, n: ProcessHarness(StatesBefore(), key="key", instances=n),
    "shared_count_and_timer": lambda case, n: ProcessHarness(SharedCountAndTimer(), key="key", instances=n),
    "broadcast_letters": lambda case, n: ProcessHarness(BroadcastLetters(), broadcast=[LETTERS], instances=n),
    "two_sides": lambda case, n: ProcessHarness(TwoSides(), instances=n),
    "sum_to_side": lambda case, n: ProcessHarness(SumToSide(), key="key", instances=n),
    "count_to_side": lambda case, n: ProcessHarness(CountToSide(), key="key", instances=n),
    "rolling_concat": lambda case, n: ProcessHarness(
        concatenated(), instances=n, bounded=case.get("only_last_per_key", False)
    ),
}


def element_of(said: Mapping[str, Any]) -> Element:
    return Element({"key": said["key"], "value": said["value"]}, said["ts"], SIDES[said["side"]])


def counted(values: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True) for value in values)


def check(h: ProcessHarness, case: Mapping[str, Any]) -> None:
    h.end_of_input()
    rolling = case["function"] == "rolling_concat"
    found = [[e.value["value"], e.value["key"]] if rolling else e.value for e in h.output]
    assert counted(found) == counted(case["expected"])
    for tag, expected in case["expected_side"].items():
        assert counted([e.value for e in h.side_output(tag)]) == counted(expected)
    h.close()


def test_every_case_is_run() -> None:
    assert {case["kind"] for case in CASES} == {"process"}
    assert {case["function"] for case in CASES} == set(MAKE)
    assert len(CASES) == 9


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
@pytest.mark.parametrize("at_once", [False, True], ids=["one-by-one", "a-batch"])
def test_case(case: dict[str, Any], at_once: bool) -> None:
    h = MAKE[case["function"]](case, case["parallelism"])
    elements = [element_of(said) for said in case["elements"]]
    for batch in [elements] if at_once else [[element] for element in elements]:
        h.process_elements(batch)
    check(h, case)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if case["function"] not in IN_MEMORY]
)
def test_case_with_a_restore_before_every_element(case: dict[str, Any]) -> None:
    h = MAKE[case["function"]](case, case["parallelism"])
    for number, said in enumerate(case["elements"]):
        h.rescale(number % 3 + 1)
        h.process_elements([element_of(said)])
    check(h, case)


def test_running_count() -> None:
    """The seed article's word count: split into words, and how often each was seen so far."""
    seeds = json.loads((Path(__file__).parent / "data" / "seed_events.json").read_text())["cases"]
    [case] = [case for case in seeds if case["kind"] == "running_count"]
    words = [word for line in case["lines"] for word in re.split(r"[^A-Za-z0-9_]+", line.lower()) if word]
    counts = Job("count").from_source(FileSource("/in")).key_by("word").sum("n")
    h = ProcessHarness(counts, instances=2)
    for number, word in enumerate(words):
        if number % 5 == 4:
            h.restore(h.snapshot())
        h.process_element({"word": word, "n": 1})
    assert [f"{e.value['word']}:{e.value['n']}" for e in h.output] == case["expected"]
