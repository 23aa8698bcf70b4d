"""Suites that an author of a sink or a source runs from his own tests, without Spark and without a JVM."""

from poundlock.testing.conformance.reading import visible_rows
from poundlock.testing.conformance.report import ConformanceError, ConformanceReport
from poundlock.testing.conformance.suites import SINK_CHECKS, SOURCE_CHECKS, sink_conformance, source_conformance

__all__ = [
    "SINK_CHECKS",
    "SOURCE_CHECKS",
    "ConformanceError",
    "ConformanceReport",
    "sink_conformance",
    "source_conformance",
    "visible_rows",
]
