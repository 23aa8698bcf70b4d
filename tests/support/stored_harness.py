"""The test harness of operators with its state written and read again between steps, and merged whenever that can be.

What an operator gives must not depend on when its state is written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from poundlock.operators.keyed.output import OutputChunk
from poundlock.state.runs.merge import MergePolicy
from poundlock.testing.harness import Emitted, KeyedOperatorHarness

WRITTEN_LATE_ONLY = {
    # A value that cannot be kept is refused at the next checkpoint, which may come before the test asks for one.
    "test_state_that_holds_itself",
}


def on_both_backends(metafunc: pytest.Metafunc) -> None:
    """Run a test with state that is written when it asks, and between its steps; what draws examples does the latter when there is time."""
    if "state_backend" not in metafunc.fixturenames:
        return
    drawn = hasattr(metafunc.function, "hypothesis")
    ways = ["kept", pytest.param("written", marks=pytest.mark.torture) if drawn else "written"]
    if metafunc.function.__name__ in WRITTEN_LATE_ONLY:
        ways = ["kept"]
    metafunc.parametrize("state_backend", ways, indirect=True)


@pytest.fixture(autouse=True)
def state_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When harnesses write their state."""
    way: str = getattr(request, "param", "kept")
    if way == "written":
        write_often(monkeypatch)
    return way


def write_often(patch: pytest.MonkeyPatch) -> None:
    """Make every harness write its state after more than every second step, in runs that are merged soon."""
    harness: Any = KeyedOperatorHarness
    start, run = harness.__init__, harness._run
    chance = random.Random(8)

    def started(self: Any, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        self._state.participant._policy = MergePolicy(fan_in=3, budget=2000)

    def ran(self: Any, chunks: Iterator[OutputChunk]) -> list[Emitted]:
        out: list[Emitted] = run(self, chunks)
        if chance.random() < 0.6:
            self._state.write()
        return out

    patch.setattr(harness, "__init__", started)
    patch.setattr(harness, "_run", ran)
