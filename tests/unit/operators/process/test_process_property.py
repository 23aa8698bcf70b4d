"""Process functions against a model, and restores, rescaling and other batches against an undisturbed run, on random scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from poundlock import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Side,
    StateTtlConfig,
    TimeDomain,
    ValueStateDescriptor,
)
from poundlock.testing import Element, ProcessHarness
from support.examples import examples

quick = examples(80)
TTL = 20

times = st.integers(-30, 60)
commands = st.one_of(
    st.tuples(st.sampled_from(["value", "ttl", "sum", "list"]), st.integers(0, 9)),
    st.tuples(st.just("map"), st.tuples(st.integers(0, 2), st.integers(0, 9))),
    st.tuples(st.just("unmap"), st.integers(0, 2)),
    st.tuples(st.just("clear"), st.just(0)),
    st.tuples(st.sampled_from(["event", "clock", "no event", "no clock"]), times),
)
elements = st.tuples(st.sampled_from("abcdef"), st.integers(0, 1), commands)
steps = st.one_of(
    st.tuples(st.just("elements"), st.lists(elements, max_size=6)),
    st.tuples(st.just("elements"), st.lists(elements, max_size=6)),
    st.tuples(st.just("watermark"), times),
    st.tuples(st.just("clock"), st.integers(0, 60)),
)
scripts = st.lists(steps, max_size=15)
Step = tuple[str, Any]


class Everything(KeyedCoProcessFunction):
    """Does what an element says, and tells all it knows each time."""

    def open(self, context: Any) -> None:
        self.value = context.get_state(ValueStateDescriptor("value"))
        self.ttl = context.get_state(ValueStateDescriptor("ttl", ttl=StateTtlConfig(ttl=f"{TTL} ms")))
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.list = context.get_list_state(ListStateDescriptor("list"))
        self.map = context.get_map_state(MapStateDescriptor("map"))

    def told(self) -> list[Any]:
        return [self.value.value(), self.ttl.value(), self.sum.get(), self.list.get(), sorted(self.map.items())]

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.told()
        what, given = value["command"]
        timers = ctx.timer_service()
        do = {
            "value": self.value.update,
            "ttl": self.ttl.update,
            "sum": self.sum.add,
            "list": self.list.add,
            "map": lambda pair: self.map.put(*pair),
            "unmap": self.map.remove,
            "clear": lambda _: [state.clear() for state in (self.value, self.ttl, self.sum, self.list, self.map)],
            "event": timers.register_event_time_timer,
            "clock": timers.register_processing_time_timer,
            "no event": timers.delete_event_time_timer,
            "no clock": timers.delete_processing_time_timer,
        }
        do[what](given)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        for row in self.process_element1(value, ctx):
            yield Side("right", row)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield [timestamp, ctx.time_domain() is TimeDomain.EVENT_TIME, *self.told()]
        if timestamp % 7 == 0:  # some timers set others, of either kind, also of times that are over
            ctx.timer_service().register_event_time_timer(timestamp + 8)
            ctx.timer_service().register_processing_time_timer(timestamp - 8)


class Model:
    """The same for one key, written down without operators."""

    def __init__(self) -> None:
        self.mark, self.now = -(1 << 63), 0
        self.keys: dict[str, dict[str, Any]] = {}

    def key(self, name: str) -> dict[str, Any]:
        empty = {"value": None, "ttl": None, "sum": None, "list": [], "map": {}, "event": set(), "clock": set()}
        return self.keys.setdefault(name, empty)

    def told(self, s: dict[str, Any]) -> list[Any]:
        alive = s["ttl"] is not None and s["ttl"][0] + TTL > self.now
        return [s["value"], s["ttl"][1] if alive else None, s["sum"], list(s["list"]), sorted(s["map"].items())]

    def element(self, key: str, side: int, command: Any) -> list[Any]:
        s, (what, given) = self.key(key), command
        out = ["right" if side else "", key, self.told(s), None]
        if what == "value":
            s["value"] = given
        elif what == "ttl":
            s["ttl"] = self.now, given
        elif what == "sum":
            s["sum"] = given + (s["sum"] or 0)
        elif what == "list":
            s["list"].append(given)
        elif what == "map":
            s["map"][given[0]] = given[1]
        elif what == "unmap":
            s["map"].pop(given, None)
        elif what == "clear":
            s.update(value=None, ttl=None, sum=None, list=[], map={})
        elif what.startswith("no "):
            s[what[3:]].discard(given)
        else:
            s[what].add(given)
        return out

    def fire(self, kind: str, limit: int) -> list[Any]:
        out = []
        for key, s in self.keys.items():
            while s[kind] and min(s[kind]) <= limit:
                time = min(s[kind])
                s[kind].remove(time)
                row = [time, kind == "event", *self.told(s)]
                out.append(["", key, row, time if kind == "event" else None])
                if time % 7 == 0:
                    s["event"].add(time + 8)
                    s["clock"].add(time - 8)
        return out

    def step(self, step: Step) -> list[Any]:
        kind, what = step
        if kind == "elements":
            return [self.element(*element) for element in what]
        if kind == "watermark":
            if what <= self.mark:
                return []
            self.mark = what
            return self.fire("event", what)
        self.now = max(self.now, what)
        return self.fire("clock", self.now)


def run(h: ProcessHarness, step: Step) -> list[Any]:
    """Return what came out at a step: tag, key, row, time."""
    before = {tag: len(rows) for tag, rows in (("", h.output), ("right", h.side_output("right")))}
    kind, what = step
    if kind == "elements":
        h.process_elements(Element({"key": key, "command": command}, None, side) for key, side, command in what)
    elif kind == "watermark":
        h.process_watermark(what)
    else:
        h.set_processing_time(what)
    after = (("", h.output), ("right", h.side_output("right")))
    return [[tag, e.key, e.value, e.timestamp] for tag, rows in after for e in rows[before[tag] :]]


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


@quick
@given(scripts, st.data())
def test_as_the_model_says_whatever_is_restored_and_rescaled_in_between(
    script: list[Step], data: st.DataObject
) -> None:
    h = ProcessHarness(Everything(), key="key", key_groups=5, chunk_rows=data.draw(st.sampled_from([1, 3, 8192])))
    model = Model()
    for step in script:
        if data.draw(st.booleans()):
            h.restore(h.snapshot(), instances=data.draw(st.integers(1, 5)))
        # An element of one side and one of the other may change places within a batch: only each key's own order counts.
        if step[0] == "elements" and data.draw(st.booleans()):
            found = [row for element in step[1] for row in run(h, ("elements", [element]))]
            expected = [row for element in step[1] for row in model.step(("elements", [element]))]
        else:
            ordered = (step[0], sorted(step[1], key=lambda e: e[1])) if step[0] == "elements" else step
            found, expected = run(h, ordered), model.step(ordered)
        assert counted(found) == counted(expected)
    left = [(kind, time, key) for key, s in model.keys.items() for kind in ("event", "clock") for time in s[kind]]
    kinds = {"event": "event", "processing": "clock"}
    assert sorted((kinds[t.domain], t.time, t.key) for t in h.timers()) == sorted(left)
    assert h.state().get("state:list", {}) == {key: s["list"] for key, s in model.keys.items() if s["list"]}
    h.close()


RULES = MapStateDescriptor("rules")


class Matches(KeyedBroadcastProcessFunction):
    """Remembers the kinds a key has seen and says which of them have a rule."""

    def open(self, context: Any) -> None:
        self.seen = context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.add(value["kind"])
        rules = ctx.get_broadcast_state(RULES)
        yield [kind for kind in self.seen.get() if rules.contains(kind)]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES)
        if rules.contains(value["kind"]):
            rules.remove(value["kind"])
        else:
            rules.put(value["kind"], True)
        yield sorted(rules.keys())


@quick
@given(
    st.lists(st.tuples(st.sampled_from("abcdr"), st.integers(0, 3)), max_size=25),
    st.lists(st.integers(1, 4), max_size=25),
)
def test_broadcast_state_is_the_same_everywhere_whatever_is_rescaled(
    script: list[tuple[str, int]], instances: list[int]
) -> None:
    h = ProcessHarness(Matches(), key="key", broadcast=[RULES], key_groups=4)
    rules: set[int] = set()
    seen: dict[str, list[int]] = {}
    tasks = 1
    for at, (key, kind) in enumerate(script):
        if at < len(instances):
            tasks = instances[at]
            h.rescale(tasks)
        if key == "r":
            rules ^= {kind}
            assert [e.value for e in h.process_broadcast_element({"kind": kind})] == [sorted(rules)] * tasks
        else:
            seen.setdefault(key, []).append(kind)
            [out] = h.process_element({"key": key, "kind": kind})
            assert out.value == [k for k in seen[key] if k in rules]
    assert h.state().get("broadcast:rules", {None: {}}) == {None: dict.fromkeys(rules, True)}
    h.close()
