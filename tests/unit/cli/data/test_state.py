"""`poundlock state`: how key groups are shown to people. That it finds them in a checkpoint of Spark's is an engine test."""

from __future__ import annotations

from typing import Any

from poundlock import EventTimeSessionWindows, KeyedProcessFunction, StateTtlConfig, ValueStateDescriptor
from poundlock.cli.data.state import _State
from poundlock.testing import ProcessHarness, Snapshot, WindowHarness


class Seen(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.last = context.get_state(ValueStateDescriptor("last", ttl=StateTtlConfig(ttl="1 s")))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.last.update(value["n"])
        ctx.timer_service().register_event_time_timer(61_500)
        ctx.timer_service().register_processing_time_timer(2_000)


def shown(snapshot: Snapshot, limit: int = 20) -> list[str]:
    return list(_State([("3", snapshot.describe())], limit).lines())


def test_windows_with_their_bounds_and_timers() -> None:
    with WindowHarness(EventTimeSessionWindows("30 s"), lambda a, b: b, key="k", key_groups=1) as h:
        h.process_elements([({"k": key, "n": 1}, 500) for key in "abc"])
        assert shown(h.snapshot(), limit=2) == [
            "operator 3: watermark -",
            "  contents (sessions): 3 entries",
            "    'b' in [1970-01-01T00:00:00.500Z, 1970-01-01T00:00:30.500Z): {'k': 'b', 'n': 1}",  # by their hashes
            "    'a' in [1970-01-01T00:00:00.500Z, 1970-01-01T00:00:30.500Z): {'k': 'a', 'n': 1}",
            "    …",
            "  event-time timers: 3",
            "    1970-01-01T00:00:30.499Z 'a'",
            "    1970-01-01T00:00:30.499Z 'b'",
            "    …",
        ]


def test_state_with_a_time_to_live_and_timers_of_both_kinds() -> None:
    with ProcessHarness(Seen(), key="k", key_groups=1) as h:
        h.process_watermark(1_000)
        h.process_element({"k": "a", "n": 7}, 1_500)
        assert shown(h.snapshot()) == [
            "operator 3: watermark 1970-01-01T00:00:01.000Z",
            "  state:last (value, time to live 1000 ms): 1 entries",
            "    'a': [0, 7]",  # when it was written, by the clock, and the value
            "  event-time timers: 1",
            "    1970-01-01T00:01:01.500Z 'a'",
            "  processing-time timers: 1",
            "    1970-01-01T00:00:02.000Z 'a'",
        ]
    assert list(_State([], 20).lines()) == ["no key has any state"]
