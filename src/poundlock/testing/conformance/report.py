"""What a suite says: each check by name, the sentence of the contract it holds a connector to, and what came of it.

A check raises `Broken` with what it saw, or `Skipped` with why it does not apply; whatever else it raises is a failure too.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from poundlock.checkpoint.participant import Kind
from poundlock.errors import DefinitionError

PAGE = "docs/own-connector.md"
Rig = TypeVar("Rig")
Test = Callable[[Rig], None]
State = Literal["passed", "failed", "skipped"]


class Broken(AssertionError):
    """The connector does not do what the contract says."""


class Skipped(Exception):
    """The check says nothing about this connector; the text says why."""


@dataclass(frozen=True, slots=True)
class ContractCheck(Generic[Rig]):
    """One check.

    Args:
        name: what it is called in reports, in `only` and in `skip`.
        kinds: of sinks it applies to; None = to all.
    """

    name: str
    contract: str
    test: Test[Rig]
    kinds: frozenset[Kind] | None = None


class Checks(list[ContractCheck[Rig]]):
    """Checks in the order in which they run."""

    def add(self, name: str, contract: str, kinds: frozenset[Kind] | None = None) -> Callable[[Test[Rig]], Test[Rig]]:
        """Return what makes a function one of them; the arguments are those of `ContractCheck`."""

        def register(test: Test[Rig]) -> Test[Rig]:
            self.append(ContractCheck(name, contract, test, kinds))
            return test

        return register


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What came of a check."""

    check: str
    contract: str
    state: State
    detail: str = ""  # what was seen, or why it was skipped


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """What came of all checks."""

    subject: str
    outcomes: Sequence[CheckOutcome] = field(default_factory=tuple)

    def named(self, state: str) -> list[str]:
        """Return the names of the checks that passed, failed or were skipped."""
        return [outcome.check for outcome in self.outcomes if outcome.state == state]

    @property
    def passed(self) -> list[str]:
        """The names of the checks that passed."""
        return self.named("passed")

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return self.named("failed")

    @property
    def skipped(self) -> Mapping[str, str]:
        """Why which check was skipped."""
        return {outcome.check: outcome.detail for outcome in self.outcomes if outcome.state == "skipped"}

    def __str__(self) -> str:
        bad = [outcome for outcome in self.outcomes if outcome.state == "failed"]
        lines = [f"{self.subject}: {len(self.passed)} checks passed, {len(bad)} failed, {len(self.skipped)} skipped"]
        for outcome in bad:
            lines += ["", f"{outcome.check}: {outcome.detail}"]
            lines += [f"  contract: {outcome.contract}", f"  see: {PAGE}, row {outcome.check}"]
        return "\n".join(lines)


class ConformanceError(AssertionError):
    """Some checks failed; the text says which, what was seen and what the contract says."""

    def __init__(self, report: ConformanceReport) -> None:
        super().__init__(str(report))
        self.report = report


def run(
    subject: str,
    checks: Sequence[ContractCheck[Rig]],
    make: Callable[[ContractCheck[Rig]], Rig],
    *,
    kind: Kind | None = None,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Run checks, each with a rig of its own; return the report, or raise it where a check failed.

    Raises:
        ConformanceError: a check failed.
        DefinitionError: `only` or `skip` names a check that there is not.
    """
    wanted, left_out = None if only is None else set(only), dict(skip or {})
    names = {check.name for check in checks}
    for name in sorted({*(wanted or ()), *left_out} - names):
        raise DefinitionError(f"there is no check {name!r}", next=f"choose from {', '.join(sorted(names))}")
    outcomes = []
    for check in checks:
        state: State
        if wanted is not None and check.name not in wanted:
            continue
        if check.name in left_out:
            state, detail = "skipped", left_out[check.name]
        elif check.kinds is not None and kind is not None and kind not in check.kinds:
            state, detail = "skipped", f"a sink that is {kind.value} need not"
        else:
            state, detail = _try(check, make)
        outcomes.append(CheckOutcome(check.name, check.contract, state, detail))
    report = ConformanceReport(subject, tuple(outcomes))
    if report.failed:
        raise ConformanceError(report)
    return report


def _try(check: ContractCheck[Rig], make: Callable[[ContractCheck[Rig]], Rig]) -> tuple[State, str]:
    try:
        check.test(make(check))
    except Skipped as reason:
        return "skipped", str(reason)
    except Broken as broken:
        return "failed", str(broken)
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        return "failed", f"{type(error).__name__}: {error}\n{where}".rstrip()
    return "passed", ""


def freeze(value: Any) -> Any:
    """Return a value that can be counted: dicts and lists by what is in them, whatever their order of names."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), freeze(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def difference(
    seen: Iterable[Any], wanted: Iterable[Any], *, repeats: bool = False, losses: bool = False
) -> str | None:
    """Say how rows that are seen differ from those that are wanted; None if they do not.

    Args:
        repeats: whether a row may be there more often.
        losses: whether a row may be missing.
    """
    seen, wanted = list(seen), list(wanted)
    texts = {freeze(row): repr(row) for row in [*seen, *wanted]}
    have, want = Counter(map(freeze, seen)), Counter(map(freeze, wanted))
    faults = []
    for key, text in texts.items():
        if have[key] < want[key] and not losses:
            faults.append(
                f"{text} is missing" if not have[key] else f"{text} is there {have[key]} of {want[key]} times"
            )
        elif have[key] > want[key] and not want[key]:
            faults.append(f"{text} should not be there")
        elif have[key] > want[key] and not repeats:
            faults.append(f"{text} is there {have[key]} times")
    if not faults:
        return None
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    return f"{len(seen)} rows are visible of {len(wanted)} that should be: {'; '.join(faults[:3])}{more}"
