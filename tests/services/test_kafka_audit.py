"""`poundlock audit` against topics of a real broker: it agrees with what was written, and finds each kind of fault."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import KafkaSink
from poundlock.checkpoint.audit import AuditReport, SinkAudit, audit
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger import Ledger, record_path
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Aborted, Committed, Counts, Prepared, Reject, WriterContext
from poundlock.cli.main import main
from poundlock.formats.chunk import Batch
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.values import SystemClock

pytestmark = pytest.mark.services

Rows = dict[str, list[Any]]


class Died(Exception):
    """The driver of a test ends here."""


class Dying(KafkaSink):
    """Dies in place of every commit."""

    def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
        raise Died


class Impatient(KafkaSink):
    """Waits for open transactions no longer than a test does."""

    audit_wait_s = 0.4


class Rig:
    """One job of one sink without Spark: a checkpoint folder, lives of a driver, and audits."""

    def __init__(self, root: Path, broker: EmbeddedKafka, topic: Any, **settings: Any) -> None:
        self.root, self.broker = root, broker
        self.settings = {
            "transactional_id_prefix": f"p{uuid.uuid4().hex[:8]}",
            "transaction_timeout": "60 s",
        } | settings
        self.sink = Impatient(broker.bootstrap_servers, topic, **self.settings)
        self.sink.preflight()
        self.storage = LocalStorage(str(root / "checkpoint"))
        self.identity = open_identity(self.storage, name="rig", clock=SystemClock())
        self.epoch: Epoch | None = None

    def driver(self, kind: type[KafkaSink] = KafkaSink, **changed: Any) -> Coordinator:
        self.stop()
        sink = kind(self.sink.bootstrap_servers, self.sink.topic, **self.settings | changed)
        bound = sink.bind(job_id=self.identity.job_id, sink="out")
        self.epoch = Epoch.claim(self.storage, clock=SystemClock(), sinks={"out": bound.describe_json()})
        driver = Coordinator(
            identity=self.identity,
            epoch=self.epoch,
            ledger=Ledger(self.storage),
            participants={"out": bound},
            clock=SystemClock(),
        )
        driver.recover()
        return driver

    def stop(self) -> None:
        if self.epoch is not None:
            self.epoch.__exit__(None, None, None)
            self.epoch = None

    def write(self, n: int, tasks: Sequence[Rows], **changed: Any) -> list[Prepared]:
        sink = KafkaSink(self.sink.bootstrap_servers, self.sink.topic, **self.settings | changed)
        prepared = []
        for subtask, rows in enumerate(tasks):
            context = WriterContext(
                job_id=self.identity.job_id, sink="out", epoch=1, checkpoint=n, subtask=subtask,
                attempt=uuid.uuid4().hex, directive={}, reject=_raise, started_ms=0,
            )  # fmt: skip
            writer = sink.open_writer(context)
            writer.write(Batch(pa.record_batch({name: pa.array(values) for name, values in rows.items()})))
            prepared += [Prepared("out", subtask, payload) for payload in writer.prepare()]
        return prepared

    def checkpoint(self, driver: Coordinator, n: int, tasks: Sequence[Rows], **changed: Any) -> None:
        def run(directive: Any) -> TaskResults:
            count = sum(len(rows["value"]) for rows in tasks)
            return TaskResults(
                prepared=[] if directive["decided"] else self.write(n, tasks, **changed),
                counts={"out": Counts(read=count, written=count)},
                rows_read={"in": count},
            )

        driver.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)

    def run(self, checkpoints: int = 3) -> None:
        driver = self.driver()
        for n in range(checkpoints):
            self.checkpoint(driver, n, [values(n, 0), values(n, 1)])
        self.stop()

    def audit(self, **span: Any) -> AuditReport:
        bound = self.sink.bind(job_id=self.identity.job_id, sink="out")
        return audit(Ledger(self.storage), {"out": bound}, **span)

    def change(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.root / "checkpoint" / record_path(number)
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))


def _raise(record: Reject) -> None:
    raise AssertionError(record.reason)


def values(n: int, task: int, count: int = 20) -> Rows:
    return {"value": [b"%d/%d/%d" % (n, task, i) for i in range(count)]}


def agrees(report: AuditReport, rows: int) -> SinkAudit:
    assert report.agrees, report.disagreements
    found = report.sinks["out"]
    assert (found.unchecked, found.visible, found.counts.written) == ("", rows, rows)
    return found


def said(report: AuditReport) -> list[tuple[int | None, str]]:
    return [(found.checkpoint, found.what) for _, found in report.disagreements]


@pytest.fixture
def rigs(tmp_path: Path, kafka_broker: EmbeddedKafka) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(topic: Any, **settings: Any) -> Rig:
        made.append(Rig(tmp_path / str(len(made)), kafka_broker, topic, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.stop()


@pytest.fixture
def rig(rigs: Callable[..., Rig], new_topic: Callable[..., str]) -> Rig:
    return rigs(new_topic(3))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_committed_agrees_with_aborted_and_strange_transactions_between(
    rigs: Callable[..., Rig], new_topic: Callable[..., str], kafka_broker: EmbeddedKafka, compression: str
) -> None:
    rig = rigs(topic := new_topic(3), compression=compression)
    driver = rig.driver()
    for n in range(3):
        rig.write(n, [values(9, 9)])  # by an attempt nobody waits for; aborted before the decision
        rig.checkpoint(driver, n, [values(n, 0, 300), values(n, 1), {"value": [b"", None, b"x" * 5000]}])
    kafka_broker.produce(topic, ["by another", "by another"], compression_type=compression)
    found = agrees(rig.audit(), 969)
    assert (found.read_back, found.others, found.removed, found.uncompared) == (9, 2, 0, [])
