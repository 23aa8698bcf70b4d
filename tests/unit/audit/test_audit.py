"""The audit agrees with what a sink really holds, and names checkpoint and file where it does not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.audit.audit import AuditReport, audit
from poundlock.audit.read_back import AuditScope, Decided, ReadBack
from poundlock.audit.write_totals import Written
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import Decision, Redo, SinkDecision, SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Occasion
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock
from support.sinks import FileSinkHarness, batch, lines


class Ran:
    """A job of three checkpoints with two rows each, whose file sink is as the test wants it."""

    def __init__(self, folder: Path, *, end: bool = True, **settings: Any) -> None:
        self.storage = LocalStorage(str(folder / "checkpoint"))
        self.clock = ManualClock(1000)
        self.identity = open_identity(self.storage, name="ran", clock=self.clock)
        whole = settings.get("header") or settings.get("format") in ("parquet", "avro")
        settings = {"row": "value", "rolling": RollingPolicy(every="60 s" if whole else "1 s"), **settings}
        self.sink = FileSink(str(folder / "out"), **settings).bind(job_id=self.identity.job_id, sink="out")
        self.tasks = FileSinkHarness(self.sink)
        self.ledger = Ledger(self.storage)
        with Epoch.claim(self.storage, clock=self.clock) as epoch:
            driver = Coordinator(
                identity=self.identity,
                epoch=epoch,
                ledger=self.ledger,
                participants={"out": self.sink},
                clock=self.clock,
            )
            driver.recover()
            for n in range(3):
                span = {"in": SourceRange({"row": 2 * n}, {"row": 2 * n + 2})}
                driver.checkpoint(n, span, lambda directive, n=n: self.run(n))
                self.clock.set(self.clock.now_ms() + 400)
            if end:
                driver.roll(Occasion.END)

    def run(self, n: int) -> TaskResults:
        self.tasks.checkpoint = n
        if self.sink.kind_of_rows == "raw":
            self.tasks.write(lines(b"row %d a" % n, b"row %d b" % n))
        else:
            self.tasks.write(batch(n=pa.array([n, n])))
        return TaskResults(
            prepared=self.tasks.prepare(), counts={"out": Counts(read=3, written=2, filtered=1)}, rows_read={"in": 3}
        )

    def audit(self, **span: Any) -> AuditReport:
        return audit(self.ledger, {"out": self.sink}, **span)

    def file(self) -> Path:
        (path,) = self.tasks.finished()
        return Path(self.sink.path) / path


def said(report: AuditReport) -> list[tuple[str, int | None, str]]:
    return [(name, found.checkpoint, found.what) for name, found in report.disagreements]


KINDS = [
    {},
    {"compression": "gzip"},
    {"row": None, "format": "json"},
    {"row": None, "format": "csv", "header": True},
    {"row": None, "format": "parquet"},
    {"row": None, "format": "avro"},
    {"row": None, "format": "parquet", "compaction": FileCompaction(every_checkpoints=9)},
    {"row": None, "format": "avro", "compaction": FileCompaction(every_checkpoints=9)},
]


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: "-".join(map(str, s.values()))[:30] or "raw")
def test_what_was_written_agrees(tmp_path: Path, settings: dict[str, Any]) -> None:
    report = Ran(tmp_path, **settings).audit()
    assert report.agrees, said(report)
    assert (report.first, report.last, report.rows_read) == (0, 2, {"in": 9})
    found = report.sinks["out"]
    assert (found.counts.read, found.counts.written, found.visible, found.waiting_after) == (9, 6, 6, 0)


def test_rows_that_wait_hidden_are_no_loss(tmp_path: Path) -> None:
    ran = Ran(tmp_path, end=False, rolling=RollingPolicy(every=None, size=None, inactivity=None))
    report = ran.audit()
    assert report.agrees, said(report)
    assert (report.sinks["out"].visible, report.sinks["out"].waiting_after) == (0, 6)


def test_a_range_is_found_without_reading_what_was_decided_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran(tmp_path)
    reads: list[int] = []
    read = Ledger.read
    monkeypatch.setattr(Ledger, "read", lambda self, number: reads.append(number) or read(self, number))
    whole = {n: ran.audit(first=n) for n in (1, 2)}
    for n, report in whole.items():
        assert report.agrees, said(report)
        assert (report.first, report.last, report.rows_read) == (n, 2, {"in": 9 - 3 * n})
    reads.clear()
    ran.audit(first=2)
    assert 0 not in reads
    assert 1 not in reads


def test_a_range_is_looked_at_alone(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    report = ran.audit(first=1, last=1)
    assert report.agrees, said(report)
    assert (report.first, report.last, report.rows_read) == (1, 1, {"in": 3})
    with pytest.raises(DefinitionError, match="there is no checkpoint 7, the newest one is 2"):
        ran.audit(first=7)


def test_a_changed_row_is_told_with_its_checkpoint(tmp_path: Path) -> None:
    ran = Ran(tmp_path, rolling=RollingPolicy(every=None, size=None, inactivity=None))
    path = ran.file()
    path.write_bytes(path.read_bytes().replace(b"row 1 b", b"row 1 c"))
    ((name, checkpoint, what),) = said(ran.audit())
    assert (name, checkpoint) == ("out", 1)
    assert "2 rows are not the ones that were written" in what


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data[:-3], "the file ends 3 bytes too early"),
        (lambda data: data + b"x", "the file has more than the "),
        (lambda data: gzip.compress(data), "not the ones that were written"),
        (lambda data: None, "the file is gone, with 6 rows"),
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, change: Any, what: str) -> None:
    ran = Ran(tmp_path, rolling=RollingPolicy(every=None, size=None, inactivity=None))
    path = ran.file()
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    found = said(ran.audit())
    assert any(what in text for _, _, text in found), found


def test_a_merged_file_with_other_rows_is_told(tmp_path: Path) -> None:
    ran = Ran(tmp_path, row=None, format="parquet", compaction=FileCompaction(every_checkpoints=9))
    path = ran.file()
    pq.write_table(pq.read_table(path).slice(1), path)
    assert [text for _, _, text in said(ran.audit())] == ["the file has 5 rows instead of 6"]


def test_a_ledger_that_does_not_add_up_is_told(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    newest = ran.ledger.newest()
    assert newest is not None
    for number, (start, end) in enumerate([(6, 8), (9, 10)], newest.number + 1):
        ran.ledger.append(
            Decision(
                number=number,
                occasion="checkpoint",
                checkpoint=number,
                job_id=newest.job_id,
                epoch=1,
                time_ms=1,
                sources={"in": SourceRange({"row": start}, {"row": end}, rows=2)},
                sinks={
                    "out": SinkDecision(
                        [], newest.sinks["out"].state, Counts(read=2, written=1), Written(pieces=1, rows=end - start)
                    )
                },
            )
        )
    texts = [text for _, _, text in said(ran.audit())]
    assert sum("the counts do not add up" in text for text in texts) == 2
    assert sum("1 rows are counted and 2 were prepared" in text for text in texts) == 1
    assert sum("source 'in' goes on at {'row': 9}, not at {'row': 8}" in text for text in texts) == 1
    assert sum("8 rows were written or waited, and 6 are visible or wait" in text for text in texts) == 1


def test_a_sink_that_cannot_be_read_is_said_to_be_unchecked(tmp_path: Path) -> None:
    report = audit(Ran(tmp_path).ledger, {"out": None})
    assert report.agrees
    assert report.sinks["out"].unchecked == "it cannot be made without the job's own code"


class Told:
    """A sink that notes what an audit tells it. Its committables are {"name", "rows"}."""

    unaudited = ""
    whole = True

    def __init__(self) -> None:
        self.taken: list[tuple[str, bool]] = []
        self.meanwhile: Any = lambda: None

    def open_audit(self, scope: AuditScope) -> Told:
        return self

    def rows_of(self, committable: dict[str, Any]) -> int:
        return int(committable["rows"])

    def rows_pending(self, state: dict[str, Any]) -> int:
        return 0

    def take(self, decided: Decided) -> None:
        self.taken.append((decided.committable["name"], decided.compared))

    def read(self) -> None:
        self.taken.append(("read", True))
        self.meanwhile()

    def result(self) -> ReadBack:
        return ReadBack(compared=0)


def recorded(ledger: Ledger, *records: tuple[str, int, str, dict[str, Redo]]) -> None:
    """Append records: occasion, checkpoint, names of what each makes visible, and what was produced again."""
    newest = ledger.newest()
    for number, (occasion, checkpoint, said, redo) in enumerate(records, 0 if newest is None else newest.number + 1):
        first = occasion == "checkpoint" and not redo
        committables = named(said)
        rows = sum(committable["rows"] for committable in committables)
        counts = Counts(read=rows, written=rows) if first else Counts()
        ledger.append(
            Decision(
                number=number,
                occasion=occasion,
                checkpoint=checkpoint,
                job_id="0" * 32,
                epoch=1,
                time_ms=1,
                sources={},
                sinks={"out": SinkDecision(committables, {}, counts)},
                redo=redo,
            )
        )


def named(text: str) -> list[dict[str, Any]]:
    return [{"name": name, "rows": 2 if name == "b" else 1} for name in text.split()]


def test_what_was_aborted_and_produced_again_twice_counts_once(tmp_path: Path) -> None:
    ledger, sink = Ledger(LocalStorage(str(tmp_path))), Told()
    recorded(
        ledger,
        ("start", -1, "", {}),
        ("checkpoint", 0, "a b c", {}),
        ("checkpoint", 0, "b2 b3", {"out": Redo((), named("a c"))}),  # in the life that decided it
        ("start", 0, "", {"out": Redo(named("b3"), named("a c b2"))}),
        ("checkpoint", 0, "b4", {"out": Redo((), named("a c b2"))}),
        ("checkpoint", 1, "d", {}),
    )
    report = audit(ledger, {"out": sink})  # type: ignore[dict-item]
    assert [name for name, _ in sink.taken] == ["a", "c", "b2", "b4", "d", "read"]
    assert report.agrees, said(report)  # b was cut in two the second time
    assert report.sinks["out"].visible == 5


def test_the_sums_are_of_what_is_visible_and_of_what_will_be_produced_again(tmp_path: Path) -> None:
    ledger, sink = Ledger(LocalStorage(str(tmp_path))), Told()
    recorded(
        ledger,
        ("checkpoint", 0, "a b c", {}),
        ("start", 0, "", {"out": Redo(named("b c"), named("a"))}),
    )
    report = audit(ledger, {"out": sink})  # type: ignore[dict-item]
    assert (report.agrees, report.sinks["out"].visible, report.sinks["out"].again) == (True, 1, 3)
    assert sink.taken == [("a", True), ("read", True)]


def test_a_sink_is_told_what_is_decided_outside_the_range_and_while_it_reads(tmp_path: Path) -> None:
    ledger, sink = Ledger(LocalStorage(str(tmp_path))), Told()
    recorded(ledger, *(("checkpoint", n, f"n{n}", {}) for n in range(4)))
    sink.meanwhile = lambda: recorded(ledger, ("checkpoint", 4, "n4", {}))
    report = audit(ledger, {"out": sink}, first=1, last=2)  # type: ignore[dict-item]
    assert sink.taken == [
        ("n0", False), ("n1", True), ("n2", True), ("n3", False), ("read", True), ("n4", False)
    ]  # fmt: skip
    assert (report.records, report.sinks["out"].visible) == (2, 2)
