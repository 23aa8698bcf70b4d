"""The rule by which a job's parallelism follows its input, on series of checkpoints that are computed: bounds, no flapping, no restart."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import Autoscaler, DatagenSource, DefinitionError, FileSink, FileSource, Job
from poundlock.config import load_settings
from poundlock.driver.autoscaler import CheckpointLoad, Utilization, autoscaler_of, check_autoscaler, is_effective
from poundlock.driver.driver import with_settings
from poundlock.driver.parallelism import JobParallelism, Rescaling
from poundlock.plan.plan import make_plan
from support.examples import examples

QUICK: dict[str, Any] = {
    "metrics_window": "20 s", "stabilization_interval": "10 s", "scale_down_interval": "30 s", "catch_up_duration": "1 min",
}  # fmt: skip


@dataclass
class World:
    """A job whose checkpoints take a fixed time and one for each row, divided by the tasks that run at once.

    Args:
        arriving: rows a second that come in, by the time in seconds.
        row_s: seconds of a task that a row takes.
        cores: so many tasks run at once.
        knows_lag: whether the source does.
        most: rows that a checkpoint reads at most.
    """

    control: JobParallelism
    arriving: Callable[[float], float]
    row_s: float = 0.001
    cores: int = 64
    interval: float = 5.0
    fixed_s: float = 0.2
    knows_lag: bool = True
    most: float = float("inf")
    noise: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 1000.0
    waiting: float = 0.0
    changes: list[tuple[float, Rescaling]] = field(default_factory=list)
    series: list[tuple[float, int]] = field(default_factory=list)

    def run(self, seconds: float) -> World:
        end = self.now + seconds
        while self.now < end:
            self.checkpoint()
        return self

    def checkpoint(self) -> None:
        began = self.now
        change = self.control.next_checkpoint(began, round(self.waiting) if self.knows_lag else None)
        if change is not None:
            self.changes.append((began, change))
        tasks = self.control.current
        self.series.append((began, tasks))
        rows = min(self.waiting, self.most)
        ran = self.fixed_s + rows * self.row_s / min(tasks, self.cores) * self.noise.uniform(0.9, 1.1)
        self.control.ran(ran, round(rows))
        self.control.decided(began + ran + 0.05)
        length = max(self.interval, ran + 0.05)
        self.waiting += self.arriving(began) * length - rows
        self.now = began + length

    @property
    def said(self) -> list[tuple[int, int]]:
        return [(change.before, change.after) for _, change in self.changes]


def world(arriving: Callable[[float], float], start: int = 2, most: int = 16, **how: Any) -> World:
    return World(JobParallelism(start, Autoscaler(max_parallelism=most, **QUICK), 5.0), arriving, **how)


def test_parallelism_follows_input_that_triples_and_falls_back() -> None:
    """1,200 rows a second are 1.2 tasks' work, so 2 tasks are busy 60 % of the time; three times as many need 6 at 70 %."""
    job = world(lambda t: 3_600 if 1_300 <= t < 1_900 else 1_200)
    job.run(300)
    assert job.said == []
    job.run(600)
    assert job.said
    assert all(before < after for before, after in job.said)
    assert 5 <= job.control.current <= 9
    assert job.waiting < 3_600 * 2 * job.interval, "it has caught up"
    job.run(900)
    assert 2 <= job.control.current <= 3
    assert len(job.said) <= 6


def test_the_change_says_why() -> None:
    job = world(lambda t: 3_600)
    job.run(300)
    text = str(job.changes[0][1])
    assert text.startswith("parallelism 2 → ")
    assert ": lag " in text
    assert "3,600 rows/s come in, " in text


@examples(40)
@given(
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(0, 16),
    st.lists(st.floats(0, 20_000), min_size=1, max_size=8),
    st.integers(0, 1 << 30),
    st.booleans(),
)
def test_it_stays_within_its_bounds_whatever_comes(
    start: int, least: int, more: int, rates: list[float], seed: int, knows_lag: bool
) -> None:
    scaler = Autoscaler(min_parallelism=least, max_parallelism=least + more, **QUICK)
    job = World(
        JobParallelism(start, scaler, 5.0), lambda t: rates[int(t // 120) % len(rates)], noise=random.Random(seed), cores=8,
        knows_lag=knows_lag,
    )  # fmt: skip
    job.run(1_500)
    assert {least <= tasks <= least + more for _, tasks in job.series} == {True}
    for before, (at, change) in zip([1_000.0, *(at for at, _ in job.changes)], job.changes, strict=False):
        assert at - before >= 30, "the first checkpoints behind a change are left out, and then a window is filled"
        if change.after < change.before:
            assert change.after >= change.before * 0.4 - 1e-6
            raised = [t for t, each in job.changes if t < at and each.after > each.before]
            assert not raised or at - raised[-1] >= 30


@examples(25)
@given(st.floats(10, 10_000), st.integers(1, 16), st.integers(0, 1 << 30))
def test_steady_input_comes_to_rest(rate: float, start: int, seed: int) -> None:
    """No flapping: with an input that does not change there is an end of changes, none of them taken back."""
    job = world(lambda _: rate, start=start, noise=random.Random(seed))
    job.run(9_000)  # a job that is far behind takes long checkpoints at first
    settled = len(job.changes)
    job.run(3_000)
    assert len(job.changes) == settled, job.said
    directions = [after > before for before, after in job.said]
    assert sum(a != b for a, b in pairwise(directions)) <= 1, job.said


def test_noise_around_the_target_changes_nothing() -> None:
    job = world(lambda t: 1_400 * random.Random(t).uniform(0.7, 1.25), start=2)
    job.run(3_000)
    assert job.said == []


def test_without_a_lag_the_busy_share_decides() -> None:
    job = world(lambda t: 6_000, knows_lag=False)
    job.run(600)
    assert job.control.current > 2
    assert all(change.seen.lag_s is None and "lag" not in str(change) for _, change in job.changes)


def test_tasks_that_bring_nothing_are_not_added_for_ever() -> None:
    """On two cores six tasks work as much as two: what the first raise did not bring a second would not either."""
    job = world(lambda _: 9_000, cores=2, most=64)
    job.run(2_000)
    assert len(job.said) == 1


def test_a_job_that_is_held_by_its_limit_of_rows_gets_no_more_tasks() -> None:
    job = world(lambda _: 3_000, most=64)
    job.most = 5_000  # a checkpoint; 15,000 come in meanwhile
    job.run(600)
    assert job.said == []


def test_no_more_is_made_of_idle_tasks() -> None:
    job = world(lambda _: 0, start=16)
    job.run(900)
    assert job.control.current == 1
    assert job.said[0] == (16, 7), "at most 60 % at once"


def test_time_without_anything_to_read_counts_as_idle() -> None:
    """Ten seconds of work a minute; between two checkpoints the source is looked at and has nothing."""
    control = JobParallelism(
        8, Autoscaler(max_parallelism=8, metrics_window="2 min", stabilization_interval="0 s"), 10.0
    )
    said = []
    for look in range(30):
        change = control.next_checkpoint(10.0 * look, 0)
        said += [] if change is None else [str(change)]
        if look % 6 == 0:
            control.ran(9.0, 1000)
            control.decided(10.0 * look + 9.5)
        else:
            control.idle()
    assert said[0].startswith("parallelism 8 → 4: lag 0 s, ")
    assert "tasks busy 15%" in said[0]


def test_what_was_dropped_does_not_count() -> None:
    control = JobParallelism(1, Autoscaler(max_parallelism=8, **QUICK))
    control.next_checkpoint(0.0, 0)
    control.ran(100.0, 10)
    control.dropped()
    control.next_checkpoint(100.0, 0)
    assert not control._loads


def test_without_an_autoscaler_nothing_changes() -> None:
    control = JobParallelism(3)
    assert control.next_checkpoint(0.0, 10**9) is None
    control.ran(1000.0, 1)
    control.decided(2000.0)
    assert control.next_checkpoint(3000.0, 10**9) is None
    assert control.current == 3


def load(cycle: float, run: float, rows: int, waiting: int | None, after: int | None) -> CheckpointLoad:
    return CheckpointLoad(
        cycle_s=cycle, run_s=run, taken_s=run, rows=rows, waiting=waiting, waiting_after=after
    )  # fmt: skip


def test_the_arithmetic() -> None:
    seen = Utilization.of([load(10, 5, 1000, 1000, 1500), load(10, 5, 1000, 1500, 2000)], interval_s=10, catch_up_s=10)
    assert seen.arriving == pytest.approx((2000 + 1000) / 20)
    assert seen.rate == pytest.approx(200)
    backlog = 2000 - 150 * 10
    assert seen.needed == pytest.approx((150 + backlog / 10) / 200)
    assert seen.busy == pytest.approx(0.5)
    assert seen.lag_s == pytest.approx(2000 / 150)
    assert seen.held
    scaler = Autoscaler(max_parallelism=100)
    assert scaler.wanted(4, seen) == 4, "it is limited, not slow"


def test_what_came_in_while_a_checkpoint_took_too_long_waits_too_long() -> None:
    """The job took 90 s for what was to take 5; what came in meanwhile is no checkpoint's part, and no reason for fewer tasks."""
    seen = Utilization.of([load(90, 89, 28_000, 31_000, 9_200)], interval_s=5, catch_up_s=20)
    assert seen.arriving == pytest.approx(6_200 / 90)
    assert Autoscaler(max_parallelism=8).wanted(8, seen) == 8
    assert seen.needed > 1


@pytest.mark.parametrize(
    ("needed", "wanted"), [(2.0, 12), (0.91, 6), (0.9, 4), (0.4, 4), (0.35, 2), (0.1, 2), (0.0, 2)]
)
def test_how_many_tasks(needed: float, wanted: int) -> None:
    seen = Utilization(needed=needed, busy=needed, held=False, rate=1, arriving=1, lag_s=None)
    assert Autoscaler(max_parallelism=100).wanted(4, seen) == wanted


def test_effect() -> None:
    assert is_effective((2, 1000), (4, 1100))
    assert not is_effective((2, 1000), (4, 1099))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_parallelism": 0}, {"max_parallelism": True}, {"max_parallelism": 2, "min_parallelism": 3}, {"utilization_max": 0.5},
        {"utilization_min": 0.8}, {"utilization_max": 1.5}, {"scale_down_max_factor": 0}, {"catch_up_duration": "0 s"},
    ],
)  # fmt: skip
def test_bounds_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        Autoscaler(**{"max_parallelism": 8, **wrong})
    assert caught.value.next


# --- settings --------------------------------------------------------------------------------------------------------


def made(own: Autoscaler | None = None, source: Any = None, sink: Any = None, **how: Any) -> Job:
    job = Job("scaled", autoscaler=own, **how)
    job.from_source(source or DatagenSource("n bigint", rate=10), name="in").sink_to(
        sink or FileSink("/tmp/out", format="json"), name="out"
    )
    return job


def test_settings_win_over_the_job_one_by_one() -> None:
    own = Autoscaler(max_parallelism=8, min_parallelism=2)
    assert autoscaler_of(made(own), load_settings()) == own
    scaler = autoscaler_of(
        made(own), load_settings(["autoscaler.max-parallelism=32", "job.autoscaler.metrics.window=5 s"])
    )
    assert scaler == Autoscaler(max_parallelism=32, min_parallelism=2, metrics_window="5 s")
    assert autoscaler_of(made(own), load_settings(["autoscaler.enabled=false"])) is None
    assert autoscaler_of(made(), load_settings()) is None


def test_settings_alone() -> None:
    given = load_settings(["job.autoscaler.enabled=true", "job.autoscaler.vertex.max-parallelism=4"])
    job = with_settings(made(), given)
    assert job.autoscaler == Autoscaler(max_parallelism=4)
    assert with_settings(job, given).autoscaler == job.autoscaler
    assert job.most_tasks == 4


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["autoscaler.enabled=true"], "without an upper bound"),
        (["autoscaler.max-parallelism=4"], "autoscaler.max-parallelism is set, and the job is not scaled"),
    ],
)
def test_settings_without_an_effect_are_refused(options: Sequence[str], what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        autoscaler_of(made(), load_settings(options))


def test_what_cannot_follow_its_input_is_refused() -> None:
    scaler = Autoscaler(max_parallelism=200)
    check_autoscaler(make_plan(made()), scaler)
    with pytest.raises(DefinitionError, match="input ends"):
        check_autoscaler(make_plan(made(source=FileSource("/tmp/in", format="text"))), scaler)
    with pytest.raises(DefinitionError, match="tasks always run"):
        check_autoscaler(make_plan(made(checkpoint_interval="0 s")), scaler)
    keyed = Job("keyed")
    keyed.from_source(DatagenSource("n bigint", rate=10), name="in").key_by("n").sum("n").sink_to(
        FileSink("/tmp/out", format="json"), name="out"
    )
    with pytest.raises(DefinitionError, match="above the 128 key groups"):
        check_autoscaler(make_plan(keyed), scaler)
    check_autoscaler(make_plan(keyed), Autoscaler(max_parallelism=128))


@pytest.mark.parametrize("parallelism", [1, 9])
def test_a_parallelism_outside_the_bounds_is_refused(parallelism: int) -> None:
    scaler = Autoscaler(min_parallelism=2, max_parallelism=4)
    check_autoscaler(make_plan(made(parallelism=3)), scaler)
    with pytest.raises(DefinitionError, match=f"a parallelism of {parallelism} is outside") as caught:
        check_autoscaler(make_plan(made(parallelism=parallelism)), scaler)
    assert "2 to 4" in caught.value.what
    assert "-p" in caught.value.next
