"""The harness that users test keyed operators with: what goes in, what can be read, and that it needs no engine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from poundlock import DefinitionError, EventTimeSessionWindows, GlobalWindow, TimeWindow, TumblingEventTimeWindows
from poundlock.operators.keyed.group import MIN
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.testing import Element, Emitted, KeyedOperatorHarness, Timer, WindowHarness

COUNT = [SqlAggregate(kind="count")]


def harness(**options: Any) -> WindowHarness:
    return WindowHarness(TumblingEventTimeWindows("10 ms"), COUNT, **{"key": "user", **options})


def click(user: str) -> dict[str, Any]:
    return {"user": user}


def test_it_loads_no_engine() -> None:
    code = (
        "import sys, json\n"
        "from poundlock.testing import WindowHarness, KeyedOperatorHarness\n"
        "from poundlock import TumblingEventTimeWindows\n"
        "h = WindowHarness(TumblingEventTimeWindows('10 ms'), lambda a, b: a)\n"
        "h.process_element(1, 5); assert len(h.end_of_input()) == 1; h.snapshot()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert loaded & {"pyspark", "py4j", "pandas", "confluent_kafka"} == set()
    assert "poundlock" in loaded


def test_what_comes_out_is_returned_and_kept() -> None:
    with harness() as h:
        assert h.process_elements([(click("ada"), 1), Element(click("ada"), 2), (click("bob"), 12)]) == []
        assert h.process_watermark(9) == [Emitted("ada", (2,), 9, TimeWindow(0, 10))]
        assert h.process_watermark(5) == []
        assert h.watermark == 9
        assert h.process_element(click("ada"), 3) == []
        assert h.late == [Emitted("ada", click("ada"), 3)]
        assert h.end_of_input() == [Emitted("bob", (1,), 19, TimeWindow(10, 20))]
        assert [row.key for row in h.output] == ["ada", "bob"]
        assert h.side_output("no such tag") == []


def test_timers_and_state_can_be_read() -> None:
    with harness(allowed_lateness="5 ms") as h:
        assert (h.state(), h.timers(), h.watermark, h.processing_time) == ({}, [], MIN, 0)
        h.process_elements([(click("ada"), 1), (click("bob"), 2), (click("ada"), 12)])
        assert h.state() == {"contents": {("ada", (0, 10)): [1], ("bob", (0, 10)): [1], ("ada", (10, 20)): [1]}}
        assert {(t.domain, t.time, t.key, t.window) for t in h.timers()} == {
            ("event", time, None, window)
            for time, window in ((9, (0, 10)), (14, (0, 10)), (19, (10, 20)), (24, (10, 20)))
        }
        h.process_watermark(14)
        assert h.state() == {"contents": {("ada", (10, 20)): [1]}}
    with WindowHarness(EventTimeSessionWindows("5 ms"), COUNT, key="user") as h:
        h.process_elements([(click("ada"), 1), (click("ada"), 3), (click("ada"), 30)])
        assert h.state() == {"contents": {("ada", (1, 8)): [2], ("ada", (30, 35)): [1]}}
        assert h.timers() == [Timer("event", 5, "ada", None)]  # of a key's sessions only the next has a timer
        h.process_watermark(7)
        assert h.timers() == [Timer("event", 34, "ada", None)]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (None, {None}),
        ("user", {"ada"}),
        (("user", "n"), {("ada", 1), ("ada", 2)}),
        (lambda row: row["n"] % 2, {0, 1}),
    ],
)
def test_keys(key: Any, found: set[Any]) -> None:
    with harness(key=key) as h:
        h.process_elements([({"user": "ada", "n": n}, 1) for n in (1, 2)])
        assert {row.key for row in h.end_of_input()} == found


def test_a_snapshot_can_be_restored_several_times_and_elsewhere() -> None:
    with harness() as h, harness(instances=3) as other:
        h.process_elements([(click(user), 1) for user in "abcdefgh"])
        h.set_processing_time(7)
        h.process_watermark(3)
        snapshot = h.snapshot()
        h.process_elements([(click(user), 2) for user in "abcdefgh"])
        for target in (h, other, h):
            target.restore(snapshot)
            assert (target.watermark, target.processing_time) == (3, 7)
            assert target.state() == {"contents": {(user, (0, 10)): [1] for user in "abcdefgh"}}
            assert sorted(row.key for row in target.process_watermark(9)) == list("abcdefgh")


def test_new_groups_know_the_watermark_of_before() -> None:
    with harness() as h:
        h.process_watermark(100)
        h.restore(h.snapshot())
        h.process_element(click("ada"), 5)
        assert len(h.late) == 1


def test_key_groups_are_spread_over_instances() -> None:
    with harness(instances=2, key_groups=4) as h:
        h.process_elements([(click(str(n)), 1) for n in range(50)])
        h.rescale(4)
        h.rescale(1)
        assert len(h.end_of_input()) == 50
        with pytest.raises(DefinitionError, match="5 tasks share 4 key groups"):
            h.rescale(5)


def test_nan_is_one_key_and_so_is_zero_whatever_object_it_is() -> None:
    with WindowHarness(TumblingEventTimeWindows("10 s"), COUNT, key=["user", "n"]) as h:
        for instances in (1, 3, 2):
            h.rescale(instances)
            h.process_elements([({"user": "ada", "n": float(n)}, 1) for n in ("nan", "0.0", "-0.0")])
        assert sorted(row.value for row in h.end_of_input()) == [(3,), (6,)]


def test_windows_without_bounds_are_told_by_a_global_window() -> None:
    from poundlock import CountTrigger, GlobalWindows

    with WindowHarness(GlobalWindows(), COUNT, trigger=CountTrigger(1)) as h:
        assert h.process_element(click("ada"))[0].window == GlobalWindow()


def test_a_closed_harness_says_so() -> None:
    h = harness()
    h.close()
    with pytest.raises(DefinitionError, match="the harness is closed"):
        h.process_element(click("ada"), 1)
    assert isinstance(h, KeyedOperatorHarness)
