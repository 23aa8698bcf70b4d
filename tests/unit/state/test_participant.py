"""State seen from the driver: operators that come and go, what is verified, what is deleted, what a decision says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.state.decided_state import DecidedState
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.hashing import groups_of_task
from poundlock.state.inspect import StateReader
from poundlock.state.manifest import (
    Fragment,
    Manifest,
    ManifestChange,
    PartChange,
    RunFile,
    TimerBound,
    apply_change,
    clip,
    in_spaces,
    refuse_dropped,
    subtract,
)
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import RunFiles
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.runs.run import DamagedRunError
from poundlock.state.task_state import TaskState
from poundlock.storage import LocalStorage


class Job:
    """A job with operators "a" and "b" that count keys."""

    def __init__(self, folder: Path, *, groups: int = 8, epoch: int = 1, **policy: Any) -> None:
        self.storage = LocalStorage(str(folder))
        self.files = RunFiles(self.storage)
        self.participant = StateParticipant(self.storage, job="j", epoch=epoch, policy=MergePolicy(**policy))
        self.manifest = in_spaces({}, {"s": ["a", "b"]}, max_parallelism=groups)["s"]
        self.number = 0
        self.changes: list[ManifestChange] = []

    def has(self, *operators: str) -> None:
        """Start again with these."""
        known = {"s": self.manifest}
        self.manifest = in_spaces(known, {"s": operators}, max_parallelism=self.manifest.max_parallelism)["s"]

    def prepare(self, keys: list[Any], *, parallelism: int = 2) -> tuple[StateDirective, list[PreparedState]]:
        self.number += 1
        directive = self.participant.directive(self.manifest, checkpoint=self.number, parallelism=parallelism)
        reports = []
        for task in range(parallelism):
            state = TaskState(directive, task, self.files, f"t{task}")
            for name in self.manifest.operators:
                operator = state.operator(name, watermark=self.number, processing_time=100 + self.number)
                mine = [
                    key
                    for key in keys
                    if group(key, self.manifest)
                    in range(*groups_of_task(task, parallelism, self.manifest.max_parallelism))
                ]
                operator.declare("count", "value")
                operator.prefetch(mine)
                table = operator.table("count")
                for key in mine:
                    table[key] = table.get(key, 0) + 1
                    operator.event_timers.register(1000 + key, key)
            reports.append(state.finish())
        return directive, reports

    def checkpoint(self, keys: list[Any], *, parallelism: int = 2) -> Manifest:
        directive, reports = self.prepare(keys, parallelism=parallelism)
        self.participant.verify(directive, reports)
        change, self.manifest = self.participant.apply(directive, reports)
        self.changes.append(change)
        return self.manifest

    def counts(self, operator: str) -> dict[Any, int]:
        return {entry.key: entry.value for entry in StateReader(self.manifest, self.files).entries(operator)}

    def names(self) -> set[str]:
        return {entry.path for entry in self.storage.list("state")}


def group(key: Any, manifest: Manifest) -> int:
    from poundlock.state.hashing import groups_of, hashes_of

    return int(groups_of(hashes_of([key]), manifest.max_parallelism)[0])


def test_a_job_counts_on_at_any_parallelism(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for parallelism in (1, 8, 3, 2, 5):
        job.checkpoint(list(range(20)), parallelism=parallelism)
    assert job.counts("a") == job.counts("b") == dict.fromkeys(range(20), 5)
    assert job.manifest.next_timers("a") == (1000, None)
    assert job.manifest.next_timers("nobody") == (None, None)
    assert [timer.time for timer in StateReader(job.manifest, job.files).timers("a", 7)] == [1007]


def test_decisions_alone_give_the_manifest_again(tmp_path: Path) -> None:
    job = Job(tmp_path, fan_in=2)
    for _ in range(6):
        job.checkpoint([1, 2, 3])
    again = Manifest.empty(8)
    for change in job.changes:
        again = apply_change(again, msgspec.json.decode(msgspec.json.encode(change), type=ManifestChange))
    assert again == msgspec.structs.replace(job.manifest)
    whole = DecidedState.whole({"stage-1": again})
    assert DecidedState.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_operators_come_and_go(tmp_path: Path) -> None:
    job = Job(tmp_path, fan_in=2)
    job.checkpoint([1, 2])
    with pytest.raises(DefinitionError, match="state of operators that the job no longer has: b"):
        refuse_dropped({"s": job.manifest}, {"s": ["a", "c"]})
    job.has("a", "c")
    job.checkpoint([1, 3])
    assert job.counts("a") == {1: 2, 2: 1, 3: 1}
    assert job.counts("c") == {1: 1, 3: 1}
    # What was dropped does not come back under its name, and goes when runs are merged.
    job.has("a", "c", "b")
    assert job.counts("b") == {}
    for _ in range(4):
        job.checkpoint([1, 2, 3])
    dropped = 2
    assert all(s.operator != dropped for f in job.manifest.files for s in job.files.open(f).index.sections)
    assert job.counts("a") == {1: 6, 2: 5, 3: 5}


def test_max_parallelism_stays(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with pytest.raises(DefinitionError, match="has 8 key groups and the job asks for 16"):
        in_spaces({"s": job.manifest}, {"s": ["a", "b"]}, max_parallelism=16)
    with pytest.raises(DefinitionError, match="9 tasks share 8 key groups"):
        job.participant.directive(job.manifest, checkpoint=1, parallelism=9)


def test_what_was_not_asked_for_or_is_not_there_is_not_decided_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    directive, reports = job.prepare([1, 2, 3])
    job.participant.verify(directive, reports)
    job.participant.verify(directive, reports[:1])  # a task that had nothing to do may have said nothing
    with pytest.raises(TerminalError, match="did not ask for, or has twice"):
        job.participant.verify(directive, [*reports, reports[0]])
    with pytest.raises(TerminalError, match="did not ask for"):
        job.participant.verify(msgspec.structs.replace(directive, checkpoint=9), reports)
    written = next(report.file for report in reports if report.file is not None)
    job.storage.delete(written.name)
    with pytest.raises(DamagedRunError, match=f"{written.name} of a, b, written at checkpoint 1"):
        job.participant.verify(directive, reports)


def test_a_sweep_deletes_what_nothing_names_and_nothing_else(tmp_path: Path) -> None:
    job = Job(tmp_path, fan_in=2)
    before = job.checkpoint([1, 2, 3])
    after = job.checkpoint([1, 2, 3])
    decided = job.names()
    assert {f.name for f in before.files} | {f.name for f in after.files} == decided
    job.prepare([1])  # an attempt whose checkpoint was never decided
    orphans = job.names() - decided
    job.prepare([1])  # the next one, which is still being written
    running = job.names() - decided - orphans
    (tmp_path / "state" / "j" / "notes.txt").write_text("a person's")
    (tmp_path / "state" / "j" / "000000000001-000009-g00000-x.arrow").write_text("a later driver's")
    # While the outcome of the commit is not known, the version before is kept.
    assert job.participant.sweep([before, after], below=4) == len(orphans) > 0
    assert decided | running <= job.names()
    job.participant.sweep([after], below=4)
    assert {f.name for f in after.files} | running == {
        name for name in job.names() if not name.endswith("notes.txt") and "000009" not in name
    }
    assert len(job.names()) == len(after.files) + len(running) + 2
    assert job.participant.sweep([after], below=4) == 0


def test_a_new_epoch_deletes_what_the_one_before_left(tmp_path: Path) -> None:
    job = Job(tmp_path)
    kept = job.checkpoint([1])
    job.prepare([1])
    later = StateParticipant(job.storage, job="j", epoch=2)
    later.sweep([kept], below=0)
    assert job.names() == {file.name for file in kept.files}


def test_damage_is_found(tmp_path: Path) -> None:
    job = Job(tmp_path, fan_in=4)
    kept = [job.checkpoint([1, 2, 3]) for _ in range(3)]
    last = kept[2].files[-1]
    (tmp_path / last.name).write_bytes(b"short")
    with pytest.raises(DamagedRunError, match=f"{last.name} of a, b, .* has 5 bytes instead of {last.bytes}"):
        job.participant.check_files(kept[2])


def test_a_task_names_the_operators_of_a_damaged_file(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.checkpoint([1, 2, 3])
    file = job.manifest.files[0]
    whole = (tmp_path / file.name).read_bytes()
    (tmp_path / file.name).write_bytes(whole[:-1] + b"x")
    directive = job.participant.directive(job.manifest, checkpoint=2, parallelism=2)
    with pytest.raises(DamagedRunError, match=r"its digest differs; operators with state: a, b"):
        TaskState(directive, 0, RunFiles(job.storage), "x")


def test_values_of_other_versions_are_refused() -> None:
    with pytest.raises(TerminalError, match="the manifest of the state has format 2"):
        DecidedState.from_json(DecidedState.whole({"s": msgspec.structs.replace(Manifest.empty(8), v=2)}).to_json())
    with pytest.raises(ValueError, match="has no max_parallelism"):
        DecidedState.from_json({"v": 1, "manifest": {"s": {}}})
    with pytest.raises(ValueError, match=r"^change is not what it should be"):
        DecidedState.from_json({"v": 1, "change": "nothing"})


# --- the manifest -------------------------------------------------------------------------------------------------------

spans = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda s: (min(s), max(s)))


@given(st.lists(spans, max_size=4), st.lists(spans, max_size=4))
def test_ranges_without_ranges(some: list[Any], gone: list[Any]) -> None:
    left = subtract([span for span in some if span[0] < span[1]], gone)
    expected = [g for span in some for g in range(*span) if not any(g in range(*other) for other in gone)]
    assert sorted(g for span in left for g in range(*span)) == sorted(expected)


@given(st.lists(st.tuples(spans, st.lists(st.tuples(spans, st.sets(st.integers(1, 12))), max_size=2)), max_size=8))
def test_each_group_has_the_runs_that_its_changes_say(parts: list[Any]) -> None:
    manifest, model = Manifest.empty(20), [[] for _ in range(20)]
    for number, ((first, stop), removed) in enumerate(parts, 1):
        file = RunFile(
            name=f"f{number}", digest="", bytes=1, rows=1, checkpoint=number, first=first, stop=stop, id=number
        )
        gone = tuple((a, b, tuple(sorted(ids))) for (a, b), ids in removed)
        part = PartChange(first=first, stop=stop, file=file.name, spans=((first, stop),), removed=gone)
        manifest = apply_change(manifest, ManifestChange(checkpoint=number, added=(file,), parts=(part,)))
        for g in range(first, stop):
            dead = {i for a, b, ids in gone if a <= g < b for i in ids}
            model[g] = [i for i in model[g] if i not in dead] + [number]
        for g in range(20):
            [fragment] = clip(manifest.fragments, g, g + 1)
            assert list(fragment.runs) == model[g]
    assert [f.id for f in manifest.files] == sorted({i for runs in model for i in runs})
    edges = [fragment.first for fragment in manifest.fragments[1:]]
    assert edges == [g for g in range(1, 20) if model[g] != model[g - 1]]  # equal neighbours are one range


def test_the_manifest_of_many_groups_is_short(tmp_path: Path) -> None:
    job = Job(tmp_path, groups=32_768)
    for _ in range(3):
        job.checkpoint(list(range(50)), parallelism=4)
    assert len(job.manifest.fragments) <= 4
    assert len(msgspec.json.encode(job.manifest)) < 8000
    assert len(msgspec.json.encode(job.changes[-1])) < 4000


def test_timers_of_a_range_replace_those_that_were_known_of_it() -> None:
    def change(number: int, *bounds: TimerBound) -> ManifestChange:
        return ManifestChange(checkpoint=number, timers=bounds)

    manifest = apply_change(Manifest.empty(8), change(1, TimerBound(1, 0, 8, 5, None), TimerBound(2, 0, 8, 7, 9)))
    manifest = apply_change(manifest, change(2, TimerBound(1, 2, 4, None, 3)))
    assert manifest.timers == (
        TimerBound(1, 0, 2, 5, None),
        TimerBound(1, 2, 4, None, 3),
        TimerBound(1, 4, 8, 5, None),
        TimerBound(2, 0, 8, 7, 9),
    )
    assert apply_change(manifest, change(3, TimerBound(1, 0, 8, None, None))).timers == (TimerBound(2, 0, 8, 7, 9),)
    assert clip([Fragment(0, 4, (1,)), Fragment(4, 8, ())], 3, 5) == [Fragment(3, 4, (1,)), Fragment(4, 5, ())]
