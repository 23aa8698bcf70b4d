"""For the tests of poundlock and of its users: a harness for keyed operators, suites for connectors, a real Kafka broker that comes and goes with the test.

Nothing here is imported by the rest of the package, and naming it loads no more than what is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.testing.conformance import sink_conformance as sink_conformance
    from poundlock.testing.conformance import source_conformance as source_conformance
    from poundlock.testing.harness import Element as Element
    from poundlock.testing.harness import Emitted as Emitted
    from poundlock.testing.harness import KeyedOperatorHarness as KeyedOperatorHarness
    from poundlock.testing.harness import Snapshot as Snapshot
    from poundlock.testing.harness import Timer as Timer
    from poundlock.testing.process_harness import ProcessHarness as ProcessHarness
    from poundlock.testing.window_harness import WindowHarness as WindowHarness

_NAMES = {
    "Element": "harness",
    "Emitted": "harness",
    "KeyedOperatorHarness": "harness",
    "ProcessHarness": "process_harness",
    "Snapshot": "harness",
    "Timer": "harness",
    "WindowHarness": "window_harness",
    "sink_conformance": "conformance",
    "source_conformance": "conformance",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'poundlock.testing' has no attribute {name!r}")
    return getattr(import_module(f"poundlock.testing.{_NAMES[name]}"), name)
