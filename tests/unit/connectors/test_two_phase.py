"""The frame around a user's two-phase-commit sink: what is called where, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from poundlock import FileSource, Job, TerminalError, TwoPhaseCommitSink
from poundlock.checkpoint.participant import Committed, Kind, Occasion, Prepared, WriterContext
from poundlock.connectors.two_phase import TwoPhaseParticipant
from poundlock.plan.plan import make_plan
from support.sinks import JOB, lines


class Recording(TwoPhaseCommitSink):
    """Remembers every call; `calls` is shared by all copies."""

    def __init__(self, transaction: Any = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.transaction = transaction
        self.open: list[str] = []

    def begin_transaction(self, id: str) -> Any:
        self.calls.append(("begin", id))
        return id if self.transaction is None else self.transaction

    def invoke(self, transaction: Any, record: Mapping[str, Any]) -> None:
        self.calls.append(("invoke", record["value"]))
        if record["value"] == b"bad":
            raise ValueError("bad")

    def pre_commit(self, transaction: Any) -> None:
        self.calls.append(("pre_commit",))

    def commit(self, transaction: Any) -> None:
        self.calls.append(("commit", transaction))

    def abort(self, transaction: Any) -> None:
        self.calls.append(("abort", transaction))

    def lingering(self, prefix: str) -> Iterable[Any]:
        return [name for name in self.open if name.startswith(prefix)]


def bound(sink: TwoPhaseCommitSink, name: str = "out") -> TwoPhaseParticipant:
    return sink.as_participant().bind(job_id=JOB, sink=name)


def context(attempt: str = "a1") -> WriterContext:
    return WriterContext(JOB, "out", 1, 7, 3, attempt, {}, lambda reject: None, 0)


def test_a_transaction_is_begun_written_prepared_and_committed() -> None:
    sink = Recording()
    participant = bound(sink)
    assert participant.kind is Kind.TRANSACTIONAL
    writer = participant.open_writer(context())
    assert writer.write(lines(b"x", b"y")) == 2
    (payload,) = writer.prepare()
    name = "0123456789ab-out-7-3-a1"
    assert payload == {"v": 1, "transaction": name, "rows": 2}
    staged = participant.stage({}, [Prepared("out", 3, payload)], Occasion.CHECKPOINT, 0)
    assert staged.state == {"v": 1, "pending": []}
    assert participant.commit(dict(staged.committables[0])) == Committed({"transaction": name})
    assert sink.calls == [("begin", name), ("invoke", b"x"), ("invoke", b"y"), ("pre_commit",), ("commit", name)]


def test_each_attempt_works_on_a_copy() -> None:
    sink = Recording()
    participant = bound(sink)
    first, second = participant.open_writer(context()), participant.open_writer(context("a2"))
    assert first._sink is not second._sink is not sink
    assert [name for _, name in sink.calls] == ["0123456789ab-out-7-3-a1", "0123456789ab-out-7-3-a2"]


def test_what_is_not_decided_is_aborted_and_what_was_left_is_swept() -> None:
    sink = Recording()
    participant = bound(sink)
    participant.open_writer(context()).abandon()
    participant.abort(Prepared("out", 0, {"v": 1, "transaction": "t", "rows": 0}))
    assert [call for call in sink.calls if call[0] == "abort"] == [("abort", "0123456789ab-out-7-3-a1"), ("abort", "t")]
    sink.open = ["0123456789ab-out-9-0-x", "0123456789ab-out_32_-9-0-x", "other"]
    assert [orphan.path for orphan in participant.sweep({}, remove=False)] == ['transaction "0123456789ab-out-9-0-x"']
    asked: list[str] = []
    participant.sweep({}, remove=True, check=lambda: asked.append("checked"))
    assert asked == ["checked"]
    assert sink.calls[-1] == ("abort", "0123456789ab-out-9-0-x")
    assert sink.as_participant().sweep({}, remove=True) == [], "nobody's until it is bound"


def test_names_of_sinks_do_not_run_into_each_other() -> None:
    assert bound(Recording(), "a-1").prefix != bound(Recording(), "a").prefix + "1-"
    assert len({bound(Recording(), name).prefix for name in ("a b", "a-b", "a_b", "a.b", "ab")}) == 5


@pytest.mark.parametrize("transaction", [object(), {"file": b"x"}, (1, 2), {1: "x"}, float("nan")])
def test_a_transaction_must_be_plain_json(transaction: Any) -> None:
    sink = Recording(transaction)
    writer = bound(sink).open_writer(context())
    with pytest.raises(TerminalError, match="which is not plain JSON"):
        writer.prepare()
    assert sink.calls[-1][0] == "abort"


def test_sink_to_takes_the_users_object_and_explain_names_it() -> None:
    job = Job("a", on_error="skip")
    job.from_source(FileSource("/in"), name="in").sink_to(Recording(), name="out")
    assert isinstance(make_plan(job).sinks["out"], TwoPhaseParticipant)
    assert "out: sink Recording (two-phase commit; exactly-once) <- in" in job.explain()


def test_the_four_methods_must_be_there() -> None:
    class Half(TwoPhaseCommitSink):
        def commit(self, transaction: Any) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
