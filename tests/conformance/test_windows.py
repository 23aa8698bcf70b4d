"""Windows against the conformance cases, through the harness that users test with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.windows.aligned import AlignedWindowOperator
from poundlock.operators.windows.base import WindowSpec
from poundlock.operators.windows.general import WindowOperator
from poundlock.operators.windows.sessions import CountWindowOperator, SessionWindowOperator
from poundlock.stream.functions.process import ReduceWindow
from poundlock.stream.windows.assigners import AlignedWindows, AssignerContext
from poundlock.stream.windows.window import TimeWindow, Window, window_start
from poundlock.testing import Element, Emitted, WindowHarness
from support.window_cases import WAYS, PointSessions, assigner_of, evictor_of, function_of, ms, trigger_of

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "windows.json").read_text())["cases"]
BOUNDED = json.loads((DATA / "bounded.json").read_text())["cases"]
SCRIPTS = [case for case in CASES if case["kind"] == "window_script"]
KINDS = {"window_script", "window_start", "window_assignment", "window_invalid", "window_intersects", "window_merge"}


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def in_every_way(cases: list[dict[str, Any]]) -> list[Any]:
    """Return each case with every function it can be written with, on the general operator and on a quicker one where there is one."""
    return [
        pytest.param(case, way, general, id=f"{case['id']}-{way}-{'general' if general else 'quick'}")
        for case in cases
        for general in ([True] if operator_of(case) is WindowOperator else [False, True])
        for way in WAYS
        if function_of(case["function"], way) is not None
    ]


def operator_of(case: Mapping[str, Any]) -> type[KeyedOperator]:
    """Return the operator that is taken for the windows of a case."""
    spec = WindowSpec(
        assigner=assigner_of(case["window"]),
        function=ReduceWindow(max),
        trigger=trigger_of(case["trigger"]),
        evictor=evictor_of(case["evictor"]),
        allowed_lateness_ms=case["allowed_lateness_ms"],
        late_tag=None,
    )
    return type(window_operator(spec))


def test_every_kind_is_run() -> None:
    assert {case["kind"] for case in CASES} == KINDS
    assert {case["kind"] for case in BOUNDED} == {"bounded_window"}


def test_every_operator_is_run() -> None:
    assert {operator_of(case) for case in [*SCRIPTS, *BOUNDED]} == {
        AlignedWindowOperator,
        CountWindowOperator,
        SessionWindowOperator,
        WindowOperator,
    }


def harness(case: Mapping[str, Any], way: str, general: bool) -> WindowHarness:
    return WindowHarness(
        assigner_of(case["window"]),
        function_of(case["function"], way),
        key="key",
        trigger=trigger_of(case["trigger"]),
        evictor=evictor_of(case["evictor"]),
        allowed_lateness=ms(case["allowed_lateness_ms"]),
        general=general,
    )


def element_of(said: Mapping[str, Any]) -> Element:
    return Element({"key": said["key"], "value": said["value"]}, said["ts"])


def frozen(value: Any, unordered: bool) -> Any:
    """Return a result that can be counted; lists of session windows without their order."""
    if isinstance(value, list):
        items = [frozen(item, unordered) for item in value]
        return ("list", *(sorted(items, key=repr) if unordered else items))
    return value


def bounds(window: Any) -> Any:
    return (window.start, window.end) if isinstance(window, TimeWindow) else None


# --- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "way", "general"), in_every_way(SCRIPTS))
def test_script(case: dict[str, Any], way: str, general: bool) -> None:
    h = harness(case, way, general)
    late_before = 0
    for number, step in enumerate(case["steps"]):
        found = run_step(h, step)
        compare(case, [e for e in case["expected"] if e["step"] == number], found)
        late = h.late[late_before:]
        late_before = len(h.late)
        assert [(e.key, e.value["value"], e.timestamp) for e in late] == [
            (e["key"], e["value"], e["ts"]) for e in case["late"] if e["step"] == number
        ]
    h.close()


def run_step(h: WindowHarness, step: Mapping[str, Any]) -> list[Emitted]:
    ((kind, value),) = step.items()
    if kind == "element":
        return h.process_element(*element_of(value)[:2])
    if kind == "watermark":
        return h.process_watermark(value)
    if kind == "processing_time":
        return h.set_processing_time(value)
    if kind == "end_of_input":
        return h.end_of_input()
    assert kind == "snapshot_restore"
    h.restore(h.snapshot())
    return []


def compare(case: Mapping[str, Any], expected: list[Any], found: list[Emitted]) -> None:
    unordered = case["window"]["type"].startswith("session")
    checked = all("window" in e for e in expected)
    assert Counter(
        (e.key, frozen(e.value["value"], unordered), bounds(e.window) if checked else None, e.timestamp) for e in found
    ) == Counter(
        (
            e["key"],
            frozen(e["result"], unordered),
            tuple(e["window"]) if checked and e["window"] else None,
            e["ts"],
        )
        for e in expected
    )
    if case.get("ordered"):
        assert [e.timestamp for e in found] == sorted(e.timestamp for e in found if e.timestamp is not None)


# --- bounded input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "way", "general"), in_every_way(BOUNDED))
def test_bounded(case: dict[str, Any], way: str, general: bool) -> None:
    h = harness(case, way, general)
    if case["watermarks"] == "end_of_input":
        h.process_elements([element_of(e) for e in case["elements"]])
    else:
        greatest = -(1 << 63)
        for said in case["elements"]:
            h.process_element(*element_of(said)[:2])
            greatest = max(greatest, said["ts"])
            h.process_watermark(greatest)
    h.end_of_input()
    check = next((name for name in ("window", "window_start") if name in case["expected"][0]), None)
    assert Counter((e.key, frozen(e.value["value"], False), part(check, e.window)) for e in h.output) == Counter(
        (e["key"], frozen(e["result"], False), _tuple(e.get(check))) for e in case["expected"]
    )
    assert [(e.key, e.value["value"], e.timestamp) for e in h.late] == [
        (e["key"], e["value"], e["ts"]) for e in case["late"]
    ]
    h.close()


def part(check: str | None, window: Any) -> Any:
    return bounds(window) if check == "window" else window.start if check == "window_start" else None


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- assigners -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", of_kind("window_start"))
def test_window_start(case: dict[str, Any]) -> None:
    assert [window_start(t, case["offset_ms"], case["size_ms"]) for t in case["timestamps"]] == case["expected"]


@pytest.mark.parametrize("case", of_kind("window_assignment"))
def test_window_assignment(case: dict[str, Any]) -> None:
    assigner = assigner_of(case["window"])
    assert isinstance(assigner, AlignedWindows)
    for timestamp, expected in zip(case["timestamps"], case["expected"], strict=True):
        assert sorted(assigner.windows_at(timestamp)) == sorted(map(tuple, expected))


@pytest.mark.parametrize("case", of_kind("window_invalid"))
def test_window_invalid(case: dict[str, Any]) -> None:
    for window in case["windows"]:
        with pytest.raises(DefinitionError):
            assigner_of(window)


@pytest.mark.parametrize("case", of_kind("window_intersects"))
def test_window_intersects(case: dict[str, Any]) -> None:
    assert [TimeWindow(*a).intersects(TimeWindow(*b)) for a, b in case["pairs"]] == case["expected"]
    assert [TimeWindow(*b).intersects(TimeWindow(*a)) for a, b in case["pairs"]] == case["expected"]


class Given(PointSessions):
    """An element is its own window."""

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        return [TimeWindow(*value["window"])]


@pytest.mark.parametrize("case", of_kind("window_merge"))
def test_window_merge(case: dict[str, Any]) -> None:
    h = WindowHarness(Given(0, 0), function_of("list", "process"))
    for added, expected in zip(case["added"], case["expected"], strict=True):
        h.process_element({"window": added, "value": 0}, added[0])
        windows = h.state()["merging windows"][None]
        assert [w for w in windows if w[0] <= added[0] and added[1] <= w[1]] == [tuple(expected)]
    h.close()
