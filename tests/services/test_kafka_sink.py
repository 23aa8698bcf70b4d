"""The Kafka sink on a real broker, without Spark: its participant under the coordinator, writers in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, KafkaSink, TransientError
from poundlock.audit.fsck import FsckReport, fsck
from poundlock.checkpoint.committer import Retry
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity, open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import Outcome, SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Aborted, Committed, Counts, Prepared, Reject, WriterContext
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames, slots, tags
from poundlock.connectors.kafka.sink.transactions import Transactions, transaction_pool, transactions
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.formats.chunk import Batch
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.values import SystemClock

pytestmark = pytest.mark.services

CHILD = Path(__file__).with_name("kafka_sink_child.py")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedKafka) -> str:
    name = f"out-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 3)
    return name


class Died(Exception):
    """The driver of a test ends here."""


class Crashing(KafkaSink):
    """Dies in place of the commit with the number `die_at`, before it or after."""

    def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
        plan = PLANS.setdefault(self.transactional_id_prefix, [])
        what = plan.pop(0) if plan else "commit"
        if what == "die before":
            raise Died
        result = super().commit(committable)
        if what == "die after":
            raise Died
        return result

    def commit_many(self, committables: Iterable[dict[str, Any]]) -> Iterator[Any]:
        return map(self.commit, committables)  # in turn: who is dead commits nothing more


PLANS: dict[str, list[str]] = {}


class Rig:
    """One job's checkpoint folder and sink; each `driver()` is a life of its own."""

    def __init__(self, root: Path, sink: KafkaSink) -> None:
        self.root, self.sink = root, sink
        self.storage = LocalStorage(str(root))
        self.identity: Identity = open_identity(self.storage, name="rig", clock=SystemClock())
        self.epoch: Epoch | None = None
        self.tasks: list[list[str]] = []

    def driver(self, sink: KafkaSink | None = None) -> Coordinator:
        if self.epoch is not None:
            self.epoch.__exit__(None, None, None)
        self.bound = (sink or self.sink).bind(job_id=self.identity.job_id, sink="out")
        self.epoch = Epoch.claim(self.storage, clock=SystemClock(), sinks={"out": self.bound.describe_json()})
        driver = Coordinator(
            identity=self.identity,
            epoch=self.epoch,
            ledger=Ledger(self.storage),
            participants={"out": self.bound},
            clock=SystemClock(),
            retry=Retry(attempts=8, first_s=0.05, most_s=0.5),
        )
        driver.recover()
        return driver

    def context(self, checkpoint: int, subtask: int) -> WriterContext:
        return WriterContext(
            job_id=self.identity.job_id, sink="out", epoch=1, checkpoint=checkpoint, subtask=subtask,
            attempt=uuid.uuid4().hex, directive={}, reject=_raise, started_ms=0,
        )  # fmt: skip

    def write(self, checkpoint: int, tasks: Sequence[Sequence[str]]) -> list[Prepared]:
        """Write each list by one task, in this process."""
        prepared = []
        for subtask, values in enumerate(tasks):
            writer = self.sink.open_writer(self.context(checkpoint, subtask))
            writer.write(batch(values))
            prepared += [Prepared("out", subtask, payload) for payload in writer.prepare()]
        return prepared

    def child(self, checkpoint: int, values: Sequence[str], die: str) -> list[Prepared]:
        """Write by a process that is killed."""
        context = self.context(checkpoint, 0)
        fields = {n: getattr(context, n) for n in ("job_id", "sink", "epoch", "checkpoint", "subtask", "attempt")}
        sink = {
            "bootstrap_servers": self.sink.bootstrap_servers,
            "topic": self.sink.topic,
            "transaction_timeout": f"{self.sink.timeout_ms} ms",
            "transactional_id_prefix": self.sink.transactional_id_prefix,
        }
        given = json.dumps({"sink": sink, "context": fields, "values": list(values), "die": die})
        done = subprocess.run([sys.executable, str(CHILD), given], capture_output=True, text=True, timeout=120)
        assert done.returncode == (0 if die == "no" else -9), done.stderr
        return [Prepared("out", 0, payload) for payload in json.loads(done.stdout or "[]")]

    def checkpoint(
        self,
        driver: Coordinator,
        n: int,
        tasks: Sequence[Sequence[str]],
        write: Callable[[SinkDirectives], list[Prepared]] | None = None,
    ) -> Outcome:
        def run(directive: SinkDirectives) -> TaskResults:
            if directive.decided:
                return TaskResults(prepared=[])
            count = sum(map(len, tasks))
            prepared = write(directive) if write is not None else self.write(n, tasks)
            return TaskResults(prepared=prepared, counts={"out": Counts(read=count, written=count)})

        return driver.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)


def _raise(record: Reject) -> None:
    raise AssertionError(record.reason)


def batch(values: Sequence[str]) -> Batch:
    return Batch(pa.record_batch({"value": pa.array([v.encode() for v in values], pa.binary())}))


def rows(n: int, task: int, count: int = 50) -> list[str]:
    return [f"{n}/{task}/{i}" for i in range(count)]


def seen(broker: EmbeddedKafka, topic: str) -> Counter[str]:
    return Counter(r.value.decode() for r in broker.read(topic) if isinstance(r.value, bytes))


def assert_exact(broker: EmbeddedKafka, topic: str, expected: Sequence[Sequence[str]]) -> None:
    """Kafka answers a commit before it has written the markers by which readers see it, so rows may come a moment later."""
    wanted = Counter(value for task in expected for value in task)
    end = time.monotonic() + 30
    while (found := seen(broker, topic)) < wanted and time.monotonic() < end:
        time.sleep(0.1)
    assert found == wanted, f"lost {(wanted - found).total()}, duplicated {(found - wanted).total()}"


@pytest.fixture
def rig(tmp_path: Path, broker: EmbeddedKafka, topic: str) -> Iterator[Rig]:
    made = Rig(
        tmp_path, KafkaSink(broker.bootstrap_servers, topic, transactional_id_prefix=topic, transaction_timeout="60 s")
    )
    made.sink.preflight()
    yield made
    if made.epoch is not None:
        made.epoch.__exit__(None, None, None)


def quick(rig: Rig, kind: type[KafkaSink] = KafkaSink) -> KafkaSink:
    """Return the rig's sink with a timeout that a test can wait for."""
    assert isinstance(rig.sink.topic, str)
    return kind(
        rig.sink.bootstrap_servers, rig.sink.topic, transactional_id_prefix=rig.sink.topic, transaction_timeout="2 s"
    )


def asked(rig: Rig) -> Transactions:
    return transactions(rig.sink.bootstrap_servers, rig.sink.security)


def wait_until(rig: Rig, payload: Mapping[str, Any], state: str) -> None:
    while (told := asked(rig).describe(payload["tid"])) is not None and told.state != state:
        time.sleep(0.05)


def wait_until_aborted(rig: Rig, payload: Mapping[str, Any]) -> None:
    wait_until(rig, payload, "CompleteAbort")


def ours_open(rig: Rig) -> list[str]:
    return [tid for tid in asked(rig).ongoing() if tid.startswith(f"{rig.sink.transactional_id_prefix}.")]


def test_checkpoints_are_seen_whole_and_once(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    driver = rig.driver()
    for n in range(4):
        rig.checkpoint(driver, n, [rows(n, 0), rows(n, 1), []])
        assert_exact(broker, topic, [rows(k, t) for k in range(n + 1) for t in (0, 1)])
    slots = {c["tid"] for d in Ledger(rig.storage) for s in d.sinks.values() for c in s.committables}
    assert len(slots) <= 4, "transactional ids are used again"
    assert ours_open(rig) == []


def test_the_writer_is_killed_after_prepare_and_another_process_commits(
    rig: Rig, broker: EmbeddedKafka, topic: str
) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rows(0, 0)], lambda _: rig.child(0, rows(0, 0), "prepared"))
    assert_exact(broker, topic, [rows(0, 0)])


def test_a_writer_that_began_early_and_gets_no_row_leaves_nothing(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rows(0, 0)])  # this process knows from now on that the sink gets rows
    writer = rig.sink.open_writer(rig.context(1, 0))
    assert writer.prepare() == []
    assert ours_open(rig) == []
    names = TransactionNames(rig.bound.effective_prefix, *tags(rig.identity.job_id, "out"))
    deadline = time.monotonic() + 30
    while True:  # its producer may still be on its way
        slot = next(slots(names, 1))
        slot.release()
        if ".0-1" in slot.tid:
            break
        assert time.monotonic() < deadline, slot.tid
        time.sleep(0.01)
    rig.checkpoint(driver, 1, [rows(1, 0)])
    assert_exact(broker, topic, [rows(0, 0), rows(1, 0)])
    assert ours_open(rig) == []


def test_a_process_that_is_killed_with_a_producer_begun_early_leaves_nothing(
    rig: Rig, broker: EmbeddedKafka, topic: str
) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rows(0, 0)], write=lambda _: rig.child(0, rows(0, 0), "early"))
    assert ours_open(rig) == []
    rig.checkpoint(driver, 1, [rows(1, 0), rows(1, 1)])
    rig.checkpoint(driver, 2, [rows(2, 0)], write=lambda _: rig.child(2, rows(2, 0), "early"))
    rig.checkpoint(rig.driver(), 3, [rows(3, 0)])
    assert_exact(broker, topic, [rows(0, 0), rows(1, 0), rows(1, 1), rows(2, 0), rows(3, 0)])
    assert ours_open(rig) == []


def test_a_killed_attempt_is_aborted_before_the_decision(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    """Its open transaction would hold readers up to its timeout."""
    driver = rig.driver()

    def attempts(_: SinkDirectives) -> list[Prepared]:
        rig.child(0, rows(0, 0), "writing")
        rig.child(0, rows(0, 0), "prepared")  # a speculative twin, whose message was lost
        return rig.write(0, [rows(0, 0)])

    rig.checkpoint(driver, 0, [rows(0, 0)], attempts)
    assert ours_open(rig) == []
    assert_exact(broker, topic, [rows(0, 0)])


def test_many_transactions_of_several_sinks_are_verified_and_committed_at_once(
    rig: Rig, broker: EmbeddedKafka, topic: str
) -> None:
    """Each thread that ends transactions has a connection of its own, and the sinks of a cluster share them."""
    tasks = [rows(0, n) for n in range(12)]
    prepared = rig.write(0, tasks)
    payloads = [item.payload for item in prepared]
    bound = [rig.sink.bind(job_id=rig.identity.job_id, sink="out") for _ in range(2)]
    bound[0].verify(prepared)
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda i: list(bound[i].commit_many(iter(payloads[i::2]))), range(2))
        assert all(isinstance(outcome, Committed) for outcomes in halves for outcome in outcomes)
    assert_exact(broker, topic, tasks)
    connections = transaction_pool(broker.bootstrap_servers, rig.sink.security)
    assert 2 <= len(connections.idle) <= connections.most
    again = list(rig.sink.commit_many(iter(payloads)))
    assert [outcome.detail["transaction"] for outcome in again] == [p["transaction"] for p in payloads]  # type: ignore[union-attr]
    assert_exact(broker, topic, tasks)
    with pytest.raises(TransientError, match="is not open any more: CompleteCommit"):
        bound[0].verify(prepared)


def test_the_driver_dies_between_commits_and_the_next_goes_on(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    for plan in (["die before"], ["commit", "die before"], ["die after"], ["commit", "die after"]):
        n = len(PLANS.setdefault("done", []))
        PLANS["done"].append("x")
        PLANS[topic] = list(plan)
        with pytest.raises(Died):
            rig.checkpoint(rig.driver(quick(rig, Crashing)), n, [rows(n, 0), rows(n, 1)])
        driver = rig.driver()
        replayed = rig.checkpoint(driver, n, [rows(n, 0), rows(n, 1)])
        assert replayed.replayed
        assert_exact(broker, topic, [rows(k, t) for k in range(n + 1) for t in (0, 1)])
    PLANS.pop("done")


def decide_and_die(rig: Rig, n: int, tasks: Sequence[Sequence[str]], plan: Sequence[str]) -> list[dict[str, Any]]:
    """Decide a checkpoint, die in its commits as planned, and return its committables."""
    sink = quick(rig, Crashing)
    PLANS[sink.transactional_id_prefix] = list(plan)
    before, rig.sink = rig.sink, sink
    try:
        with pytest.raises(Died):
            rig.checkpoint(rig.driver(sink), n, tasks)
    finally:
        rig.sink = before
    newest = Ledger(rig.storage).newest()
    assert newest is not None
    return list(newest.sinks["out"].committables)


@pytest.mark.parametrize("plan", [["die before"], ["commit", "die before"], ["commit", "commit", "die before"]])
def test_what_timed_out_after_the_decision_is_produced_again(
    rig: Rig, broker: EmbeddedKafka, topic: str, plan: list[str]
) -> None:
    tasks = [rows(0, 0), rows(0, 1), rows(0, 2)]
    committables = decide_and_die(rig, 0, tasks, plan)
    for committable in committables[len(plan) - 1 :]:
        wait_until_aborted(rig, committable)
    driver = rig.driver()
    assert driver.is_produced_again(0)
    # the tasks are numbered otherwise this time
    rig.checkpoint(driver, 0, tasks, lambda _: rig.write(0, tasks[::-1]))
    assert_exact(broker, topic, tasks)
    rig.checkpoint(driver, 1, [rows(1, 0)])
    assert_exact(broker, topic, [*tasks, rows(1, 0)])


def test_other_data_the_second_time_stops_the_job(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    for committable in decide_and_die(rig, 0, [rows(0, 0), rows(0, 1)], ["commit", "die before"])[1:]:
        wait_until_aborted(rig, committable)
    driver = rig.driver()
    with pytest.raises(TerminalError, match="did not produce the same again"):
        rig.checkpoint(driver, 0, [rows(0, 0), rows(0, 7)])
    assert_exact(broker, topic, [rows(0, 0)])
    assert ours_open(rig) == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_broker_that_is_killed_in_mid_write_neither_loses_nor_doubles(
    rig: Rig, broker: EmbeddedKafka, topic: str, guarantee: Any
) -> None:
    """What was on its way is sent again with the sequences it had. A broker that was killed may have forgotten them: the task is repeated."""
    small = {"batch.num.messages": "20"}
    sink = KafkaSink(broker.bootstrap_servers, topic, guarantee=guarantee, client_options=small)
    rig.driver()
    parts = [rows(n, 0, 400) for n in range(4)]

    def attempt(meanwhile: Callable[[], object], then: Callable[[], object]) -> list[Prepared]:
        writer = sink.open_writer(rig.context(0, 0))
        try:
            for part, act in zip(parts, (meanwhile, _nothing, then, _nothing), strict=True):
                writer.write(batch(part))
                act()
            return [Prepared("out", 0, payload) for payload in writer.prepare()]
        except TransientError as error:
            writer.abandon()
            if "OutOfOrder" not in error.what:
                raise
            return attempt(_nothing, _nothing)

    def start() -> None:
        time.sleep(1)  # so that something is sent to nobody
        broker.start()

    def kill() -> None:
        broker.kill()
        starting.start()  # a write may wait for the broker: it enters a partition into the transaction

    starting = threading.Thread(target=start)
    prepared = attempt(kill, starting.join)
    starting.join()
    for committable in sink.stage({}, prepared, None, 0).committables:  # type: ignore[arg-type]
        assert isinstance(sink.commit(committable), Committed)
    if guarantee == "exactly-once":
        assert_exact(broker, topic, parts)
    assert set(seen(broker, topic)) == {value for part in parts for value in part}


def _nothing() -> None:
    pass


def test_the_broker_is_killed_between_decision_and_commit(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    """No commit is on its way to it: one that a single broker answers just before it dies may be lost by Kafka, see docs/kafka-sink.md."""
    driver = rig.driver()

    class Restarting(KafkaSink):
        def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
            with lock:
                if not done:
                    done.append(1)
                    broker.restart()
            return super().commit(committable)

    done: list[int] = []
    lock = threading.Lock()
    sink = Restarting(broker.bootstrap_servers, topic, transactional_id_prefix=topic)
    driver = rig.driver(sink)
    rig.checkpoint(driver, 0, [rows(0, 0), rows(0, 1)])
    assert done
    assert_exact(broker, topic, [rows(0, 0), rows(0, 1)])


def test_a_broker_that_restarted_unnoticed_ends_nothing_before_its_partitions_are_led(
    rig: Rig, broker: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client connects again by itself, so that no question fails."""
    asked = Transactions(broker.bootstrap_servers, rig.sink.security.kafka_python)
    looked: list[str] = []
    look = asked._await_leaders
    monkeypatch.setattr(asked, "_await_leaders", lambda admin, tid: (looked.append(tid), look(admin, tid)))
    tasks = [rows(0, n) for n in range(3)]
    one, two, three = (item.payload for item in rig.write(0, tasks))

    def commit(payload: Mapping[str, Any]) -> str:
        return asked.end(payload["tid"], payload["pid"], payload["epoch"], commit=True)

    assert [commit(one), commit(two)] == ["NoError", "NoError"]
    assert looked == [one["tid"]]
    # A broker that is killed between its answer and its markers may lose the markers (docs/kafka-sink.md); not asked here.
    for payload in (one, two):
        wait_until(rig, payload, "CompleteCommit")
    broker.restart()
    time.sleep(1)
    assert commit(three) == "NoError"
    assert three["tid"] in looked[1:]
    assert_exact(broker, topic, tasks)
    asked.close()


def test_the_broker_is_down_when_the_driver_commits(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    driver = rig.driver()
    prepared = rig.write(0, [rows(0, 0)])
    broker.kill()
    try:
        impatient = Transactions(rig.sink.bootstrap_servers, rig.sink.security.kafka_python, timeout=0.5)
        with pytest.raises(CommitUnknown, match="no answer from Kafka"):
            impatient.end(prepared[0].payload["tid"], 0, 0, commit=True)
        impatient.close()
    finally:
        broker.start()
    rig.checkpoint(driver, 0, [rows(0, 0)], lambda _: prepared)
    assert_exact(broker, topic, [rows(0, 0)])


def test_duplicate_and_late_commits(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rows(0, 0)])
    newest = Ledger(rig.storage).newest()
    assert newest is not None
    (first,) = newest.sinks["out"].committables
    assert isinstance(rig.bound.commit(first), Committed)
    # the id is started over: the coordinator refuses, the marker still says that it was committed
    wait_until(rig, first, "CompleteCommit")
    told = asked(rig).describe(first["tid"])
    assert told is not None
    assert told.epoch == first["epoch"], "version 5 of EndTxn would have changed the epoch"
    (beside,) = rig.write(1, [rows(1, 0)])
    assert beside.payload["tid"] != first["tid"], "neighbouring checkpoints share none"
    rig.bound.abort(beside)
    (second,) = rig.write(2, [rows(1, 0)])
    assert second.payload["tid"] == first["tid"]
    assert (second.payload["pid"], second.payload["epoch"]) != (first["pid"], first["epoch"])
    assert isinstance(rig.bound.commit(first), Committed)
    assert_exact(broker, topic, [rows(0, 0)])
    rig.bound.abort(Prepared("out", 0, first))  # neither aborts what was committed nor touches the newer one
    assert ours_open(rig) == [first["tid"]]
    assert isinstance(rig.bound.commit(second.payload), Committed)
    assert_exact(broker, topic, [rows(0, 0), rows(1, 0)])


def test_an_aborted_transaction_stays_aborted(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    rig.driver()
    (gone,) = rig.write(0, [rows(0, 0)])
    rig.bound.abort(gone)
    rig.bound.abort(gone)
    assert isinstance(rig.bound.commit(gone.payload), Aborted)
    wait_until_aborted(rig, gone.payload)
    (newer,) = rig.write(0, [rows(0, 1)])
    assert newer.payload["tid"] == gone.payload["tid"]
    assert isinstance(rig.bound.commit(gone.payload), Aborted), "an open newer transaction must not block the answer"
    with pytest.raises(TransientError, match="not open any more"):
        rig.bound.verify([gone])
    assert isinstance(rig.bound.commit(newer.payload), Committed)
    assert_exact(broker, topic, [rows(0, 1)])


def test_another_cluster_knows_nothing_and_the_job_stops(rig: Rig) -> None:
    rig.driver()
    (prepared,) = rig.write(0, [rows(0, 0)])
    strange = {**prepared.payload, "tid": "elsewhere.00000000-00000000.h.0", "group": "elsewhere.00000000-00000000.h.0"}
    with pytest.raises(TerminalError, match="nobody knows what became of"):
        rig.bound.commit(strange)
    rig.bound.abort(prepared)


def test_lingering_transactions_are_aborted_on_start(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    """A reader is held up no longer than to the next start."""
    driver = rig.driver()
    rig.checkpoint(driver, 0, [rows(0, 0)])
    rig.child(1, rows(1, 0), "prepared")
    rig.child(1, rows(1, 1), "prepared")
    broker.produce(topic, [Record("by another", partition=p) for p in range(3)])
    assert seen(broker, topic)["by another"] < 3
    assert len(ours_open(rig)) == 2
    rig.driver()
    assert ours_open(rig) == []
    assert seen(broker, topic) == Counter([*rows(0, 0), *["by another"] * 3])


def test_two_sinks_of_one_prefix_do_not_touch_each_other(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    rig.driver()
    (prepared,) = rig.write(0, [rows(0, 0)])
    sibling = rig.sink.bind(job_id=rig.identity.job_id, sink="other")
    assert sibling.sweep({}, remove=True) == []
    stranger = rig.sink.bind(job_id="f" * 32, sink="out")
    with pytest.raises(DefinitionError, match="is in use by another job") as refused:
        stranger.sweep({}, remove=True)
    assert "transactional_id_prefix=" in refused.value.next
    assert isinstance(rig.bound.commit(prepared.payload), Committed)


class LogAndGoOn(KafkaSink):
    """The control: what cannot be committed is said to be committed."""

    def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
        super().commit(committable)
        return Committed()


class WithoutMarker(KafkaSink):
    """The control: every refusal is taken for an abort."""

    def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
        answer = self._asked().end(committable["tid"], committable["pid"], committable["epoch"], commit=True)
        return Committed() if answer == "NoError" else Aborted(answer)


def test_control_going_on_after_an_error_loses(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    for committable in decide_and_die(rig, 0, [rows(0, 0)], ["die before"]):
        wait_until_aborted(rig, committable)
    driver = rig.driver(quick(rig, LogAndGoOn))
    rig.checkpoint(driver, 0, [rows(0, 0)])
    assert seen(broker, topic) == Counter()


def test_control_without_the_marker_duplicates(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    for kind, times in ((WithoutMarker, 2), (KafkaSink, 1)):
        n = 2 - times
        (committed,) = decide_and_die(rig, n, [rows(n, 0)], ["die after"])
        wait_until(rig, committed, "CompleteCommit")
        (zombie,) = rig.write(n, [["zombie"]])  # begins the id anew before the commit is noted
        assert zombie.payload["tid"] == committed["tid"]
        driver = rig.driver(quick(rig, kind))
        rig.checkpoint(driver, n, [rows(n, 0)])
        assert set(Counter(v for v in seen(broker, topic).elements() if v.startswith(f"{n}/")).values()) == {times}
        assert "zombie" not in seen(broker, topic)


def test_a_checkpoint_longer_than_the_timeout_is_not_decided(rig: Rig, broker: EmbeddedKafka, topic: str) -> None:
    rig.sink = quick(rig)
    driver = rig.driver()

    def slow(_: SinkDirectives) -> list[Prepared]:
        prepared = rig.write(0, [rows(0, 0)])
        wait_until_aborted(rig, prepared[0].payload)
        return prepared

    with pytest.raises(TransientError, match="make transaction_timeout longer"):
        rig.checkpoint(driver, 0, [rows(0, 0)], slow)
    newest = Ledger(rig.storage).newest()
    assert newest is not None
    assert newest.checkpoint == -1
    rig.checkpoint(driver, 0, [rows(0, 0)])
    assert_exact(broker, topic, [rows(0, 0)])


def test_fsck_tells_what_is_pending_missing_and_nobodys_and_finishes_it(
    rig: Rig, broker: EmbeddedKafka, topic: str
) -> None:
    def check(*, fix: bool = False) -> FsckReport:
        return fsck(rig.storage, lambda name, said: rebuild_sink(said), clock=SystemClock(), fix=fix)

    sink = Crashing(broker.bootstrap_servers, topic, transactional_id_prefix=topic, transaction_timeout="60 s")
    PLANS[topic] = ["die before"]
    with pytest.raises(Died):
        rig.checkpoint(rig.driver(sink), 0, [rows(0, 0)])
    rig.child(1, rows(1, 0), "prepared")
    assert rig.epoch is not None
    rig.epoch.__exit__(None, None, None)
    rig.epoch = None
    report = check()
    assert [f.problem for f in report.findings["out"]] == ["pending"]
    assert len(report.orphans["out"]) == 1
    assert seen(broker, topic) == Counter()
    fixed = check(fix=True)
    assert (fixed.fixed, fixed.refused) == (True, None)
    assert ours_open(rig) == []
    assert check().clean
    assert_exact(broker, topic, [rows(0, 0)])
