"""A driver without Spark, so that a life costs a second: batches of known rows through the coordinator into two topics and files.

The two topics are on one cluster or on two. Like Spark it writes offsets/<n> before a batch and commits/<n> behind it, and delivers a batch again that has only the first.
argv: folder, servers of each topic parted by a blank, name of the topics, number of batches, transaction timeout, commit mode.
"""

from __future__ import annotations

import random
import sys
import uuid
from pathlib import Path

import pyarrow as pa

from poundlock import FileSink, KafkaSink, RollingPolicy
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Prepared, Reject, WriterContext
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

TASKS, ROWS = 3, 40


def rows(n: int, task: int) -> list[bytes]:
    """Return what a task writes in a batch: the third one nothing in every second batch."""
    return [] if task == 2 and n % 2 else [b"%06d/%d/%03d" % (n, task, i) for i in range(ROWS)]


def refuse(record: Reject) -> None:
    raise AssertionError(record.reason)


def main(folder: str, servers: str, name: str, batches: str, timeout: str, mode: str) -> None:
    root, clock = Path(folder), SystemClock()
    storage = LocalStorage(str(root / "checkpoint"))
    for log in ("offsets", "commits"):
        (root / log).mkdir(exist_ok=True)
    identity = open_identity(storage, name="lives", clock=clock)
    kafka = {"transactional_id_prefix": name, "transaction_timeout": timeout, "commit_mode": mode}
    sinks = {
        "a": KafkaSink(servers.split()[0], f"{name}-a", **kafka),
        "b": KafkaSink(servers.split()[1], f"{name}-b", compression="zstd", **kafka),
        "files": FileSink(str(root / "files"), row="value", rolling=RollingPolicy(on_checkpoint=True)),
    }
    with Epoch.claim(storage, clock=clock) as epoch:
        coordinator = Coordinator(
            identity=identity,
            epoch=epoch,
            ledger=Ledger(storage),
            participants={n: bound(s, job_id=identity.job_id, sink=n) for n, s in sinks.items()},
            clock=clock,
        )
        coordinator.recover()
        committed = max((int(p.name) for p in (root / "commits").iterdir()), default=-1)
        for n in range(committed + 1, int(batches)):
            (root / "offsets" / str(n)).touch()

            def run(directive: SinkDirectives, n: int = n) -> TaskResults:
                prepared: list[Prepared] = []
                order = list(range(TASKS))
                if mode == "two_phase":
                    random.shuffle(order)  # tasks have other numbers each time
                for subtask, task in enumerate(order if not directive.decided else ()):
                    for sink, said in directive.sinks.items():
                        context = WriterContext(
                            job_id=identity.job_id, sink=sink, epoch=epoch.number, checkpoint=n, subtask=subtask,
                            attempt=uuid.uuid4().hex, directive=said, reject=refuse, started_ms=directive.started_ms,
                        )  # fmt: skip
                        writer = sinks[sink].open_writer(context)
                        if rows(n, task):
                            writer.write(Batch(pa.record_batch({"value": pa.array(rows(n, task), pa.binary())})))
                        prepared += [Prepared(sink, subtask, payload) for payload in writer.prepare()]
                hit(Failpoint.SINK_PREPARED)
                count = sum(len(rows(n, task)) for task in range(TASKS))
                return TaskResults(prepared=prepared, counts={s: Counts(read=count, written=count) for s in sinks})

            coordinator.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)
            (root / "commits" / str(n)).touch()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
