"""The suite for split-planned sources: what an author calls from a test of his own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock.testing.conformance import source_checks
from poundlock.testing.conformance.children import Children
from poundlock.testing.conformance.report import ConformanceReport, run
from poundlock.testing.conformance.source_rig import SourceRig, SourceSubject

SOURCE_CHECKS: Mapping[str, str] = {check.name: check.contract for check in source_checks.CHECKS}
"""The checks, name to what the contract says."""


def source_conformance(
    make: Callable[[Path], Any],
    *,
    rows: Sequence[Mapping[str, Any]] | Callable[[Any], Sequence[Mapping[str, Any]]],
    more: Callable[[Any], Sequence[Mapping[str, Any]]] | None = None,
    bad: int = 0,
    change: Callable[[Any], None] | None = None,
    patience_s: float = 0.0,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Hold a split-planned source to its contract, without Spark: planned here, read in processes of their own.

    Args:
        make: makes the source, and what it reads, in a place of its own. It is given a new empty folder, whose name, of
            letters and digits, is as good as a name for a table. Called for each check.
        rows: the rows that are there, or a function that returns them, given the source.
        more: adds rows to what the source reads, and returns them; given the source. None where nothing can be added.
        bad: how many of the records that are there, or added, cannot be decoded.
        change: changes, or deletes, some of the rows that are there, by whatever means the other system has; given the
            source. A source that declares its replay as "exact" must then give the same rows, or refuse.
        patience_s: how long to wait for rows that come by themselves, in seconds.
        only: names of checks to run; default all. See SOURCE_CHECKS.
        skip: names of checks to leave out, and why.

    Returns:
        What came of each check.

    Raises:
        ConformanceError: a check failed; the text says which, what was seen, and what the contract says.
        DefinitionError: what was given cannot be worked with.
    """
    subject = SourceSubject.of(make, rows, more, bad, patience_s, change)
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        with Children(folder / "children") as children:
            return check_source(subject, folder, children, only, skip)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_source(
    subject: SourceSubject,
    folder: Path,
    children: Children,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Do what `source_conformance` does, with children and a folder that are there already."""
    checks = source_checks.CHECKS
    return run(
        "the source", checks, lambda check: SourceRig(subject, folder, children, check.name), only=only, skip=skip
    )
