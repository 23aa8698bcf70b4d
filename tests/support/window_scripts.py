"""Random windows and random scripts of elements, watermarks and clock, and what a harness makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from poundlock.stream.functions.process import ProcessWindowFunction
from poundlock.stream.functions.state import ReducingStateDescriptor
from poundlock.stream.windows.assigners import MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountSlidingWindows,
    CountTumblingWindows,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from poundlock.stream.windows.triggers import OnMergeContext, Trigger, TriggerContext, TriggerResult
from poundlock.stream.windows.window import Window
from poundlock.testing import Element, Emitted, WindowHarness


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@dataclass(frozen=True)
class All(ProcessWindowFunction):
    """Every element, in order, with what the context says."""

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        yield tuple(element["v"] for element in elements), context.current_watermark()


def gap_of(element: dict[str, Any]) -> int:
    return 1 + int(element["v"]) % 5


def difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    return float(b["v"] - a["v"])


@dataclass(frozen=True)
class OddOnesFire(Trigger):
    """A user's: every third element fires, the end fires and purges, and some time by the clock behind an odd one purges."""

    pause: int
    count = ReducingStateDescriptor("count", lambda a, b: a + b)
    due = ReducingStateDescriptor("due", max)

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        if value["v"] % 2:
            due = ctx.get_partitioned_state(self.due)
            due.add(ctx.get_current_processing_time() + self.pause)
            ctx.register_processing_time_timer(due.get())
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        if count.get() < 3:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        due = ctx.get_partitioned_state(self.due)
        if due.get() != time:
            return TriggerResult.CONTINUE
        due.clear()
        return TriggerResult.PURGE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.count)
        ctx.merge_partitioned_state(self.due)
        ctx.register_event_time_timer(window.max_timestamp())
        due = ctx.get_partitioned_state(self.due).get()
        if due is not None:
            ctx.register_processing_time_timer(due)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        due = ctx.get_partitioned_state(self.due)
        if due.get() is not None:
            ctx.delete_processing_time_timer(due.get())
        due.clear()
        ctx.get_partitioned_state(self.count).clear()
        ctx.delete_event_time_timer(window.max_timestamp())

    def can_merge(self) -> bool:
        return True


@dataclass(frozen=True)
class SomeValues(Evictor):
    """A user's: the function does not see values of one kind, and those of another kind go behind it. It looks at both times."""

    of: int

    def evict_before(self, elements: Sequence[Any], window: Window, context: Any) -> Sequence[Any]:
        late = context.get_current_watermark() > window.max_timestamp()
        return [e for e in elements if late or e.value["v"] % 3 != self.of]

    def evict_after(self, elements: Sequence[Any], window: Window, context: Any) -> Sequence[Any]:
        odd = context.get_current_processing_time() % 2
        return [e for e in elements if e.value["v"] % 2 == odd]


_small = st.integers(1, 12)


@st.composite
def aligned(draw: st.DrawFn) -> WindowAssigner:
    """Tumbling, sliding and cumulative windows, by event time or the clock."""
    size, slide = draw(_small), draw(_small)
    kind = draw(
        st.sampled_from(["tumbling", "sliding", "cumulative", "tumbling clock", "sliding clock", "cumulative clock"])
    )
    if kind.startswith("cumulative"):
        longest = size * draw(st.integers(1, 4))
        growing = CumulativeProcessingTimeWindows if kind.endswith("clock") else CumulativeEventTimeWindows
        return growing(ms(size), ms(longest), ms(draw(st.integers(1 - longest, longest - 1))))
    offset = ms(draw(st.integers(1 - slide, slide - 1)))
    if kind.startswith("sliding"):
        sliding = SlidingProcessingTimeWindows if kind.endswith("clock") else SlidingEventTimeWindows
        return sliding(ms(size), ms(slide), offset)
    tumbling = TumblingProcessingTimeWindows if kind.endswith("clock") else TumblingEventTimeWindows
    return tumbling(ms(slide), offset)


sessions = st.builds(EventTimeSessionWindows, _small.map(ms)) | st.builds(ProcessingTimeSessionWindows, _small.map(ms))
counts = st.builds(CountTumblingWindows, st.integers(1, 4))
others = st.sampled_from(
    [
        GlobalWindows(),
        GlobalWindows(at_end=True),
        DynamicEventTimeSessionWindows(gap_of),
        DynamicProcessingTimeSessionWindows(gap_of),
    ]
) | st.builds(CountSlidingWindows, st.integers(1, 4), st.integers(1, 3), st.booleans())
assigners: st.SearchStrategy[WindowAssigner] = st.one_of(aligned(), sessions, counts, others)

_simple = st.one_of(
    st.sampled_from([EventTimeTrigger(), ProcessingTimeTrigger(), NeverTrigger(), EndOfStreamTrigger()]),
    st.builds(CountTrigger, st.integers(1, 4)),
    st.builds(ContinuousEventTimeTrigger, _small.map(ms)),
    st.builds(ContinuousProcessingTimeTrigger, _small.map(ms)),
    st.builds(DeltaTrigger, st.integers(0, 5), st.just(difference)),
    st.builds(OddOnesFire, _small),
)
triggers: st.SearchStrategy[Trigger] = st.one_of(
    _simple,
    st.builds(PurgingTrigger, _simple),
    st.builds(ProcessingTimeoutTrigger, _simple, _small.map(ms), st.booleans(), st.booleans()),
)
evictors: st.SearchStrategy[Evictor] = st.one_of(
    st.builds(CountEvictor, st.integers(0, 3), st.booleans()),
    st.builds(TimeEvictor, _small.map(ms), st.booleans()),
    st.builds(DeltaEvictor, st.integers(1, 5), st.just(difference), st.booleans()),
    st.builds(SomeValues, st.integers(0, 2)),
)


@dataclass(frozen=True)
class Setting:
    """Windows, all that can be said of them."""

    assigner: WindowAssigner
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    lateness: int = 0

    def harness(self, function: Any = All(), **options: Any) -> WindowHarness:
        return WindowHarness(
            self.assigner,
            function,
            key="k",
            trigger=self.trigger,
            evictor=self.evictor,
            allowed_lateness=ms(self.lateness),
            **options,
        )


def _usable(setting: Setting) -> bool:
    trigger = setting.trigger or setting.assigner.default_trigger()
    return trigger.can_merge() or not isinstance(setting.assigner, MergingWindowAssigner)


settings_of_all = st.builds(
    Setting, assigners, st.none() | triggers, st.none() | evictors, st.sampled_from([0, 0, 3, 20])
).filter(_usable)
plain_settings = st.builds(
    Setting, st.one_of(aligned(), sessions, sessions, counts), lateness=st.sampled_from([0, 4, 4, 10])
)


Step = tuple[str, Any]


@st.composite
def scripts(draw: st.DrawFn, longest: int = 14, late: bool = True) -> list[Step]:
    """Steps ("elements", [(key, value, ts)]), ("watermark", t), ("clock", t); watermark and clock rise."""
    steps: list[Step] = []
    clock = 0
    mark = -8
    for _ in range(draw(st.integers(1, longest))):
        kind = draw(st.sampled_from(["elements", "elements", "watermark", "clock"]))
        if kind == "elements":
            # One above the watermark still touches a session that the watermark has just closed.
            low = mark - 12 if late else mark + 2
            times = st.integers(low, max(mark, low) + 12)
            element = st.tuples(st.sampled_from("aab"), st.integers(0, 9), times)
            steps.append((kind, draw(st.lists(element, min_size=1, max_size=6))))
        elif kind == "watermark":
            mark += draw(st.integers(0, 8))
            steps.append((kind, mark))
        else:
            clock += draw(st.integers(0, 15))
            steps.append((kind, clock))
    return [*steps, ("clock", clock + 100), ("end", None)]


def run(h: WindowHarness, step: Step, one_by_one: bool = False) -> list[Emitted]:
    """Run a step; elements as one batch, or one by one."""
    kind, what = step
    if kind == "elements":
        elements = [Element({"k": key, "v": value}, time) for key, value, time in what]
        if one_by_one:
            return [out for element in elements for out in h.process_element(*element[:2])]
        return h.process_elements(elements)
    if kind == "watermark":
        return h.process_watermark(what)
    return h.set_processing_time(what) if kind == "clock" else h.end_of_input()


def told(rows: Iterable[Emitted]) -> Counter[str]:
    """Return rows as a multiset."""
    return Counter(map(repr, rows))


def play(
    h: WindowHarness, script: Sequence[Step], *, one_by_one: bool = False, between: Callable[[int], None] | None = None
) -> list[tuple[Counter[str], Counter[str]]]:
    """Run a script; return for each step what came out and what was late."""
    found = []
    seen = 0
    for number, step in enumerate(script):
        if between is not None:
            between(number)
        out = told(run(h, step, one_by_one))
        late = h.late
        found.append((out, told(late[seen:])))
        seen = len(late)
    h.close()
    return found
