"""Watermarks of a job: properties that hold for whatever comes, and the cases that decide what a user sees."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError, WatermarkStrategy
from poundlock.operators.time_graph import Held
from poundlock.operators.time_values import MAX, MIN, StreamHolder
from poundlock.operators.watermarks import PartitionSeen, SourceWatermark
from poundlock.testing.watermarks import WatermarkHarness
from poundlock.values import ManualClock
from support.examples import examples

DELAY, IDLE = 5, 20
STRATEGY = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=DELAY))
PARTITIONS = ("p0", "p1", "p2")

STEPS = st.lists(
    st.one_of(
        st.dictionaries(
            st.sampled_from(PARTITIONS), st.lists(st.integers(-100, 1000), min_size=1, max_size=3), max_size=3
        ),
        st.integers(0, 30),
    ),
    max_size=20,
)


def through_json(harness: WatermarkHarness) -> None:
    harness.restore(json.loads(json.dumps(harness.snapshot())))


def play(harness: WatermarkHarness, steps: list[Any], restart_at: int | None = None) -> list[int]:
    found = []
    for number, step in enumerate(steps):
        if number == restart_at:
            through_json(harness)
        found.append(harness.checkpoint(step) if isinstance(step, dict) else harness.advance(step))
    return found


@given(STEPS)
def test_without_idleness_it_is_the_least_of_all_partitions(steps: list[Any]) -> None:
    harness = WatermarkHarness(STRATEGY, PARTITIONS)
    greatest = dict.fromkeys(PARTITIONS, MIN)
    for step in steps:
        for name, times in step.items() if isinstance(step, dict) else ():
            greatest[name] = max(greatest[name], *times)
        play(harness, [step])
        least = min(greatest.values())
        assert harness.watermark == (MIN if least == MIN else least - DELAY - 1)
        held = harness.job.held_by
        assert held is not None
        assert held.partition is None or greatest[held.partition] == least


@given(STEPS)
def test_it_never_moves_back_and_never_passes_an_active_partition(steps: list[Any]) -> None:
    harness = WatermarkHarness(STRATEGY.with_idleness(timedelta(milliseconds=IDLE)), PARTITIONS)
    before = MIN
    for step in steps:
        (now,) = play(harness, [step])
        assert now >= before
        partitions = harness.job.source("source").partitions
        active = [MIN if each.watermark is None else each.watermark for each in partitions.values() if not each.idle]
        assert now <= max(min(active, default=now), before), "it moves no further than the least of the active ones"
        before = now


@given(STEPS, st.integers(0, 19), st.booleans())
def test_a_restart_at_any_step_changes_nothing(steps: list[Any], at: int, sessions: bool) -> None:
    """How long a partition was silent is counted anew by a restart; all else goes on as it was."""
    with_splits = WatermarkHarness(STRATEGY) if sessions else WatermarkHarness(STRATEGY, PARTITIONS)
    again = WatermarkHarness(STRATEGY) if sessions else WatermarkHarness(STRATEGY, PARTITIONS)
    assert play(with_splits, steps) == play(again, steps, restart_at=at)
    assert with_splits.snapshot() == again.snapshot()


@examples(50)
@given(STEPS, STEPS, st.integers(0, 19))
def test_two_sources_are_combined_alike_after_a_restart(left: list[Any], right: list[Any], at: int) -> None:
    def run(restart: bool) -> list[int]:
        harness = WatermarkHarness({"a": STRATEGY, "b": STRATEGY}, {"a": PARTITIONS, "b": PARTITIONS})
        found = []
        for number, (one, two) in enumerate(zip(left, right, strict=False)):
            if restart and number == at:
                through_json(harness)
            rows: dict[Any, Any] = {}
            for name, step in (("a", one), ("b", two)):
                rows |= {(name, p): times for p, times in step.items()} if isinstance(step, dict) else {}
            found.append(harness.checkpoint(rows))
        return found

    assert run(restart=True) == run(restart=False)


def test_an_idle_partition_does_not_hold_it_back_and_counts_again_when_it_wakes() -> None:
    harness = WatermarkHarness(STRATEGY.with_idleness("20 ms"), ["fast", "slow"])
    harness.checkpoint({"fast": [100], "slow": [10]})
    assert harness.watermark == 10 - DELAY - 1
    assert harness.job.held_by == StreamHolder("source", "slow")
    harness.checkpoint({"fast": [200]})  # slow is found silent here for the first time
    harness.clock.set(20)
    assert harness.checkpoint({"fast": [300]}) == 4, "not for longer than the timeout yet"
    harness.clock.set(21)
    assert harness.checkpoint({"fast": [300]}) == 300 - DELAY - 1
    assert [name for name, each in harness.job.source("source").partitions.items() if each.idle] == ["slow"]
    harness.checkpoint({"fast": [400], "slow": [50]})
    assert harness.watermark == 300 - DELAY - 1, "not back, and not on either: slow is behind"
    assert harness.checkpoint({"slow": [500]}) == 400 - DELAY - 1


def test_where_all_fall_silent_it_ends_at_the_greatest() -> None:
    harness = WatermarkHarness(STRATEGY.with_idleness("20 ms"), ["a", "b"])
    harness.checkpoint({"a": [100], "b": [10]})
    harness.advance(1)
    assert harness.advance(20) == 4
    assert harness.advance(1) == 94
    assert harness.job.source("source").idle


@examples(200)
@given(st.dictionaries(st.integers(0, 30).map(str), st.tuples(st.integers(0, 9), st.booleans()), min_size=1))
def test_those_that_fall_silent_together_are_as_if_one_after_the_other(rows: dict[str, tuple[int, bool]]) -> None:
    strategy = STRATEGY.with_idleness(timedelta(milliseconds=IDLE))
    source, other = SourceWatermark(strategy), SourceWatermark(strategy)
    names = [*rows, "silent from the beginning"]
    first = {name: PartitionSeen(time) for name, (time, _) in rows.items()}
    for each in (source, other):
        each.checkpoint({}, 0, names)
        each.checkpoint(first, IDLE, names)
    active = {name: PartitionSeen(time) for name, (time, stays) in rows.items() if stays}
    for each, then in ((source, 3 * IDLE), (other, IDLE + 2)):  # the other's have not been silent for long
        each.checkpoint(active, IDLE + 1, names)
        each.checkpoint(active, then, names)
    silent = sorted((each for each in rows if each not in active), key=lambda each: (rows[each][0], each))
    for name in ("silent from the beginning", *silent):
        other.mark_idle(name)
    assert (source.watermark, source.held_by, source.idle) == (other.watermark, other.held_by, other.idle)


def test_partitions_that_come_and_go() -> None:
    harness = WatermarkHarness(STRATEGY, ["a"])
    assert harness.checkpoint({"a": [100]}) == 94
    harness.partitions["source"] = ["a", "b"]
    assert harness.checkpoint({"a": [200]}) == 94, "nothing is known of b"
    assert harness.job.held_by == StreamHolder("source", "b")
    harness.partitions["source"] = ["a"]
    assert harness.checkpoint({}) == 194


def test_files_count_against_each_other_in_the_checkpoint_that_reads_them() -> None:
    harness = WatermarkHarness(STRATEGY)
    assert harness.checkpoint({"one": [100], "two": [60]}) == 54
    assert harness.job.held_by == StreamHolder("source", "two")
    assert harness.checkpoint({}) == 54
    assert harness.checkpoint({"three": [300]}) == 294, "those before are read to their end"
    assert not harness.job.source("source").partitions, "thousands of files are not kept"


def test_the_least_of_several_sources_and_the_end_of_one() -> None:
    harness = WatermarkHarness({"a": STRATEGY, "b": STRATEGY}, {"b": ["p"]})
    assert harness.checkpoint({("a", "f"): [100]}) == MIN
    assert harness.job.held_by == StreamHolder("b", "p")
    assert harness.checkpoint({("b", "p"): [50]}) == 44
    assert harness.checkpoint({("b", "p"): [500]}) == 94
    assert harness.checkpoint({}, ended=["a"]) == 494, "what has ended holds nobody back"
    assert harness.checkpoint({}, ended=["a", "b"]) == MAX
    assert harness.job.held_by is None


@pytest.mark.parametrize("names", [["a", "b"], ["b", "a"]])
def test_of_sources_that_wake_up_together_the_least_counts_whatever_their_order(names: list[str]) -> None:
    strategy = STRATEGY.with_idleness("20 ms")
    harness = WatermarkHarness(dict.fromkeys(names, strategy), {"a": ["p"], "b": ["p"]})
    harness.checkpoint({("a", "p"): [100], ("b", "p"): [50]})
    harness.advance(0)
    assert harness.advance(21) == 94
    assert harness.checkpoint({("a", "p"): [300], ("b", "p"): [200]}) == 194
    assert harness.job.held_by == StreamHolder("b", "p")


@pytest.mark.parametrize("restart", [False, True])
def test_where_one_source_has_ended_and_the_others_are_silent_it_is_not_the_last_one(restart: bool) -> None:
    live = STRATEGY.with_idleness("20 ms")
    harness = WatermarkHarness({"a": STRATEGY, "b": live, "c": live}, {"b": ["p"], "c": ["p"]})
    harness.checkpoint({("a", "f"): [1000], ("b", "p"): [100], ("c", "p"): [50]}, ended=["a"])
    assert harness.watermark == 44
    harness.advance(0)
    assert harness.advance(21) == 94, "it ends at the greatest of those that may go on"
    if restart:
        through_json(harness)
    assert not harness.job.ended
    assert harness.checkpoint({("b", "p"): [300], ("c", "p"): [200]}, ended=["a"]) == 194
    assert harness.checkpoint({}, ended=["a", "b"]) == 194
    assert harness.checkpoint({}, ended=["a", "b", "c"]) == MAX


def test_behind_the_end_a_restart_goes_on_with_the_watermark_before_it() -> None:
    harness = WatermarkHarness(STRATEGY)
    harness.checkpoint({"one": [100]})
    harness.job.end()
    assert harness.watermark == MAX
    through_json(harness)
    assert harness.watermark == 94
    assert harness.checkpoint({"two": [200]}) == 194


@pytest.mark.parametrize("silent", ["a", "b"])
def test_behind_the_end_a_source_that_stays_silent_holds_nothing_back_for_ever(silent: str) -> None:
    live = STRATEGY.with_idleness("20 ms")
    harness = WatermarkHarness({"a": live, "b": live}, {"a": ["p"], "b": ["p"]})
    harness.checkpoint({("a", "p"): [100], ("b", "p"): [100]})
    harness.job.end()
    through_json(harness)
    other = "b" if silent == "a" else "a"
    assert harness.checkpoint({(other, "p"): [300]}) == 94, "nothing is known of the silent one"
    harness.advance(0)
    assert harness.advance(21) == 294


def test_a_users_generator_sees_a_partition_and_a_checkpoint_at_a_time() -> None:
    class Punctuated:
        """Emits with every second checkpoint of its partition; goes idle after three empty calls in a row."""

        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []
            self.empty = 0

        def on_event(self, timestamp: int, count: int, output: Any) -> None:
            self.seen.append((timestamp, count))
            self.empty = -1
            if len(self.seen) % 2 == 0:
                output.emit_watermark(timestamp)

        def on_periodic_emit(self, output: Any) -> None:
            self.empty += 1
            if self.empty == 3:
                output.mark_idle()

        def snapshot(self) -> Any:
            return [self.seen, self.empty]

        def restore(self, state: Any) -> None:
            self.seen, self.empty = [(t, n) for t, n in state[0]], state[1]

    harness = WatermarkHarness(WatermarkStrategy.for_generator(Punctuated), ["a", "b"])
    assert harness.checkpoint({"a": [1, 7, 3], "b": [5]}) == MIN
    through_json(harness)
    assert harness.checkpoint({"a": [9], "b": [8]}) == 8
    for _ in range(3):
        harness.checkpoint({"a": [20]})
    assert harness.watermark == 20, "b said that it is idle"


def test_the_clock_gives_time_to_rows_and_to_the_watermark() -> None:
    clock = ManualClock(1000)
    harness = WatermarkHarness(WatermarkStrategy.ingestion_time(), ["p"], clock=clock)
    assert harness.checkpoint({"p": [1000]}) == 999
    assert harness.advance(500) == 1499
    assert harness.job.end() == MAX
    at_work = WatermarkHarness(WatermarkStrategy.processing_time(), ["p"], clock=clock)
    at_work.checkpoint({})
    assert at_work.job.end() == 1499, "open windows of processing time are not fired at the end"


def test_the_clock_never_falls_silent() -> None:
    clock = ManualClock(1000)
    harness = WatermarkHarness(WatermarkStrategy.ingestion_time(), [], clock=clock)
    harness.checkpoint({})
    harness.advance(21)
    assert harness.advance(21) == 1041
    assert harness.checkpoint({}) == 1041
    assert not harness.job.source("source").idle


def test_the_clock_goes_on_from_the_state_of_another_strategy() -> None:
    clock = ManualClock(1000)
    before = WatermarkHarness(STRATEGY, clock=clock)
    before.checkpoint({"file": [100]})
    harness = WatermarkHarness(WatermarkStrategy.ingestion_time(), [], clock=clock)
    harness.restore(json.loads(json.dumps(before.snapshot())))
    assert harness.watermark == 94
    assert harness.checkpoint({}) == 999


def test_alignment_names_who_waits_and_by_how_much() -> None:
    aligned = STRATEGY.with_watermark_alignment("g", "100 ms")
    harness = WatermarkHarness(
        {"a": aligned, "b": aligned, "c": STRATEGY}, {"a": ["a0", "a1"], "b": ["b0"], "c": ["c0"]}
    )
    harness.checkpoint({("a", "a0"): [1000], ("a", "a1"): [500], ("b", "b0"): [200], ("c", "c0"): [9000]})
    assert harness.job.held == {"a": Held(True, frozenset({"a0", "a1"}), 700)}  # 494 and 994 against 194 + 100
    harness.checkpoint({("b", "b0"): [2000]})
    assert harness.job.held == {
        "a": Held(False, frozenset({"a0"}), 400),
        "b": Held(True, frozenset({"b0"}), 1400),
    }


def test_a_source_that_waits_for_its_group_is_not_silent() -> None:
    aligned = STRATEGY.with_watermark_alignment("g", "100 ms").with_idleness("20 ms")
    harness = WatermarkHarness({"files": aligned, "live": aligned}, {"live": ["p"]})
    harness.checkpoint({("files", "one"): [1000], ("live", "p"): [200]})
    assert harness.job.held == {"files": Held(True, frozenset(), 700)}
    for _ in range(3):
        harness.clock.set(harness.clock.now_ms() + 15)
        assert harness.checkpoint({("live", "p"): [300]}) == 294
    assert harness.checkpoint({("live", "p"): [5000]}) == 994, "not past what the files have that are not read yet"
    assert harness.job.held_by == StreamHolder("files", "one")
    assert harness.checkpoint({("files", "two"): [1500]}) == 1494
    harness.advance(0)
    assert harness.advance(21) == 4994, "it is read, and silent"


def test_no_watermarks_hold_everything_until_the_end() -> None:
    harness = WatermarkHarness({"a": STRATEGY, "b": WatermarkStrategy.no_watermarks()}, {"a": ["p"], "b": ["p"]})
    assert harness.checkpoint({("a", "p"): [100], ("b", "p"): [100]}) == MIN
    assert harness.job.held_by == StreamHolder("b", "p")
    assert harness.job.end() == MAX


def test_a_stream_without_watermarks_that_falls_silent_is_waited_for_no_longer() -> None:
    silent = WatermarkStrategy.no_watermarks().with_idleness("20 ms")
    harness = WatermarkHarness({"a": STRATEGY, "b": silent}, {"a": ["p"], "b": ["p"]})
    assert harness.checkpoint({("a", "p"): [100], ("b", "p"): [100]}) == MIN
    harness.advance(0)
    assert harness.advance(21) == 94


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: STRATEGY.with_idleness("0 s"), "an idle timeout of 0 ms"),
        (lambda: STRATEGY.with_watermark_alignment(" ", "1 s"), "needs the name of a group"),
        (lambda: WatermarkStrategy.for_generator(3), "3 makes no generators"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.ingestion_time().with_timestamp_assigner("ts"), "takes no event time from rows"),
        (lambda: WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp=3), "3 is no timestamp assigner"),  # type: ignore[arg-type]
        (lambda: STRATEGY.check(), "needs to know the time of a row"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()


def test_a_generator_of_each_record_sees_them_in_the_order_of_the_partition() -> None:
    class Marks:
        """Emits the time of each record that says so."""

        def on_record(self, record: dict[str, Any], timestamp: int, output: Any) -> None:
            if record["mark"]:
                output.emit_watermark(timestamp)

        def on_periodic_emit(self, output: Any) -> None:
            pass

    strategy = WatermarkStrategy.for_generator(Marks, timestamp="ts", per_record=True)
    harness = WatermarkHarness(strategy, ["p"])
    assert harness.checkpoint({"p": [(900, {"mark": False}), (500, {"mark": True})]}) == 500
    through_json(harness)
    assert harness.checkpoint({"p": [(400, {"mark": True}), (2000, {"mark": False})]}) == 500, "it never moves back"
    assert harness.checkpoint({"p": [(700, {"mark": True})]}) == 700


def test_each_source_has_a_stream_of_its_own() -> None:
    harness = WatermarkHarness({"a": STRATEGY, "b": STRATEGY}, {"a": ["p"], "b": ["p"]})
    assert harness.checkpoint({("a", "p"): [1000], ("b", "p"): [100]}) == 94
    assert (harness.job.watermark_of("a"), harness.job.watermark_of("b")) == (994, 94)


def test_a_partition_that_is_read_to_its_end_holds_nobody_back_behind_it() -> None:
    harness = WatermarkHarness(STRATEGY, ["p", "q"])
    assert harness.checkpoint({"p": [1000], "q": [100]}) == 94
    harness.partitions["source"] = ["p"]
    assert harness.checkpoint({"p": [2000], "q": [200]}) == 1994
    assert harness.job.held_by == StreamHolder("source", "p")


@pytest.mark.parametrize("emitted", [None, "1000", 1.5, True, MAX + 1, MIN - 1])
def test_a_generator_emits_what_can_be_kept(emitted: Any) -> None:
    class Odd:
        def on_event(self, timestamp: int, count: int, output: Any) -> None:
            output.emit_watermark(emitted)

        def on_periodic_emit(self, output: Any) -> None:
            pass

    harness = WatermarkHarness(WatermarkStrategy.for_generator(Odd, timestamp="ts"), ["p"])
    with pytest.raises(DefinitionError, match=f"a watermark generator emitted {emitted!r}\nNext: emit a whole number"):
        harness.checkpoint({"p": [100]})


def test_strategies_say_what_they_are() -> None:
    timed = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="ts")
    assert timed.describe() == "event time ts as event_time, at most 5 s late"
    said = timed.with_idleness("1 min").with_watermark_alignment("g", "2 s").describe()
    assert said == "event time ts as event_time, at most 5 s late, idle after 1 min, at most 2 s ahead of group g"
    assert WatermarkStrategy.ingestion_time().describe() == "ingestion time as event_time"
    assert WatermarkStrategy.no_watermarks().with_timestamp_assigner(len).describe().endswith("no watermarks")
