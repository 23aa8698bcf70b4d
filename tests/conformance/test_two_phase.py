"""Flink's cases of two-phase commit, through our coordinator.

A snapshot is what tasks prepare; a completed checkpoint is decided and committed; a restart from n is a driver that
died when n was decided and nothing of it was committed yet.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import JSON, Aborted, Committed, Counts, Prepared, WriterContext
from poundlock.formats.chunk import Lines
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock
from support.two_phase_sink import TempFileSink, TempFileWriter

FILE = json.loads((Path(__file__).parent / "data" / "two_phase.json").read_text())
CASES = {case["id"]: case for case in FILE["cases"]}


class Death(BaseException):
    """The driver is gone."""


class DyingSink(TempFileSink):
    """The process dies where it would commit."""

    def commit(self, committable: JSON) -> Committed | Aborted:
        raise Death


class Script:
    """One case on its way: the tasks' open transaction, what snapshots prepared, and the driver."""

    def __init__(self, folder: Path, setup: dict[str, Any]) -> None:
        self.checkpoint, self.out = LocalStorage(str(folder / "checkpoint")), LocalStorage(str(folder / "out"))
        self.clock = ManualClock()
        self.setup = setup
        self.warnings: list[str] = []
        self.prepared: dict[int, list[JSON]] = {}
        self.decided = -1
        self.transactions = 0
        self.storage_fails = False
        self.epoch: Epoch | None = None
        self.begin(TempFileSink)

    def begin(self, kind: type[TempFileSink]) -> None:
        """Start a driver, and a task with an open transaction."""
        if self.epoch is not None:
            self.epoch.release()
        self.epoch = Epoch.claim(self.checkpoint, clock=self.clock)
        self.sink = kind(
            self.out,
            self.clock,
            timeout_ms=self.setup.get("transaction_timeout_ms"),
            warn_ratio=self.setup.get("warn_ratio", 1.0),
            warn=self.warnings.append,
        )
        self.coordinator = Coordinator(
            identity=open_identity(self.checkpoint, name="case", clock=self.clock),
            epoch=self.epoch,
            ledger=Ledger(self.checkpoint),
            participants={"sink": self.sink},
            clock=self.clock,
        )

    def recover(self) -> None:
        self.coordinator.recover()
        self.finished = False
        self.writer: TempFileWriter | None = self.open()

    def open(self) -> TempFileWriter:
        self.transactions += 1
        assert self.epoch is not None
        context = WriterContext(
            job_id="0" * 32,
            sink="sink",
            epoch=self.epoch.number,
            checkpoint=self.decided + 1,
            subtask=0,
            attempt=f"{self.transactions:04d}",
            directive={},
            reject=lambda reject: None,
            started_ms=self.clock.now_ms(),
        )
        writer = self.sink.open_writer(context)
        assert isinstance(writer, TempFileWriter)
        return writer

    def element(self, text: str) -> None:
        if self.writer is None:
            raise RuntimeError("no transaction is open: the input has ended")
        self.writer.storage_fails = self.storage_fails
        data = f"{text}\n".encode()
        self.writer.write(Lines(memoryview(data), np.array([len(data) - 1], dtype=np.int64)))

    def snapshot(self, n: int) -> None:
        self.prepared[n] = list(self.writer.prepare()) if self.writer is not None else []
        self.writer = None if self.finished else self.open()

    def finish(self, _: bool) -> None:
        self.finished = True

    def checkpoint_complete(self, n: int) -> None:
        for number in sorted(self.prepared):
            if self.decided < number <= n:
                self.decide(number)

    def decide(self, n: int) -> None:
        payloads = self.prepared[n]

        def run(directive: SinkDirectives) -> TaskResults:
            assert not directive.decided
            rows = sum(payload["rows"] for payload in payloads)
            return TaskResults(
                prepared=[Prepared("sink", 0, payload) for payload in payloads],
                counts={"sink": Counts(read=rows, written=rows)},
            )

        self.decided = n
        self.coordinator.checkpoint(n, {"source": SourceRange(n, n + 1)}, run)

    def restart_from(self, n: int) -> None:
        self.checkpoint_complete(n - 1)
        if self.decided < n:
            self.coordinator.participants = {"sink": DyingSink(self.out, self.clock)}
            with pytest.raises(Death):
                self.decide(n)
        self.storage_fails = False
        self.begin(TempFileSink)
        self.recover()

    def close(self, _: bool) -> None:
        if self.writer is not None:
            self.writer.abandon()
            self.writer = None

    def clock_ms(self, now: int) -> None:
        self.clock.set(now)

    def check(self, _: bool) -> None:
        """Nothing happens."""

    def run(self, step: dict[str, Any]) -> None:
        ((name, value),) = step.items()
        if name == "storage_fails":
            self.storage_fails = value
        else:
            getattr(self, name)(value)

    def state(self, wanted: str) -> Any:
        if wanted == "committed":
            return sorted(row for e in self.out.list("target") for row in self.out.read(e.path).decode().split())
        if wanted == "temp":
            return len(list(self.out.list("temp")))
        assert wanted == "warning"
        (warning,) = self.warnings
        open_ms, timeout_ms = map(int, re.findall(r"(\d+) ms", warning))
        return {"open_ms": open_ms, "timeout_ms": timeout_ms}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_two_phase(case: dict[str, Any], tmp_path: Path) -> None:
    script = Script(tmp_path, case["setup"])
    script.recover()
    assert case["kind"] == "two_phase_commit_script"
    assert len(case["steps"]) == len(case["expected"])
    try:
        for step, expected in zip(case["steps"], case["expected"], strict=True):
            if expected == "fails":
                with pytest.raises((OSError, RuntimeError)):
                    script.run(step)
                continue
            script.run(step)
            for wanted, value in (expected or {}).items():
                assert script.state(wanted) == value, f"{wanted} after {step}"
    finally:
        script.close(True)
        assert script.epoch is not None
        script.epoch.release()


def test_a_quick_commit_does_not_warn(tmp_path: Path) -> None:
    script = Script(tmp_path, {"transaction_timeout_ms": 1000, "warn_ratio": 0.5})
    script.recover()
    script.snapshot(0)
    script.clock_ms(500)
    script.checkpoint_complete(0)
    script.close(True)
    assert script.warnings == []
