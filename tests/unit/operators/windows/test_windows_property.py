"""Windows against brute force, and the ways of running them against each other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.stream.windows.assigners import AlignedWindows, MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.builtin_assigners import CountSlidingWindows, EventTimeSessionWindows
from poundlock.stream.windows.evictors import CountEvictor, DeltaEvictor
from support.examples import examples
from support.window_model import Model, shown
from support.window_scripts import Setting, Step, aligned, ms, plain_settings, play, run, scripts, settings_of_all

COUNT_AND_SUM = [SqlAggregate(kind="count"), SqlAggregate(kind="sum", column="v")]
MIN = -(1 << 63)

quick = examples(60)


def grouped(assigner: AlignedWindows, script: list[Step]) -> tuple[Counter[Any], Counter[Any]]:
    """Return results (key, start, end, count, sum) and late elements, by grouping what was not late on arrival."""
    mark, panes, late = MIN, {}, Counter()
    for kind, what in script:
        if kind == "watermark":
            mark = max(mark, what)
        if kind != "elements":
            continue
        for key, value, time in what:
            windows = [w for w in assigner.windows_at(time) if w.end - 1 > mark]
            for window in windows:
                panes.setdefault((key, *window), []).append(value)
            if not windows and time <= mark:
                late[key, value, time] += 1
    return Counter((*place, len(values), sum(values)) for place, values in panes.items()), late


@quick
@given(aligned().filter(lambda a: a.is_event_time()), scripts(), st.booleans())
def test_aligned_windows_are_a_group_by(assigner: WindowAssigner, script: list[Step], general: bool) -> None:
    assert isinstance(assigner, AlignedWindows)
    h = Setting(assigner).harness(COUNT_AND_SUM, general=general)
    for step in script:
        run(h, step)
    expected, late = grouped(assigner, script)
    assert Counter((e.key, e.window.start, e.window.end, *e.value) for e in h.output) == expected
    assert Counter((e.key, e.value["v"], e.timestamp) for e in h.late) == late
    assert h.state() == {}
    assert h.timers() == []
    h.close()


@quick
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 20))
def test_full_count_windows_are_slices(n: int, slide: int, count: int) -> None:
    with Setting(CountSlidingWindows(n, slide, full_only=True)).harness() as h:
        h.process_elements([({"k": "a", "v": v}, None) for v in range(count)])
        found = {out.window.id: out.value[0] for out in h.output}
    wanted = {i: tuple(range(i * slide, i * slide + n)) for i in range(count)}
    assert found == {i: values for i, values in wanted.items() if values[-1] < count}


@quick
@given(st.integers(1, 12), scripts(late=False), st.booleans())
def test_sessions_are_runs_of_elements_no_further_apart_than_the_gap(
    gap: int, script: list[Step], general: bool
) -> None:
    h = Setting(EventTimeSessionWindows(ms(gap))).harness(COUNT_AND_SUM, general=general)
    for step in script:
        run(h, step)
    by_key: dict[str, list[tuple[int, int]]] = {}
    for kind, what in script:
        for key, value, time in what if kind == "elements" else ():
            by_key.setdefault(key, []).append((time, value))
    expected: Counter[Any] = Counter()
    for key, elements in by_key.items():
        elements.sort()
        while elements:
            cut = next((i for i in range(1, len(elements)) if elements[i][0] > elements[i - 1][0] + gap), len(elements))
            some, elements = elements[:cut], elements[cut:]
            expected[key, some[0][0], some[-1][0] + gap, len(some), sum(v for _, v in some)] += 1
    assert Counter((e.key, e.window.start, e.window.end, *e.value) for e in h.output) == expected
    assert h.late == []
    assert h.timers() == []
    h.close()


def has_an_order(setting: Setting) -> bool:
    """Return whether a result does not depend on the order of elements that nothing says: that behind a merge."""
    return not (
        isinstance(setting.assigner, MergingWindowAssigner)
        and isinstance(setting.evictor, (CountEvictor, DeltaEvictor))
    )


@pytest.mark.slow
@examples(150)
@given(settings_of_all.filter(has_an_order), scripts(), st.booleans(), st.booleans())
def test_all_windows_triggers_and_evictors_do_what_the_model_does(
    setting: Setting, script: list[Step], general: bool, one_by_one: bool
) -> None:
    model, h, seen = Model(setting), setting.harness(general=general), 0
    for step in script:
        out = run(h, step, one_by_one)
        found = Counter(shown(e.key, *e.value, e.window, model.merges) for e in out)
        late = Counter((e.key, e.value["v"], e.timestamp) for e in h.late[seen:])
        seen = len(h.late)
        assert (found, late) == model.run(step), step
        assert all(e.timestamp == e.window.max_timestamp() for e in out)
        if general:  # the quick ones need fewer
            assert {(t.domain, t.time, t.key, t.window) for t in h.timers()} == model.set_timers()
            kept = {name: set(held) for name, held in h.state().items() if name.startswith("trigger:")}
            assert kept == model.trigger_states()
    h.close()


@pytest.mark.slow
@examples(150)
@given(plain_settings, scripts(), st.booleans())
def test_the_quick_operators_do_what_the_general_one_does(setting: Setting, script: list[Step], sql: bool) -> None:
    function: dict[str, Any] = {"function": COUNT_AND_SUM} if sql else {}
    wanted = play(setting.harness(**function, general=True), script, one_by_one=True)
    assert play(setting.harness(**function, chunk_rows=1), script) == wanted
    assert play(setting.harness(**function), script, one_by_one=True) == wanted


@quick
@given(settings_of_all, scripts(), st.sets(st.integers(0, 15)))
def test_snapshots_and_restores_change_nothing(setting: Setting, script: list[Step], at: set[int]) -> None:
    wanted = play(setting.harness(), script)
    h = setting.harness()

    def restore(number: int) -> None:
        if number in at:
            h.restore(h.snapshot())

    assert play(h, script, between=restore) == wanted


@pytest.mark.slow
@quick
@given(settings_of_all, scripts(), st.lists(st.integers(1, 8), min_size=16, max_size=16))
def test_rescaling_changes_nothing(setting: Setting, script: list[Step], instances: list[int]) -> None:
    wanted = play(setting.harness(), script)
    h = setting.harness(instances=instances[0])
    assert play(h, script, between=lambda number: h.rescale(instances[number])) == wanted


@quick
@given(settings_of_all, scripts())
def test_a_state_that_was_read_and_written_is_the_same_bytes(setting: Setting, script: list[Step]) -> None:
    h = setting.harness()
    for step in script[:-2]:
        run(h, step)
    snapshot = h.snapshot()
    h.state()
    h.restore(snapshot)
    h.state()
    assert h.snapshot() == snapshot
    h.close()


@quick
@given(st.data(), aligned(), st.sampled_from([0, 3, 20]), scripts())
def test_the_order_of_elements_between_watermarks_changes_no_final_result(
    data: st.DataObject, assigner: WindowAssigner, lateness: int, script: list[Step]
) -> None:
    shuffled = [(k, data.draw(st.permutations(w))) if k == "elements" else (k, w) for k, w in script]
    last: list[dict[Any, Any]] = []
    for steps in (script, shuffled):
        h = Setting(assigner, lateness=lateness).harness(COUNT_AND_SUM)
        for step in steps:
            run(h, step)
        last.append({(e.key, e.window): e.value for e in h.output} | {"late": Counter(map(repr, h.late))})
        h.close()
    assert last[0] == last[1]


@quick
@given(st.data(), st.integers(1, 12), scripts(late=False), st.booleans())
def test_the_order_of_elements_between_watermarks_changes_no_session(
    data: st.DataObject, gap: int, script: list[Step], general: bool
) -> None:
    """Without late elements: one that is late by itself is not if it comes behind the one whose session it joins, as in Flink."""
    shuffled = [(k, data.draw(st.permutations(w))) if k == "elements" else (k, w) for k, w in script]
    setting = Setting(EventTimeSessionWindows(ms(gap)))
    wanted = play(setting.harness(COUNT_AND_SUM, general=general), script)
    assert play(setting.harness(COUNT_AND_SUM, general=general), shuffled) == wanted
