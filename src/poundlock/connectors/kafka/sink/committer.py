"""The driver's half of the Kafka sink: transactions verified, committed, aborted and swept, from any process.

An answer of the coordinator that is not plainly "committed" proves nothing by itself; then the marker decides, which had
the same fate as the data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from poundlock.checkpoint.committer import timeout_warning
from poundlock.checkpoint.participant import Aborted, Committed, Finding, Orphan, Prepared
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames, transaction_name
from poundlock.connectors.kafka.sink.transactions import UNSTABLE, Described, Marker, Transactions
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError
from poundlock.threads import in_thread

_log = logging.getLogger(__name__)
_DONE = "NoError"
# Answers after which this very transaction can never be committed any more, if it was not before.
_FORGOTTEN = frozenset(("InvalidProducerIdMappingError", "TransactionalIdNotFoundError"))
_OVER = _FORGOTTEN | {"InvalidTxnStateError", "ProducerFencedError", "InvalidProducerEpochError"}
_DAY_MS = 86_400_000
LONGER = "make transaction_timeout longer or the checkpoints smaller; the checkpoint is repeated"
OTHER_ROWS = (
    "make what stands before the sink deterministic, and keep the parallelism until a checkpoint is decided; "
    'commit_mode="two_phase" asks less'
)
"""What to do where tasks that commit by themselves give other rows than before."""


class OpenTransaction(SinkValue, frozen=True):
    """A transaction that a task wrote, and left open or, with commit_mode="per_task", committed.

    Its marker is in `group` and `marker_topic`; the broker aborts it at `deadline_ms`. Rows, bytes and digest are of its messages.
    """

    tid: str
    pid: int
    epoch: int
    group: str
    marker_topic: str
    transaction: str
    rows: int
    bytes: int
    digest: str
    begun_ms: int = 0
    deadline_ms: int = 0
    committed: bool = False


def verify(
    asked: Transactions, beside: Transactions, names: TransactionNames, prepared: Sequence[Prepared], now_ms: int
) -> None:
    """Check that every transaction is open and will be for a while, and abort what other attempts of the tasks left open.

    Called before the decision, when every task has ended and nothing is decided that is not carried out: what is open and
    was not handed over is nobody's, and would hold readers up. What is asked `beside` is asked at once, where it is another connection.

    Raises:
        TransientError: a transaction is gone or about to be.
    """
    named = {OpenTransaction.of(item.payload).tid for item in prepared}
    described = in_thread(lambda: beside.describe_all(sorted(named)), "poundlock-describe")
    _end(asked, _open(asked, names, named))
    known = described.result()
    for item in prepared:
        payload = OpenTransaction.of(item.payload)
        status = known.get(payload.tid)
        if status is None or not status.is_open(payload.pid, payload.epoch):
            raise TransientError(
                f"transaction {payload.transaction} is not open any more: {_say(status)}",
                next=f"if it ran out of time, {LONGER}",
            )
        left = status.started_ms + status.timeout_ms - now_ms
        if left < min(status.timeout_ms // 10, 30_000):
            raise TransientError(
                f"transaction {payload.transaction} has {left} ms left of {status.timeout_ms} ms", next=LONGER
            )


def verify_tasks(
    asked: Transactions, names: TransactionNames, named: Collection[str], checkpoint: int, marker_topic: str
) -> None:
    """Check that no task but those that have rows now has committed rows of a checkpoint, in an attempt that was cut otherwise.

    Raises:
        TerminalError: one has; the rows are visible, some of them twice.
    """
    for group in asked.groups():
        if names.commits_itself(group) and group not in named:
            marker = asked.marker(group, marker_topic, stable=False)
            if isinstance(marker, Marker) and marker.checkpoint == checkpoint:
                raise TerminalError(
                    f"{group} has committed {marker.rows} messages of checkpoint {marker.checkpoint} in an earlier attempt, "
                    "and none of its tasks gives them now",
                    next=OTHER_ROWS,
                )


def commit(asked: Transactions, committable: OpenTransaction, now_ms: int) -> Committed | Aborted:
    """Commit a transaction, or find out what became of it.

    Raises:
        CommitUnknown: neither the coordinator nor the marker can say yet.
        TerminalError: both have forgotten it.
    """
    if committable.committed:  # by its task
        return Committed(_detail(committable))
    timeout_ms = committable.deadline_ms - committable.begun_ms
    warning = timeout_warning(begun_ms=committable.begun_ms, now_ms=now_ms, timeout_ms=timeout_ms, ratio=0.5)
    answer = asked.end(committable.tid, committable.pid, committable.epoch, commit=True)
    if answer == _DONE:
        if warning is not None:
            _log.warning("%s: %s", committable.transaction, warning)
        return Committed(_detail(committable))
    if answer not in _OVER:
        raise CommitUnknown(
            f"Kafka at {asked.servers} answers {answer} to the commit of {committable.transaction}",
            next="see that the brokers run, and that this user may WRITE the transactional ids of the prefix",
        )
    return _outcome(asked, committable, answer, now_ms)


def _outcome(asked: Transactions, committable: OpenTransaction, answer: str, now_ms: int) -> Committed | Aborted:
    """Return what became of a transaction that cannot be committed now: whether its marker is there decides."""
    tid, pid, epoch = committable.tid, committable.pid, committable.epoch
    ours, reason = Marker(tid, pid, epoch), f"{committable.transaction}: {answer}"
    group, topic = committable.group, committable.marker_topic
    marker = asked.marker(group, topic, stable=True)
    if marker == ours:
        return Committed(_detail(committable))
    if marker == UNSTABLE:
        if asked.marker(group, topic, stable=False) == ours:
            return Committed(_detail(committable))
        status = asked.describe(tid)
        # Whoever initialised the id after us could do so only when our transaction was ended and its markers written. So
        # the transaction that is open is not ours, and what was committed before it is not ours either.
        if status is not None and status.state == "Ongoing" and (status.pid, status.epoch) != (pid, epoch):
            return Aborted(reason)
        # A broker that has just started ends what ran out of time while it was down, and drops the word of it for
        # partitions that have no leader yet: the group then stays unstable for ever, and the coordinator's word stands.
        if _ran_out(status, committable):
            return Aborted(reason)
        raise CommitUnknown(f"{reason}; a transaction of this id is being ended: {_say(status)}")
    if marker is None:
        status = asked.describe(tid)
        proven = status is not None and status.pid == pid and status.state == "CompleteAbort"
        if not proven and (answer in _FORGOTTEN or now_ms - committable.deadline_ms > _DAY_MS):
            raise TerminalError(
                f"nobody knows what became of {committable.transaction}: {answer}, and its marker is gone",
                next=f"look whether the topic has the {committable.rows} messages of digest {committable.digest}; "
                "Kafka forgets transactions and markers after some days, and another cluster knows none",
            )
    return Aborted(reason)


def _detail(committable: OpenTransaction) -> Mapping[str, Any]:
    return {"transaction": committable.transaction, "rows": committable.rows, "bytes": committable.bytes}


def abort(asked: Transactions, prepared: Prepared) -> None:
    """Abort a transaction that no decision names. One that is gone already, or was started over, is no error."""
    payload = OpenTransaction.of(prepared.payload)
    asked.end(payload.tid, payload.pid, payload.epoch, commit=False)


def sweep(asked: Transactions, names: TransactionNames, *, remove: bool, check: Callable[[], None]) -> Sequence[Orphan]:
    """Find open transactions of this sink; everything decided has been committed, so they are of attempts that died."""
    left = _open(asked, names)
    if remove and left:
        check()
        _end(asked, left)
    return [Orphan(f"transaction/{transaction_name(tid, t.pid, t.epoch)}", 0, t.started_ms) for tid, t in left.items()]


def refuse_shared_prefix(asked: Transactions, names: TransactionNames) -> None:
    """Raise DefinitionError if another job has an open transaction under the prefix."""
    for tid in asked.ongoing():
        if names.foreign(tid):
            raise DefinitionError(
                f"transactional_id_prefix={names.prefix!r} is in use by another job: {tid} has an open transaction",
                next=f'give this sink a prefix of its own, such as transactional_id_prefix="{names.prefix}-2"; '
                "if that job is gone, its transaction ends by its timeout",
            )


def _open(asked: Transactions, names: TransactionNames, but: Collection[str] = ()) -> dict[str, Described]:
    """Return the transactional ids of a sink that have a transaction open, but for some."""
    tids = [tid for tid in asked.ongoing() if names.ours(tid) and tid not in but]
    return {tid: status for tid, status in asked.describe_all(tids).items() if status.state == "Ongoing"}


def _end(asked: Transactions, open_ones: Mapping[str, Described]) -> None:
    for tid, status in open_ones.items():
        asked.end(tid, status.pid, status.epoch, commit=False)


def _ran_out(status: Described | None, committable: OpenTransaction) -> bool:
    """Return whether it is this transaction that was aborted; one that ran out of time is aborted under the next epoch."""
    if status is None or (status.state, status.pid) != ("CompleteAbort", committable.pid):
        return False
    return status.epoch - committable.epoch in (0, 1)


def inspect(asked: Transactions, committable: OpenTransaction) -> Sequence[Finding]:
    """Say whether a decided transaction is open or was aborted; one whose id was used again cannot be looked at any more."""
    status = asked.describe(committable.tid)
    if status is None or status.pid != committable.pid or committable.committed:
        return []
    place = f"transaction/{committable.transaction}"
    if status.epoch == committable.epoch and status.state in ("Ongoing", "PrepareCommit"):
        return [Finding("pending", place, expected_bytes=committable.bytes)]
    ours = Marker(committable.tid, committable.pid, committable.epoch)
    if (
        _ran_out(status, committable)
        and asked.marker(committable.group, committable.marker_topic, stable=False) != ours
    ):
        return [Finding("missing", place, expected_bytes=committable.bytes)]
    return []


def _say(status: Described | None) -> str:
    return "the broker does not know it" if status is None else f"{status.state}, producer {status.pid}:{status.epoch}"
