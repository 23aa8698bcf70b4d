"""Metrics that a user's functions keep: counters, gauges and histograms, reachable wherever a task runs a function.

A metric belongs to the operator whose function is running. `counter("bad")` beside a function, or in it, is a name for whatever
operator runs at the moment; a metric group is that of one operator. Each attempt of a task counts from nothing, and reports once.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import index
from typing import Any, Protocol, TypeVar

from poundlock.errors import DefinitionError
from poundlock.metrics.user_totals import MOST, Combine, GaugeValue, HistogramValue, UserMetrics

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper ends of a histogram's classes where none are given: those of Prometheus's own libraries."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_TAKEN = ("_total", "_bucket", "_count", "_sum", "_created", "_info")
T = TypeVar("T")


class Counter(Protocol):
    """A number that only grows: how many rows were bad, how many bytes were sent."""

    def inc(self, n: int = 1) -> None:
        """Add to it. Raises DefinitionError: `n` is negative or no whole number."""


class Gauge(Protocol):
    """A value that goes up and down. What the tasks of a checkpoint set last is combined: the greatest, the least, or the sum."""

    def set(self, value: float) -> None:
        """Give it a value. Raises DefinitionError: it is no finite number."""


class Histogram(Protocol):
    """How values are spread over classes."""

    def update(self, value: float) -> None:
        """Add a value. Raises DefinitionError: it is no finite number."""


class MetricGroup:
    """The metrics of one operator in one attempt of a task. The same name gives the same metric.

    Used by one thread, as a function is; it does not travel to other processes.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, _Count | _Value | _Spread] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of a name; in Prometheus `poundlock_user_NAME_total`. Raises DefinitionError: the name is another metric's, or none."""
        return self._get(name, _Count, _Count)

    def gauge(self, name: str, combine: Combine = "max") -> Gauge:
        """Return the gauge of a name; in Prometheus `poundlock_user_NAME`. Raises as `counter`.

        Args:
            combine: what the values of several tasks come to: "max", "min" or "sum".
        """
        _check_combine(combine)
        return self._get(name, _Value, lambda: _Value(combine))

    def histogram(self, name: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """Return the histogram of a name; in Prometheus `poundlock_user_NAME_bucket` and so on. Raises as `counter`.

        Args:
            bounds: the upper ends of its classes, rising; what is larger than the last is in a class of its own.
        """
        return self._get(name, _Spread, lambda: _Spread(_checked_bounds(bounds)))

    def _get(self, name: str, kind: type[T], make: Callable[[], _Count | _Value | _Spread]) -> T:
        known = self._metrics.get(name)
        if known is None:
            _check_name(name)
            if len(self._metrics) >= MOST:
                raise DefinitionError(
                    f"a function has more than {MOST} metrics of its own; {name!r} is one too many",
                    next="let names not depend on data, such as a user's id: what has many values is a row for a sink",
                )
            known = self._metrics[name] = make()
        if not isinstance(known, kind):
            raise DefinitionError(f"the metric {name!r} is of another kind already", next="give it another name")
        return known

    def counts(self) -> dict[str, int]:
        """Return the counters, those that were never counted up too."""
        return {name: each.total for name, each in self._metrics.items() if isinstance(each, _Count)}

    def values(self) -> dict[str, GaugeValue]:
        """Return the gauges that were set."""
        return {
            name: GaugeValue(each.value, each.combine)
            for name, each in self._metrics.items()
            if isinstance(each, _Value) and each.value is not None
        }

    def spreads(self) -> dict[str, HistogramValue]:
        """Return the histograms that have values."""
        return {
            name: HistogramValue(each.bounds, tuple(each.counts), each.sum)
            for name, each in self._metrics.items()
            if isinstance(each, _Spread) and any(each.counts)
        }


class TaskMetrics:
    """The metrics of all operators of one attempt of a task."""

    def __init__(self) -> None:
        self._groups: dict[str, MetricGroup] = {}

    def group(self, operator: str) -> MetricGroup:
        """Return the metrics of an operator."""
        known = self._groups.get(operator)
        if known is None:
            known = self._groups[operator] = MetricGroup()
        return known

    def reported(self) -> UserMetrics:
        """Return what the attempt has counted."""
        counts, values, spreads = (
            {operator: of for operator, group in self._groups.items() if (of := look(group))}
            for look in (MetricGroup.counts, MetricGroup.values, MetricGroup.spreads)
        )
        return UserMetrics(counters=counts, gauges=values, histograms=spreads)  # type: ignore[arg-type]


# --- the operator that runs at the moment ------------------------------------------------------------------------------


class _Running(threading.local):
    group: MetricGroup | None = None


_running = _Running()


def activate(group: MetricGroup | None) -> MetricGroup | None:
    """Have this thread's metrics be those of a group from now on; return whose they were, for whoever puts that back."""
    before, _running.group = _running.group, group
    return before


@contextmanager
def active(group: MetricGroup) -> Iterator[MetricGroup]:
    """Have this thread's metrics be those of a group while the block runs."""
    before = activate(group)
    try:
        yield group
    finally:
        activate(before)


def current_group(what: str = "a metric group") -> MetricGroup:
    """Return the metrics of the operator that runs in this thread.

    Raises:
        DefinitionError: none does.
    """
    if _running.group is None:
        raise DefinitionError(
            f"{what} was asked for where no function of a job's task runs in this thread",
            next="use it in a function of map, filter, process and the like, not in one that Spark runs; in a test: "
            "with poundlock.testing.collected_metrics():",
        )
    return _running.group


class _Named:
    """A name for the metric of whatever operator runs; it travels with a function."""

    def __init__(self, name: str, *given: Any) -> None:
        _check_name(name)
        self.name, self._given = name, given

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_').lower()}({self.name!r})"


class _NamedCounter(_Named):
    def inc(self, n: int = 1) -> None:
        current_group(f"counter {self.name!r}").counter(self.name).inc(n)


class _NamedGauge(_Named):
    def set(self, value: float) -> None:
        current_group(f"gauge {self.name!r}").gauge(self.name, *self._given).set(value)


class _NamedHistogram(_Named):
    def update(self, value: float) -> None:
        current_group(f"histogram {self.name!r}").histogram(self.name, *self._given).update(value)


def counter(name: str) -> Counter:
    """Return a counter of the operator that runs when it is counted up; make it beside a function or in it. See `MetricGroup.counter`."""
    return _NamedCounter(name)


def gauge(name: str, combine: Combine = "max") -> Gauge:
    """Return a gauge of the operator that runs when it is set; see `MetricGroup.gauge`."""
    _check_combine(combine)
    return _NamedGauge(name, combine)


def histogram(name: str, bounds: Sequence[float] = SECONDS) -> Histogram:
    """Return a histogram of the operator that runs when it gets a value; see `MetricGroup.histogram`."""
    return _NamedHistogram(name, _checked_bounds(bounds))


# --- what an attempt keeps ---------------------------------------------------------------------------------------------


class _Count:
    def __init__(self) -> None:
        self.total = 0

    def inc(self, n: int = 1) -> None:
        if type(n) is not int:
            n = _whole(n)
        if n < 0:
            raise DefinitionError(f"a counter was counted up by {n}", next="use a gauge for what goes down, too")
        self.total += n


class _Value:
    def __init__(self, combine: Combine) -> None:
        self.combine, self.value = combine, None

    combine: Combine
    value: float | None

    def set(self, value: float) -> None:
        self.value = _finite(value)


class _Spread:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def update(self, value: float) -> None:
        value = _finite(value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def _whole(n: Any) -> int:
    try:
        return index(n)
    except TypeError:
        raise DefinitionError(f"a counter was counted up by {n!r}", next="give a whole number") from None


def _finite(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DefinitionError(f"a metric was given {value!r}", next="give a finite number") from None
    return number


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is no name of a metric", next="use letters, digits and _, at most 100, a letter first"
        )
    for end in _TAKEN:
        if name.endswith(end):
            raise DefinitionError(
                f"the metric {name!r} ends in {end}, which Prometheus adds itself",
                next=f"call it {name.removesuffix(end)!r}",
            )


def _check_combine(combine: Any) -> None:
    if combine not in ("max", "min", "sum"):
        raise DefinitionError(f"combine={combine!r} is not known", next='give "max", "min" or "sum"')


def _checked_bounds(bounds: Sequence[float]) -> tuple[float, ...]:
    made = tuple(_finite(bound) for bound in bounds)
    if not made or any(low >= high for low, high in pairwise(made)):
        raise DefinitionError(f"bounds={bounds!r} do not rise", next="give rising numbers, such as (0.1, 1, 10)")
    if len(made) > 100:
        raise DefinitionError(f"a histogram has {len(made)} bounds, and at most 100", next="give fewer bounds")
    return made
