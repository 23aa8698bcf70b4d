"""The suites that an author calls from tests of his own: one for sinks, one for split-planned sources."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poundlock.testing.conformance import sink_attempts, sink_checks, sink_crashes, source_checks
from poundlock.testing.conformance.children import Children
from poundlock.testing.conformance.report import ConformanceReport, run
from poundlock.testing.conformance.sink_rig import SinkRig, Subject
from poundlock.testing.conformance.source_rig import SourceRig, SourceSubject

if TYPE_CHECKING:
    import pyarrow as pa


_SINK_CHECKS = [*sink_checks.CHECKS, *sink_attempts.CHECKS, *sink_crashes.CHECKS]
SINK_CHECKS: Mapping[str, str] = {check.name: check.contract for check in _SINK_CHECKS}
"""The checks of sinks, name to what the contract says."""
SOURCE_CHECKS: Mapping[str, str] = {check.name: check.contract for check in source_checks.CHECKS}
"""The checks of sources, name to what the contract says."""


def sink_conformance(
    make: Callable[[Path], Any],
    *,
    read: Callable[[Any], Sequence[Any]],
    rows: Sequence[Mapping[str, Any]] | pa.RecordBatch | pa.Table,
    bad_rows: Sequence[Mapping[str, Any]] = (),
    second: Callable[[Any], Any] | None = None,
    orphans_found: bool = True,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Hold a sink to the contract of the checkpoint protocol, without Spark: coordinator, ledger, tasks that are killed.

    Args:
        make: makes the sink in a place where nothing is yet. It is given a new empty folder, whose name, of letters and
            digits, is as good as a name for a table or a topic. Called for each check.
        read: returns the rows that a reader of the sink sees, as they are in `rows`; in any order. Given the sink.
        rows: 12 or more rows that the sink can write, all of them unlike, as dicts of the columns' values or as Arrow.
        bad_rows: rows that it has to reject; without any the check is skipped.
        second: makes, from the sink, one for another job in the same place; default: the same sink.
        orphans_found: whether sweep finds what a task left that died after it had prepared; False where the other system
            cannot list it, or where nothing is left.
        only: names of checks to run; default all. See SINK_CHECKS.
        skip: names of checks to leave out, and why.

    Returns:
        What came of each check; a check that does not apply to the sink's kind is skipped and says so.

    Raises:
        ConformanceError: a check failed; the text says which, what was seen, and what the contract says.
        DefinitionError: what was given cannot be worked with.
    """
    subject = Subject(make, read, rows, bad_rows, second, orphans_found)
    with _children() as (folder, children):
        return check_sink(subject, folder, children, only, skip)


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
    subject = SourceSubject(make, rows, more, bad, patience_s, change)
    with _children() as (folder, children):
        return check_source(subject, folder, children, only, skip)


@contextmanager
def _children() -> Iterator[tuple[Path, Children]]:
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        with Children(folder / "children") as children:
            yield folder, children
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_sink(
    subject: Subject,
    folder: Path,
    children: Children,
    only: Iterable[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Do what `sink_conformance` does, with children and a folder that are there already."""
    first = SinkRig(subject, folder, children, "kind")
    return run(
        type(first.sink).__name__,
        _SINK_CHECKS,
        lambda check: SinkRig(subject, folder, children, check.name),
        kind=first.kind,
        only=only,
        skip=skip,
    )


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
