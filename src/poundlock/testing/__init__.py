"""For the tests of poundlock and of its users: a harness for keyed operators, suites for connectors, a real Kafka broker that comes and goes with the test.

Nothing here is imported by the rest of the package, and naming it loads no more than what is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.testing.audit import audit_output as audit_output
    from poundlock.testing.conformance import ConformanceError as ConformanceError
    from poundlock.testing.conformance import sink_conformance as sink_conformance
    from poundlock.testing.conformance import source_conformance as source_conformance
    from poundlock.testing.conformance import visible_rows as visible_rows
    from poundlock.testing.events import ReferenceEvents as ReferenceEvents
    from poundlock.testing.harness import Element as Element
    from poundlock.testing.harness import Emitted as Emitted
    from poundlock.testing.harness import KeyedOperatorHarness as KeyedOperatorHarness
    from poundlock.testing.harness import Snapshot as Snapshot
    from poundlock.testing.harness import Timer as Timer
    from poundlock.testing.harness import WindowHarness as WindowHarness
    from poundlock.testing.hdfs import EmbeddedHdfs as EmbeddedHdfs
    from poundlock.testing.minio import EmbeddedMinio as EmbeddedMinio
    from poundlock.testing.process_harness import ProcessHarness as ProcessHarness
    from poundlock.testing.watermarks import WatermarkHarness as WatermarkHarness

_MODULES = {
    "audit": ("audit_output",),
    "conformance": ("ConformanceError", "sink_conformance", "source_conformance", "visible_rows"),
    "events": ("ReferenceEvents",),
    "harness": ("Element", "Emitted", "KeyedOperatorHarness", "Snapshot", "Timer", "WindowHarness"),
    "hdfs": ("EmbeddedHdfs",),
    "minio": ("EmbeddedMinio",),
    "process_harness": ("ProcessHarness",),
    "watermarks": ("WatermarkHarness",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'poundlock.testing' has no attribute {name!r}")
    return getattr(import_module(f"poundlock.testing.{_MODULE_OF[name]}"), name)
