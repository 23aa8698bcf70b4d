"""A job of one Kafka sink without Spark, for tests on a real broker: checkpoint folder, lives of a driver, tasks, audits.

Shared by the tests of this folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock import KafkaSink
from poundlock.audit.audit import AuditReport, audit
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Aborted, Committed, Counts, Prepared, WriterContext
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.values import SystemClock

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
        transactions = {"transactional_id_prefix": f"p{uuid.uuid4().hex[:8]}", "transaction_timeout": "60 s"}
        self.settings = ({} if "guarantee" in settings else transactions) | settings
        self.sink = Impatient(broker.bootstrap_servers, topic, **self.settings)
        self.sink.preflight()
        self.storage = LocalStorage(str(root / "checkpoint"))
        self.identity = open_identity(self.storage, name="rig", clock=SystemClock())
        self.epoch: Epoch | None = None
        self.ledger = Ledger(self.storage)

    def driver(self, kind: type[KafkaSink] = KafkaSink, **changed: Any) -> Coordinator:
        self.stop()
        sink = kind(self.sink.bootstrap_servers, self.sink.topic, **self.settings | changed)
        bound = sink.bind(job_id=self.identity.job_id, sink="out")
        self.epoch = Epoch.claim(self.storage, clock=SystemClock(), sinks={"out": bound.describe_json()})
        driver = Coordinator(
            identity=self.identity,
            epoch=self.epoch,
            ledger=self.ledger,
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
                prepared=[] if directive.decided else self.write(n, tasks, **changed),
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
        return audit(self.ledger, {"out": bound}, **span)

    def change(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.root / "checkpoint" / record_path(number)
        record = json.loads(path.read_text())
        change(record)
        record.pop("crc32", None)  # as in records of before
        path.write_text(json.dumps(record))


def _raise(record: Reject) -> None:
    raise AssertionError(record.reason)


def values(n: int, task: int, count: int = 20) -> Rows:
    return {"value": [b"%d/%d/%d" % (n, task, i) for i in range(count)]}
