"""The test harness of operators with its state in runs: what drives an operator stays, only where its state is changes.

State is written and read again after every step, or after some of them, and may be merged at any of them.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from poundlock.operators.keyed.output import Batch, OutputChunk
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.hashing import groups_of, groups_of_task, hashes_of
from poundlock.state.inspect import StateReader
from poundlock.state.manifest import Manifest, ManifestChange, apply_change
from poundlock.state.operator_state import OperatorState
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import OpenRuns, RunFiles
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.spaces import in_spaces
from poundlock.state.task_state import TaskState
from poundlock.storage import LocalStorage
from poundlock.testing.harness import Element, Emitted, KeyedOperatorHarness, Snapshot

OPERATOR = "op"


class Store:
    """State of one operator in runs, at any parallelism, from checkpoint to checkpoint."""

    def __init__(self, folder: str, groups: int, parallelism: int, *, policy: MergePolicy | None = None) -> None:
        self.storage = LocalStorage(folder)
        self.files = RunFiles(self.storage, open_runs=OpenRuns())
        self.participant = StateParticipant(self.storage, job="job", epoch=1, policy=policy)
        self.manifest = in_spaces({}, {"stage": [OPERATOR]}, max_parallelism=groups)["stage"]
        self.parallelism = parallelism
        self.checkpoint = 0
        self.reports: list[PreparedState] = []
        self._tasks: dict[int, TaskState] = {}
        self._directive: StateDirective | None = None

    def operator(self, task: int, watermark: int, now: int) -> OperatorState:
        if self._directive is None:
            self.checkpoint += 1
            directive = self.participant.directive(
                self.manifest, checkpoint=self.checkpoint, parallelism=self.parallelism
            )
            self._directive = StateDirective.decode(directive.encode())
        if task not in self._tasks:
            attempt = f"a{self.checkpoint}.{task}.{random.getrandbits(32):x}"
            self._tasks[task] = TaskState(self._directive.task(task), self.files, attempt)
        return self._tasks[task].operator(OPERATOR, watermark=watermark, processing_time=now)

    def finish(self) -> None:
        """Write what was changed, decide on it, and forget all that was in memory."""
        if self._directive is None:
            return
        reports = [PreparedState.decode(task.finish().encode()) for task in self._tasks.values()]
        self.participant.verify(self._directive, reports)
        change, manifest = self.participant.apply(self._directive, reports)
        assert (
            apply_change(self.manifest, msgspec.json.decode(msgspec.json.encode(change), type=ManifestChange))
            == manifest
        )
        self.manifest = msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
        self.reports = reports
        self._tasks.clear()
        self._directive = None
        self.participant.sweep([self.manifest], below=self.checkpoint + 1)

    def rescale(self, parallelism: int) -> None:
        self.finish()
        self.parallelism = parallelism


class StoredState:
    """Takes the place of the key groups of a harness."""

    def __init__(self, harness: KeyedOperatorHarness) -> None:
        self.harness: Any = harness
        self.chance = random.Random(len(harness._key_groups * "x"))
        self._folder = tempfile.TemporaryDirectory()
        self.store = Store(
            self._folder.name,
            harness._key_groups if getattr(harness, "_keyed", True) else 32,
            len(harness._operators),
            policy=MergePolicy(fan_in=3, budget=2000),
        )

    def state(self, task: int) -> OperatorState:
        state = self.store.operator(task, self.harness._watermark, self.harness._now)
        return state

    def may_finish(self) -> None:
        if self.chance.random() < 0.6:
            self.store.finish()

    def elements(self, given: Sequence[Element]) -> Iterator[OutputChunk]:
        harness = self.harness
        batches: dict[tuple[int, int], list[tuple[Any, Element]]] = {}
        for element in given:
            for task, key in self.routes(element):
                batches.setdefault((task, element.side), []).append((key, element))
        for (task, side), rows in batches.items():
            batch = Batch(
                [key for key, _ in rows],
                [e.value for _, e in rows],
                [e.timestamp for _, e in rows],
                side=side,
            )
            yield from harness._operators[task].process(self.state(task), batch)

    def routes(self, element: Element) -> list[tuple[int, Any]]:
        harness = self.harness
        count = len(harness._operators)
        if getattr(harness, "_broadcasts", False) and element.side == 1:
            return [(task, None) for task in range(count)]
        if not getattr(harness, "_keyed", True):
            harness._turn += 1
            return [((harness._turn - 1) % count, None)]
        keys = getattr(harness, "_keys", [harness._key, harness._key])
        key = keys[element.side](element.value)
        group = int(groups_of(hashes_of([key]), harness._key_groups)[0])
        return [(group * count // harness._key_groups, key)]

    def advance(self, *, event: bool) -> Iterator[OutputChunk]:
        for task, operator in enumerate(self.harness._operators):
            state = self.state(task)
            if event:
                yield from operator.advance_watermark(state, self.harness._watermark)
            else:
                yield from operator.advance_processing_time(state, self.harness._now)


IN_MEMORY_ONLY = {
    # A broadcast record is worked on once a task, not once a key group.
    "test_every_key_group_sees_every_rule",
    "test_a_function_does_not_share_a_broadcast_record_with_other_groups",
    "test_broadcast_state_is_the_same_everywhere_whatever_is_rescaled",
    # The timers of windows of all keys follow from the windows, and are not listed.
    "test_a_window_that_begins_late_fires_for_its_elements_and_never_again",
    "test_the_end_of_the_input_leaves_the_clock_where_it_is",
    # A value that cannot be kept is refused at the next checkpoint, which may come before the test asks for one.
    "test_state_that_holds_itself",
}


def on_both_backends(metafunc: pytest.Metafunc) -> None:
    """Run a test of operators on groups in memory and on the store; what draws many examples does the latter when there is time."""
    if "state_backend" not in metafunc.fixturenames:
        return
    drawn = hasattr(metafunc.function, "hypothesis")
    backends = ["memory", pytest.param("store", marks=pytest.mark.torture) if drawn else "store"]
    if metafunc.function.__name__ in IN_MEMORY_ONLY:
        backends = ["memory"]
    metafunc.parametrize("state_backend", backends, indirect=True)


@pytest.fixture(autouse=True)
def state_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where harnesses keep their state."""
    backend: str = getattr(request, "param", "memory")
    if backend == "store":
        use_store(monkeypatch)
    return backend


def described_by(reader: StateReader) -> dict[str, Any]:
    """Return state as `operators.keyed.group.describe` gives it."""
    tables: dict[str, Any] = {}
    for entry in reader.entries(OPERATOR):
        tables.setdefault(entry.table, {"entries": []})["entries"].append(
            {"key": entry.key, "window": entry.window, "value": entry.value, "windowed": entry.windowed}
        )
    timers: dict[str, list[Any]] = {"event": [], "processing": []}
    for timer in reader.timers(OPERATOR):
        timers[timer.domain].append({"time": timer.time, "key": timer.key, "window": timer.window})
    return {"state": tables, "event_timers": timers["event"], "processing_timers": timers["processing"]}


def use_store(patch: pytest.MonkeyPatch) -> None:
    """Make every harness keep its state in runs."""
    harness: Any = KeyedOperatorHarness
    start = harness._start
    patch.setattr(os, "fsync", lambda handle: None)  # nothing here is about power failures

    def stored(self: Any) -> StoredState:
        if not hasattr(self, "_stored_state"):
            self._stored_state = StoredState(self)
        return self._stored_state  # type: ignore[no-any-return]

    def process_elements(self: Any, elements: Any) -> list[Emitted]:
        given = [e if isinstance(e, Element) else Element(*e) for e in elements]
        self._operator(0)
        out: list[Emitted] = self._run(stored(self).elements(given))
        stored(self).may_finish()
        return out

    def process_watermark(self: Any, watermark: int) -> list[Emitted]:
        before = self._watermark
        stored(self)
        for task in range(len(self._operators)):
            stored(self).state(task)  # judged by the watermark before
        self._watermark = max(before, watermark)
        out: list[Emitted] = self._run(stored(self).advance(event=True))
        stored(self).may_finish()
        return out

    def set_processing_time(self: Any, now: int) -> list[Emitted]:
        self._now = max(self._now, now)
        out: list[Emitted] = self._run(stored(self).advance(event=False))
        stored(self).may_finish()
        return out

    def snapshot(self: Any) -> Snapshot:
        kept = stored(self)
        kept.store.finish()
        return Snapshot(
            {0: msgspec.json.encode(kept.store.manifest), 1: kept.store.storage.root.encode()},
            self._watermark,
            self._now,
        )

    def restore(self: Any, snapshot: Snapshot, *, instances: int | None = None) -> None:
        count = len(self._operators) if instances is None else instances
        groups_of_task(0, count, self._key_groups) if getattr(self, "_keyed", True) else None
        kept = stored(self)
        kept.store.finish()
        self.close()
        self._watermark, self._now = snapshot.watermark, snapshot.processing_time
        if kept.store.storage.root.encode() != snapshot.groups[1]:
            kept.store.storage = LocalStorage(snapshot.groups[1].decode())
            kept.store.files = RunFiles(kept.store.storage)
            kept.store.participant = StateParticipant(kept.store.storage, job="other", epoch=1)
        kept.store.manifest = msgspec.json.decode(snapshot.groups[0], type=Manifest)
        kept.store.parallelism = count
        if not getattr(self, "_keyed", True):
            self._key_groups = count
        start(self, count)

    def described(self: Any) -> list[dict[str, Any]]:
        kept = stored(self)
        kept.store.finish()
        return [described_by(StateReader(kept.store.manifest, kept.store.files))]

    for function in (process_elements, process_watermark, set_processing_time, snapshot, restore):
        patch.setattr(harness, function.__name__, function)
    patch.setattr(harness, "_described", described)
    from poundlock.testing.process_harness import ProcessHarness

    patch.setattr(ProcessHarness, "restore", restore)
