"""The suite for sinks: what an author calls from a test of his own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poundlock.testing.conformance import sink_attempts, sink_checks, sink_crashes
from poundlock.testing.conformance.children import Children
from poundlock.testing.conformance.report import ConformanceReport, ContractCheck, run
from poundlock.testing.conformance.sink_rig import SinkRig, Subject

if TYPE_CHECKING:
    import pyarrow as pa


_CHECKS: Sequence[ContractCheck[SinkRig]] = [*sink_checks.CHECKS, *sink_attempts.CHECKS, *sink_crashes.CHECKS]
SINK_CHECKS: Mapping[str, str] = {check.name: check.contract for check in _CHECKS}
"""The checks, name to what the contract says."""


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
    subject = Subject.of(make, read, rows, bad_rows, second, orphans_found)
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        with Children(folder / "children") as children:
            return check_sink(subject, folder, children, only, skip)
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
        _CHECKS,
        lambda check: SinkRig(subject, folder, children, check.name),
        kind=first.kind,
        only=only,
        skip=skip,
    )
