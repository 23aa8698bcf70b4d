"""What a job's own metrics add up to: over the tasks of a checkpoint, and over all decided checkpoints.

The sums so far stand in each decision. A checkpoint's part is added where it is decided, so what a failed attempt or a task that ran
twice counted is in no sum, and a restart goes on from the newest decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from poundlock.errors import DefinitionError, TerminalError
from poundlock.storage.json_record import typed

FORMAT = 1
MOST = 1000  # metrics of a job: each is in every decision
Combine = Literal["max", "min", "sum"]
ByOperator = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class GaugeValue:
    """A gauge: its value in the newest checkpoint in which a task set it, combined over its tasks."""

    value: float
    combine: Combine = "max"

    def with_task(self, other: GaugeValue) -> GaugeValue:
        """Return the value over one more task."""
        values = (self.value, other.value)
        combined = sum(values) if self.combine == "sum" else max(values) if self.combine == "max" else min(values)
        return GaugeValue(combined, self.combine)


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram.

    Args:
        bounds: the upper ends of its classes, rising; one more has no end.
        counts: how many values are in each class.
        sum: of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    def plus(self, other: HistogramValue) -> HistogramValue:
        """Return the sum of two with the same bounds."""
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return HistogramValue(self.bounds, counts, self.sum + other.sum)

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class UserMetrics:
    """Metrics by operator and name; `v` is the version of this form."""

    v: int = FORMAT
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    gauges: Mapping[str, Mapping[str, GaugeValue]] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, HistogramValue]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counters or self.gauges or self.histograms)

    @classmethod
    def from_json(cls, value: Any) -> UserMetrics:
        """Return what a record says.

        Raises:
            TerminalError: it is of a newer format.
            ValueError: it is damaged.
        """
        made = typed(value, cls)
        if made.v > FORMAT:
            raise TerminalError(
                f"the job's own metrics have format {made.v}; this version reads up to {FORMAT}",
                next="run the version of poundlock that wrote it, or a newer one",
            )
        return made


def over_tasks(parts: Iterable[UserMetrics]) -> UserMetrics:
    """Return what the tasks of one checkpoint come to.

    Raises:
        DefinitionError: tasks use one name for two kinds of metrics, or there are too many.
    """
    counters: dict[str, dict[str, int]] = {}
    gauges: dict[str, dict[str, GaugeValue]] = {}
    histograms: dict[str, dict[str, HistogramValue]] = {}
    kinds: dict[str, object] = {}
    for part in parts:
        for operator, name, count in _each(part.counters):
            _agree(kinds, name, "counter")
            of = counters.setdefault(operator, {})
            of[name] = of.get(name, 0) + count
        for operator, name, gauge in _each(part.gauges):
            _agree(kinds, name, ("gauge", gauge.combine))
            set_by = gauges.setdefault(operator, {})
            set_by[name] = set_by[name].with_task(gauge) if name in set_by else gauge
        for operator, name, spread in _each(part.histograms):
            _agree(kinds, name, ("histogram", spread.bounds))
            seen = histograms.setdefault(operator, {})
            seen[name] = seen[name].plus(spread) if name in seen else spread
    return _limited(UserMetrics(FORMAT, counters, gauges, histograms))


def after(before: UserMetrics | None, checkpoint: UserMetrics) -> UserMetrics | None:
    """Return the sums behind a checkpoint; None where the job has no metrics of its own.

    A histogram with other bounds than before begins again, and so does a name that is of another kind now.

    Raises:
        DefinitionError: there are too many.
    """
    if before is None or not before:
        return checkpoint or None
    kinds = {name: kind for kind, each in _kinds(checkpoint) for name in each}
    counters = {operator: dict(of) for operator, of in _kept(before.counters, kinds, "counters").items()}
    for operator, name, count in _each(checkpoint.counters):
        of = counters.setdefault(operator, {})
        of[name] = of.get(name, 0) + count
    gauges = {operator: dict(of) for operator, of in _kept(before.gauges, kinds, "gauges").items()}
    for operator, name, gauge in _each(checkpoint.gauges):
        gauges.setdefault(operator, {})[name] = gauge
    histograms = {operator: dict(of) for operator, of in _kept(before.histograms, kinds, "histograms").items()}
    for operator, name, spread in _each(checkpoint.histograms):
        seen = histograms.setdefault(operator, {})
        was = seen.get(name)
        seen[name] = was.plus(spread) if was is not None and was.bounds == spread.bounds else spread
    return _limited(UserMetrics(FORMAT, counters, gauges, histograms))


def plain_values(metrics: UserMetrics) -> dict[str, float]:
    """Return one number for each metric, as "operator.name"; of a histogram two, "….count" and "….sum"."""
    values: dict[str, float] = {f"{operator}.{name}": count for operator, name, count in _each(metrics.counters)}
    values |= {f"{operator}.{name}": gauge.value for operator, name, gauge in _each(metrics.gauges)}
    for operator, name, spread in _each(metrics.histograms):
        values |= {f"{operator}.{name}.count": spread.count, f"{operator}.{name}.sum": spread.sum}
    return values


def _each(metrics: ByOperator) -> Iterable[tuple[str, str, Any]]:
    return ((operator, name, value) for operator, of in metrics.items() for name, value in of.items())


def _kinds(metrics: UserMetrics) -> Iterable[tuple[str, set[str]]]:
    for kind, of in (
        ("counters", metrics.counters), ("gauges", metrics.gauges), ("histograms", metrics.histograms)
    ):  # fmt: skip
        yield kind, {name for _, name, _ in _each(of)}


def _kept(metrics: ByOperator, kinds: Mapping[str, str], kind: str) -> dict[str, dict[str, Any]]:
    """Return those metrics of a kind whose names are not another kind's now."""
    kept: dict[str, dict[str, Any]] = {}
    for operator, name, value in _each(metrics):
        if kinds.get(name, kind) == kind:
            kept.setdefault(operator, {})[name] = value
    return kept


def _agree(kinds: dict[str, object], name: str, kind: object) -> None:
    if kinds.setdefault(name, kind) != kind:
        raise DefinitionError(
            f"the metric {name!r} is a {_words(kinds[name])} in one function and a {_words(kind)} in another",
            next="give one of them another name",
        )


def _words(kind: object) -> str:
    return f"{kind[0]} with {kind[1]!r}" if isinstance(kind, tuple) else str(kind)


def _limited(metrics: UserMetrics) -> UserMetrics:
    count = sum(1 for of in (metrics.counters, metrics.gauges, metrics.histograms) for _ in _each(of))
    if count > MOST:
        raise DefinitionError(
            f"the job has {count} metrics of its own, and at most {MOST} are kept",
            next="let names not depend on data, such as a user's id: what has many values is a row for a sink",
        )
    return metrics
