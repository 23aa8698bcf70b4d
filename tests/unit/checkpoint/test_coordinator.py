"""The coordinator on a local disk: replays, other histories, sinks that come and go, failures around a decision."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.audit.fsck import FsckReport, fsck
from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.committer import Retry
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Counts,
    Finding,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.errors import CommitUnknown, DefinitionError, FencedError, TerminalError, TransientError
from poundlock.storage import LocalStorage, Storage
from poundlock.values import ManualClock
from support.forgetful_ledger import ForgetfulLedger


class PartSink:
    """Hidden pieces gather until `roll_ms` have passed; then one rename each makes them visible."""

    kind = Kind.TRANSACTIONAL

    def __init__(self, storage: Storage, roll_ms: int = 0) -> None:
        self.storage, self.roll_ms = storage, roll_ms
        self.failures: list[Exception] = []
        self.aborts: Aborted | None = None
        self.verify_fails: Exception | None = None

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError

    def directive(self, state: JSON) -> JSON:
        return {"pending": len(state.get("pending", []))}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        if self.verify_fails:
            raise self.verify_fails

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        pending = [*state.get("pending", []), *([item.payload["piece"], now_ms] for item in prepared)]
        due = [p for p in pending if occasion is Occasion.END or now_ms - p[1] >= self.roll_ms]
        rest = [p for p in pending if p not in due]
        return Staged({"v": 1, "pending": rest}, [{"v": 1, "piece": p[0], "from": f".{p[0]}", "bytes": 5} for p in due])

    def next_roll_ms(self, state: JSON) -> int | None:
        return min((since + self.roll_ms for _, since in state.get("pending", [])), default=None)

    def commit(self, committable: JSON) -> Committed | Aborted:
        if self.failures:
            raise self.failures.pop(0)
        if self.aborts:
            return self.aborts
        hidden, shown = committable["from"], committable["piece"]
        if self.storage.stat(shown) is None:
            try:
                self.storage.rename(hidden, shown)
            except FileNotFoundError:
                raise TerminalError(f"{hidden} is gone") from None
        return Committed({"path": shown})

    def abort(self, prepared: Prepared) -> None:
        self.storage.delete(f".{prepared.payload['piece']}")

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        keep = {f".{piece}" for piece, _ in state.get("pending", [])}
        found = [
            Orphan(e.path, e.bytes, e.modified_ms)
            for e in self.storage.list()
            if e.path.startswith(".") and e.path not in keep
        ]
        if remove:
            check()
            for orphan in found:
                self.storage.delete(orphan.path)
        return found

    def describe_json(self) -> JSON:
        return {"v": 1, "kind": "pieces", "root": self.storage.root}

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        entry = self.storage.stat(committable["piece"])
        if entry is None:
            hidden = self.storage.stat(f".{committable['piece']}")
            return [Finding("pending" if hidden else "missing", committable["piece"], committable["bytes"])]
        if entry.bytes != committable["bytes"]:
            return [Finding("size", committable["piece"], committable["bytes"], entry.bytes)]
        return []

    def inspect_state(self, state: JSON) -> Sequence[Finding]:
        return [
            Finding("missing", f".{piece}")
            for piece, _ in state.get("pending", [])
            if self.storage.stat(f".{piece}") is None
        ]

    def shown(self) -> list[str]:
        return sorted(e.path for e in self.storage.list() if not e.path.startswith("."))

    def hidden(self) -> list[str]:
        return sorted(e.path for e in self.storage.list() if e.path.startswith("."))


class Bench:
    """A job with sinks on one store; `start` is a new life of its driver."""

    def __init__(self, folder: Path, roll_ms: int = 0, open_folder: Callable[[str], Storage] = LocalStorage) -> None:
        self.checkpoint = open_folder(str(folder / "checkpoint"))
        self.clock = ManualClock(1000)
        self.sink = PartSink(open_folder(str(folder / "out")), roll_ms)
        self.sinks: dict[str, PartSink] = {"out": self.sink}
        self.pauses: list[float] = []
        self.pieces = 0
        self.epoch: Epoch | None = None

    def start(self, ledger: type[Ledger] = Ledger) -> Coordinator:
        self.stop()
        self.epoch = Epoch.claim(
            self.checkpoint, clock=self.clock, sinks={name: sink.describe_json() for name, sink in self.sinks.items()}
        )
        coordinator = Coordinator(
            identity=open_identity(self.checkpoint, name="bench", clock=self.clock),
            epoch=self.epoch,
            ledger=ledger(self.checkpoint),
            participants=self.sinks,
            clock=self.clock,
            retry=Retry(attempts=4, first_s=0.1, most_s=0.3),
            sleep=self.pauses.append,
        )
        self.recovery = coordinator.recover()
        return coordinator

    def stop(self) -> None:
        if self.epoch is not None:
            self.epoch.release()
            self.epoch = None

    def tasks(self, directive: SinkDirectives, *, sinks: Sequence[str] = ("out",), written: int = 1) -> TaskResults:
        self.directive = directive
        if directive.decided:
            return TaskResults(prepared=[], counts={})
        prepared = []
        for name in sinks:
            self.pieces += 1
            self.sinks[name].storage.create_exclusive(f".p{self.pieces}", b"12345")
            prepared.append(Prepared(name, 0, {"v": 1, "piece": f"p{self.pieces}", "rows": 1}))
        return TaskResults(
            prepared=prepared, counts={name: Counts(read=1, written=written) for name in sinks}, rows_read={"s": 1}
        )

    def take(self, coordinator: Coordinator, n: int, **options: Any) -> Any:
        span = {"s": SourceRange({"o": n} if n else None, {"o": n + 1}, {"topic": "id"})}
        return coordinator.checkpoint(n, span, lambda directive: self.tasks(directive, **options))

    def records(self) -> list[tuple[int, str, int]]:
        return [(record.number, record.occasion, record.checkpoint) for record in Ledger(self.checkpoint)]


def in_memory(folder: str) -> Storage:
    """Return a folder of a store in memory, whose puts are conditional as Google's and Microsoft's are."""
    from poundlock.storage.objects import open_objects

    return open_objects(f"memory://{folder.replace('/', '-').strip('-')}/job")


@pytest.fixture(params=["local", "objects"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "objects":
        pytest.importorskip("obstore")
    made = Bench(tmp_path, open_folder=LocalStorage if request.param == "local" else in_memory)
    yield made
    made.stop()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Bench]:
    """A bench on a local disk, where a living driver has a lock."""
    made = Bench(tmp_path)
    yield made
    made.stop()


def test_a_checkpoint_becomes_visible_and_is_recorded(bench: Bench) -> None:
    coordinator = bench.start()
    assert bench.recovery.newest is None
    assert bench.recovery.checkpoint == -1
    outcome = bench.take(coordinator, 0)
    assert bench.sink.shown() == ["p1"]
    assert not outcome.replayed
    assert outcome.committed == {"out": [{"path": "p1"}]}
    assert outcome.decision.sources["s"] == SourceRange(None, {"o": 1}, {"topic": "id"}, 1)
    assert outcome.decision.sinks["out"].counts == Counts(read=1, written=1)
    assert bench.records() == [(0, "start", -1), (1, "checkpoint", 0)]
    assert set(outcome.durations_ms) == {"run", "verify", "decide", "commit"}


def test_the_directive_is_small_json_and_says_what_is_pending(tmp_path: Path) -> None:
    bench = Bench(tmp_path, roll_ms=60_000)
    coordinator = bench.start()
    bench.take(coordinator, 0)
    directive = coordinator.begin(1)
    assert directive == SinkDirectives(
        checkpoint=1, epoch=1, started_ms=1000, decided=False, sinks={"out": {"pending": 1}}
    )
    assert coordinator.begin(0).decided
    assert coordinator.begin(0).sinks == {}
    bench.stop()


def test_a_redelivered_batch_is_read_and_not_written(bench: Bench) -> None:
    bench.take(bench.start(), 0)
    coordinator = bench.start()
    assert bench.recovery.checkpoint == 0
    assert bench.recovery.sources["s"].end == {"o": 1}
    outcome = bench.take(coordinator, 0)
    assert bench.directive.decided
    assert outcome.replayed
    assert outcome.decision.occasion == "checkpoint"
    assert bench.sink.shown() == ["p1"]
    assert [kind for _, kind, _ in bench.records()] == ["start", "checkpoint", "start"]


def test_older_batches_come_again_too(bench: Bench) -> None:
    coordinator = bench.start()
    for n in range(4):
        bench.take(coordinator, n)
    coordinator = bench.start()
    for n in (1, 2, 3):
        assert bench.take(coordinator, n).decision.checkpoint == n
    assert not bench.take(coordinator, 4).replayed
    assert bench.sink.shown() == ["p1", "p2", "p3", "p4", "p5"]


def test_batch_numbers_may_have_gaps_but_not_be_made_up(bench: Bench) -> None:
    coordinator = bench.start()
    bench.take(coordinator, 0)
    coordinator.checkpoint(5, {"s": SourceRange({"o": 1}, {"o": 2})}, bench.tasks)
    with pytest.raises(TerminalError, match="checkpoint 3 of another history"):
        coordinator.checkpoint(3, {"s": SourceRange({"o": 1}, {"o": 2})}, bench.tasks)


@pytest.mark.parametrize(
    "delivered",
    [
        {"s": SourceRange(None, {"o": 2})},
        {"s": SourceRange({"o": 0}, {"o": 1})},
        {"other": SourceRange(None, {"o": 1})},
        {},
    ],
)
def test_a_redelivered_batch_of_another_history_stops_the_job(
    bench: Bench, delivered: Mapping[str, SourceRange]
) -> None:
    bench.take(bench.start(), 0)
    coordinator = bench.start()
    with pytest.raises(TerminalError, match="of another history") as caught:
        coordinator.checkpoint(0, delivered, bench.tasks)
    assert caught.value.job == "bench"
    assert caught.value.checkpoint == 0


def test_a_source_that_was_added_may_take_part_in_a_replay_with_nothing(bench: Bench) -> None:
    bench.take(bench.start(), 0)
    spans = {"s": SourceRange(None, {"o": 1}), "new": SourceRange({"o": 7}, {"o": 7})}
    assert bench.start().checkpoint(0, spans, bench.tasks).replayed


def test_a_new_batch_must_go_on_where_the_last_ended(bench: Bench) -> None:
    coordinator = bench.start()
    bench.take(coordinator, 0)
    with pytest.raises(TerminalError, match=r"ended at .* and goes on at"):
        coordinator.checkpoint(1, {"s": SourceRange({"o": 4}, {"o": 5})}, bench.tasks)
    assert bench.sink.hidden() == []


def test_rows_that_do_not_add_up_are_never_committed(bench: Bench) -> None:
    coordinator = bench.start()
    with pytest.raises(TerminalError, match="do not add up"):
        bench.take(coordinator, 0, written=2)
    counts = {"out": Counts(read=3, written=3)}
    with pytest.raises(TerminalError, match="wrote 3 rows but prepared 0"):
        coordinator.checkpoint(0, {}, lambda directive: TaskResults(prepared=[], counts=counts))
    stray = [Prepared("elsewhere", 0, {"v": 1, "piece": "x"})]
    with pytest.raises(TerminalError, match="elsewhere"):
        coordinator.checkpoint(0, {}, lambda directive: TaskResults(prepared=stray))
    assert bench.sink.shown() == []
    assert bench.sink.hidden() == [], "what was prepared is aborted"
    assert bench.records() == [(0, "start", -1)]


def test_a_failure_before_the_decision_aborts_and_the_same_driver_can_go_on(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.verify_fails = TransientError("lost a piece")
    with pytest.raises(TransientError, match="lost a piece"):
        bench.take(coordinator, 0)
    assert bench.sink.hidden() == []
    bench.sink.verify_fails = None
    assert not bench.take(coordinator, 0).replayed
    assert bench.sink.shown() == ["p2"]


def test_a_failing_commit_aborts_nothing_and_is_finished_before_anything_else(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.failures = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/out/p1")]
    with pytest.raises(TransientError, match=r"disk full while committing .*\nNext: free some space"):
        bench.take(coordinator, 0)
    assert bench.sink.hidden() == [".p1"]
    assert bench.take(coordinator, 0).replayed
    assert bench.sink.shown() == ["p1"]


def test_a_crash_after_the_decision_is_rolled_forward_at_the_next_start(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.failures = [RuntimeError("killed here")]
    with pytest.raises(RuntimeError):
        bench.take(coordinator, 0)
    bench.sink.storage.create_exclusive(".stray", b"x")
    bench.start()
    assert bench.recovery.committed == 1
    assert [orphan.path for orphan in bench.recovery.orphans["out"]] == [".stray"]
    assert bench.sink.shown() == ["p1"]
    assert bench.sink.hidden() == []


def test_unknown_outcomes_are_asked_for_again_with_growing_pauses(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.failures = [CommitUnknown("no answer")] * 3
    bench.take(coordinator, 0)
    assert bench.pauses == [0.1, 0.2, 0.3]
    assert bench.sink.shown() == ["p1"]


def test_an_outcome_that_stays_unknown_ends_this_life_only(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.failures = [CommitUnknown("no answer")] * 5
    with pytest.raises(TransientError, match="is not known: no answer"):
        bench.take(coordinator, 0)
    bench.start()
    assert bench.sink.shown() == ["p1"]


def test_one_sinks_failure_does_not_keep_another_from_becoming_visible(bench: Bench, tmp_path: Path) -> None:
    bench.sinks["second"] = PartSink(LocalStorage(str(tmp_path / "second")))
    coordinator = bench.start()
    bench.sink.failures = [PermissionError(errno.EACCES, "Permission denied", "/out")]
    with pytest.raises(TransientError, match="Permission denied"):
        bench.take(coordinator, 0, sinks=("out", "second"))
    assert bench.sinks["second"].shown() == ["p2"]


def test_an_aborted_part_that_cannot_be_produced_again_stops_the_job(bench: Bench) -> None:
    coordinator = bench.start()
    bench.sink.aborts = Aborted("timed out")
    with pytest.raises(TerminalError, match="aborted its part of checkpoint 0, which was decided"):
        bench.take(coordinator, 0)


class WaitingSink(PartSink):
    """A sink whose data waits once more before it is shown, as small files wait for others to be merged with."""

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        pending = [*state.get("pending", []), *([item.payload["piece"], None] for item in prepared)]
        shown = [piece for piece, since in pending if since is not None and since + 500 <= now_ms]
        since = now_ms if occasion is Occasion.ROLL else None
        pending = [[piece, since if begun is None else begun] for piece, begun in pending if piece not in shown]
        parts = [{"v": 1, "piece": piece, "from": f".{piece}", "bytes": 5} for piece in shown]
        return Staged({"v": 1, "pending": pending}, parts)

    def next_roll_ms(self, state: JSON) -> int | None:
        return min((2000 if since is None else since + 500 for _, since in state.get("pending", [])), default=None)


def test_an_idle_job_shows_what_time_moves_on_in_two_steps(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sink = bench.sinks["out"] = WaitingSink(bench.sink.storage, 0)
    coordinator = bench.start()
    bench.take(coordinator, 0)
    bench.clock.set(2000)
    assert coordinator.roll(Occasion.ROLL) is not None, "nothing is shown, but the wait begins, and must be kept"
    assert bench.sink.shown() == []
    coordinator = bench.start()
    assert coordinator.next_roll_ms() == 2500
    assert coordinator.roll(Occasion.ROLL) is None
    bench.clock.set(2500)
    assert coordinator.roll(Occasion.ROLL) is not None
    assert bench.sink.shown() == ["p1"]
    bench.stop()


class TimedSink(PartSink):
    """A sink whose data waits for a watermark, which its state has."""

    needs_event_time = True

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return self.stage_at(state, prepared, occasion, now_ms, SinkTime(state.get("watermark")))

    def stage_at(
        self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int, time: SinkTime
    ) -> Staged:
        pending = [*state.get("pending", []), *([item.payload["piece"], now_ms] for item in prepared)]
        is_due = time.watermark is not None and time.watermark >= 50
        shown = [piece for piece, _ in pending] if is_due else []
        rest = [] if is_due else pending
        parts = [{"v": 1, "piece": piece, "from": f".{piece}", "bytes": 5} for piece in shown]
        return Staged({"v": 1, "pending": rest, "watermark": time.watermark}, parts)

    def next_roll_ms(self, state: JSON) -> int | None:
        return None

    def next_watermark(self, state: JSON) -> int | None:
        return 50 if state.get("pending") else None


def test_a_sink_that_waits_for_a_watermark_is_given_that_of_each_checkpoint(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sink = bench.sinks["out"] = TimedSink(bench.sink.storage, 0)
    coordinator = bench.start()
    assert coordinator.next_watermarks() == {}

    def take(n: int, watermark: int) -> None:
        span = {"s": SourceRange({"o": n} if n else None, {"o": n + 1}, {"topic": "id"})}
        coordinator.checkpoint(
            n, span, lambda given: replace(bench.tasks(given), sink_times={"out": SinkTime(watermark)})
        )

    take(0, 49)
    assert (bench.sink.shown(), coordinator.next_watermarks()) == ([], {"out": 50})
    assert coordinator.roll(Occasion.ROLL) is None  # no other watermark is known between two checkpoints
    coordinator = bench.start()
    assert coordinator.next_watermarks() == {"out": 50}
    take(1, 50)
    assert (bench.sink.shown(), coordinator.next_watermarks()) == (["p1", "p2"], {})
    bench.stop()


def test_a_roll_shows_what_waits_when_its_time_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path, roll_ms=60_000)
    coordinator = bench.start()
    assert coordinator.next_roll_ms() is None
    bench.take(coordinator, 0)
    assert bench.sink.shown() == []
    assert coordinator.next_roll_ms() == 61_000
    assert coordinator.roll(Occasion.ROLL) is None
    bench.clock.set(61_000)
    outcome = coordinator.roll(Occasion.ROLL)
    assert outcome is not None
    assert outcome.decision.sources == {}
    assert outcome.decision.checkpoint == 0
    assert bench.sink.shown() == ["p1"]
    assert coordinator.next_roll_ms() is None
    coordinator = bench.start()
    assert bench.recovery.sources["s"].end == {"o": 1}, "positions are found behind the roll"
    assert bench.take(coordinator, 0).replayed
    bench.stop()


def test_a_crash_leaves_pending_pieces_hidden_for_the_next_start_and_an_end_shows_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, roll_ms=60_000)
    bench.take(bench.start(), 0)
    coordinator = bench.start()
    assert bench.sink.hidden() == [".p1"], "a sweep keeps what the state names"
    assert coordinator.roll(Occasion.END) is not None
    assert bench.sink.shown() == ["p1"]
    assert [kind for _, kind, _ in bench.records()] == ["start", "checkpoint", "start", "end", "end"]
    assert not coordinator.newest.sinks["out"].committables
    assert coordinator.roll(Occasion.END) is None
    assert len(bench.records()) == 5
    bench.stop()


def test_a_start_goes_on_with_the_parallelism_that_was_decided_whatever_stands_in_between(tmp_path: Path) -> None:
    bench = Bench(tmp_path, roll_ms=60_000)
    coordinator = bench.start()
    assert coordinator.parallelism is None
    for checkpoint, tasks in enumerate((2, 6)):
        span = {"s": SourceRange({"o": checkpoint} if checkpoint else None, {"o": checkpoint + 1}, {"topic": "id"})}
        coordinator.checkpoint(checkpoint, span, lambda given, p=tasks: replace(bench.tasks(given), parallelism=p))
        assert coordinator.parallelism == tasks
    coordinator.roll(Occasion.END)
    assert coordinator.parallelism == 6, "a roll and an end have no tasks"
    for _ in range(2):
        coordinator = bench.start()
        assert coordinator.parallelism == 6
    records = {(record.occasion, record.parallelism) for record in Ledger(bench.checkpoint)}
    assert records == {("start", None), ("checkpoint", 2), ("checkpoint", 6), ("end", None), ("start", 6)}
    bench.stop()


def test_a_source_that_was_taken_out_goes_on_where_it_was_when_it_is_put_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coordinator = bench.start()
    both = {"a": SourceRange({"o": 0}, {"o": 5}), "b": SourceRange({"o": 0}, {"o": 7}, {"id": 1})}
    coordinator.checkpoint(0, both, bench.tasks)
    coordinator = bench.start()
    coordinator.checkpoint(1, {"a": SourceRange({"o": 5}, {"o": 6})}, bench.tasks)
    coordinator = bench.start()
    assert coordinator.sources["b"] == SourceRange({"o": 7}, {"o": 7}, {"id": 1}, 0)
    with pytest.raises(TerminalError, match="source 'b' ended at"):
        coordinator.checkpoint(2, {"b": SourceRange({"o": 0}, {"o": 1})}, bench.tasks)
    bench.stop()


def test_a_sink_may_be_taken_out_after_a_clean_stop_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, roll_ms=60_000)
    bench.sinks["second"] = PartSink(LocalStorage(str(tmp_path / "second")), 60_000)
    bench.take(bench.start(), 0, sinks=("out", "second"))
    second = bench.sinks.pop("second")
    with pytest.raises(DefinitionError, match=r"sink 'second' was taken out .*\nNext: put 'second' back"):
        bench.start()
    assert second.hidden() == [".p2"]
    bench.sinks["second"] = second
    bench.start().roll(Occasion.END)
    del bench.sinks["second"]
    coordinator = bench.start()
    bench.take(coordinator, 1)
    assert second.shown() == ["p2"]
    assert set(coordinator.newest.sinks) == {"out", "second"}, "its state is kept, should it come back"
    bench.stop()


def test_a_sink_may_be_added(bench: Bench, tmp_path: Path) -> None:
    bench.take(bench.start(), 0)
    bench.sinks["late"] = PartSink(LocalStorage(str(tmp_path / "late")))
    bench.take(bench.start(), 1, sinks=("out", "late"))
    assert bench.sinks["late"].shown() == ["p3"]


def test_a_driver_that_was_overtaken_stops_before_it_runs_tasks(bench: Bench) -> None:
    old = bench.start()
    bench.start()
    with pytest.raises(FencedError, match="took over"):
        bench.take(old, 0)
    assert bench.pieces == 0


def test_another_jobs_ledger_is_refused(bench: Bench) -> None:
    bench.take(bench.start(), 0)
    bench.checkpoint.delete("job.json")
    with pytest.raises(TerminalError, match=r"restore job\.json"):
        bench.start()


def test_recovery_comes_first(bench: Bench) -> None:
    bench.start()
    assert bench.epoch is not None
    fresh = Coordinator(
        identity=open_identity(bench.checkpoint, name="bench", clock=bench.clock),
        epoch=bench.epoch,
        ledger=Ledger(bench.checkpoint),
        participants=bench.sinks,
        clock=bench.clock,
    )
    with pytest.raises(TransientError, match="not known"):
        bench.take(fresh, 0)


def test_the_control_without_ledger_check_shows_rows_twice(bench: Bench) -> None:
    bench.take(bench.start(ForgetfulLedger), 0)
    outcome = bench.take(bench.start(ForgetfulLedger), 0)
    assert not outcome.replayed
    assert bench.sink.shown() == ["p1", "p2"]


def check(bench: Bench, *, fix: bool = False) -> FsckReport:
    def rebuild(name: str, description: JSON) -> PartSink | None:
        return PartSink(LocalStorage(description["root"])) if description.get("kind") == "pieces" else None

    return fsck(bench.checkpoint, rebuild, clock=bench.clock, fix=fix, sleep=bench.pauses.append)


def test_fsck_finds_nothing_after_a_clean_run(on_disk: Bench) -> None:
    on_disk.take(on_disk.start(), 0)
    on_disk.stop()
    report = check(on_disk)
    assert report.clean
    assert (report.records, report.checkpoint, report.driver) == (2, 0, None)
    assert json.loads(json.dumps(report.to_json()))["clean"]


def test_fsck_tells_orphans_from_work_left_and_fixes_both(on_disk: Bench) -> None:
    coordinator = on_disk.start()
    on_disk.sink.failures = [RuntimeError("killed here")]
    with pytest.raises(RuntimeError):
        on_disk.take(coordinator, 0)
    on_disk.sink.storage.create_exclusive(".stray", b"x")
    on_disk.stop()
    report = check(on_disk)
    assert not report.clean
    assert [orphan.path for orphan in report.orphans["out"]] == [".stray"]
    assert report.findings["out"] == [Finding("pending", "p1", 5)]
    assert on_disk.sink.hidden() == [".p1", ".stray"], "looking changes nothing"
    assert check(on_disk, fix=True).clean
    assert on_disk.sink.shown() == ["p1"]
    assert on_disk.sink.hidden() == []


def test_fsck_names_finished_files_that_are_gone_or_changed(on_disk: Bench) -> None:
    coordinator = on_disk.start()
    for n in range(2):
        on_disk.take(coordinator, n)
    on_disk.stop()
    on_disk.sink.storage.delete("p1")
    on_disk.sink.storage.delete("p2")
    on_disk.sink.storage.create_exclusive("p2", b"1")
    assert check(on_disk).findings["out"] == [Finding("missing", "p1", 5), Finding("size", "p2", 5, 1)]


def test_fsck_fixes_nothing_under_a_living_driver(on_disk: Bench) -> None:
    on_disk.take(on_disk.start(), 0)
    on_disk.sink.storage.create_exclusive(".being-written", b"x")
    assert check(on_disk).driver == f"process {os.getpid()} on {os.uname().nodename}"
    with pytest.raises(DefinitionError, match="nothing is removed under a living driver"):
        check(on_disk, fix=True)
    assert on_disk.sink.hidden() == [".being-written"]


def test_fsck_says_which_sinks_it_cannot_know(on_disk: Bench) -> None:
    on_disk.take(on_disk.start(), 0)
    on_disk.stop()
    report = fsck(on_disk.checkpoint, lambda name, description: None, clock=on_disk.clock)
    assert set(report.unchecked) == {"out"}
    assert not report.clean


def test_fsck_of_any_other_folder(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="not a job's checkpoint"):
        fsck(LocalStorage(str(tmp_path)), lambda name, description: None, clock=ManualClock())


def test_a_finished_file_that_a_reader_took_away_does_not_stop_the_next_start(bench: Bench) -> None:
    bench.take(bench.start(), 0)
    bench.sink.storage.delete("p1")
    coordinator = bench.start()  # the crash came after all was carried out, and that was noted
    assert bench.recovery.committed == 0
    bench.take(coordinator, 1)
    assert bench.sink.shown() == ["p2"]
    assert len(list(bench.checkpoint.list("carried-out"))) == 1


def test_where_the_note_is_lost_the_decision_is_carried_out_once_more(bench: Bench) -> None:
    bench.take(bench.start(), 0)
    for entry in list(bench.checkpoint.list("carried-out")):
        bench.checkpoint.delete(entry.path)
    bench.start()
    assert bench.recovery.committed == 1
    assert bench.recovery.files == 1
    assert bench.sink.shown() == ["p1"]
