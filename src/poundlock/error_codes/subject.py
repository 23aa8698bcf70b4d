"""What a subject and a code are. The categories are those of the classes in `poundlock.errors`; 1 to 5 are their exit codes, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CATEGORIES = {
    1: ("failed", "A job that fails with it is started again as its restart strategy says. The exit code is 1."),
    2: (
        "definition",
        "The job, the command or the machine's set-up is wrong, which no restart mends. It comes before any data is read or written. The exit code is 2.",
    ),
    3: (
        "for now",
        "Something outside failed in a way that may pass. A job is started again as its restart strategy says, and goes on from its last "
        "checkpoint; nothing is lost. The exit code is 3.",
    ),
    4: ("a person decides", "A restart does not help: a person has to decide. The job ends. The exit code is 4."),
    5: (
        "taken over",
        "Another driver has taken over the checkpoint. This one ends and touches nothing more. The exit code is 5.",
    ),
    6: (
        "gone",
        "Data that the job still needs is no longer in the source. The job ends and skips nothing by itself. The exit code is 4.",
    ),
    7: (
        "outcome not known",
        "A commit was asked for, and whether it happened is not known. It is asked for again, and never taken back; a job that is started again "
        "begins with it. The exit code is 3.",
    ),
}
"""Name of a category, and what it says of restarts."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code of a subject.

    Args:
        category: of `CATEGORIES`.
        meaning: one or two sentences.
        causes: the usual ones, the most frequent first.
        do: what helps, in the order in which to try it.
    """

    category: int
    meaning: str
    causes: Sequence[str]
    do: Sequence[str]


@dataclass(frozen=True, slots=True)
class ErrorSubject:
    """What errors are of.

    Args:
        number: for ever; never given a second time.
        title: names it, as in a heading.
        codes: at most one for each category.
        modules: below poundlock; the longest prefix that fits an error's module wins.
        classes: names of error classes that are of this subject wherever they are raised.
        kinds: words that errors are raised with, which win over class and module.
    """

    number: int
    title: str
    codes: Sequence[ErrorCode]
    modules: Sequence[str] = ()
    classes: Sequence[str] = ()
    kinds: Sequence[str] = ()
