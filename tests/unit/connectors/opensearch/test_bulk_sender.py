"""Answers of a cluster to a bulk: what is sent again, what is refused, and what ends the task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, TransientError
from poundlock.connectors.opensearch.login import OpenSearchLogin
from poundlock.connectors.opensearch.sender import BulkSender
from poundlock.connectors.write_order import POSITION_BITS
from support.scripted_http import Asked, ScriptedHttp

BEGUN = 1_790_000_000_000
LINES = pa.array([f"line {n}\n".encode() for n in range(4)], pa.large_binary())
OK = {"index": {"status": 201}}
waits: list[float] = []


@pytest.fixture(autouse=True)
def no_waits() -> None:
    waits.clear()


def items(*each: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps({"errors": any("error" in one["index"] for one in each), "items": list(each)}).encode()


def failed(status: int, type: str, reason: str = "because") -> dict[str, Any]:
    return {"index": {"status": status, "error": {"type": type, "reason": reason}}}


def sent(
    answers: Sequence[tuple[int, bytes]] | Callable[[Asked], tuple[int, bytes]], retry_s: float = 60.0, **login: Any
) -> tuple[dict[int, str], list[bytes]]:
    """Send the lines to a server that gives these answers; return what was refused, and the bodies that it got."""
    left = iter(answers) if not callable(answers) else None
    with ScriptedHttp(answers if callable(answers) else lambda asked: next(left)) as server:  # type: ignore[arg-type]
        opened = OpenSearchLogin((server.url,), **login).open()
        refused = BulkSender(opened, "orders", BEGUN, retry_s, waits.append).send(LINES)
        assert {asked.path for asked in server.asked} == {
            "/orders/_bulk?filter_path=errors,items.*.status,items.*.error"
        }
        return refused, [asked.body for asked in server.asked]


def test_what_the_server_is_too_busy_for_is_sent_again_alone() -> None:
    busy = failed(429, "rejected_execution_exception")
    refused, bodies = sent([items(OK, busy, OK, busy), items(busy, OK), items(OK)])
    assert refused == {}
    assert bodies == [b"line 0\nline 1\nline 2\nline 3\n", b"line 1\nline 3\n", b"line 1\n"]
    assert len(waits) == 2
    assert 0.05 <= waits[0] <= 0.1 <= waits[1] <= 0.2


def test_a_busy_server_a_lost_answer_and_a_bad_gateway_are_asked_again() -> None:
    refused, bodies = sent([(429, b"{}"), (0, b""), (502, b"<html>"), (200, b"<html>"), items(OK, OK, OK, OK)])
    assert refused == {}
    assert len(bodies) == 5
    assert len(set(bodies)) == 1


def test_a_server_that_stays_busy_ends_the_task() -> None:
    with pytest.raises(TransientError, match="did not take 4 documents in 0 s: error: too busy"):
        sent(lambda asked: (429, b'{"error": {"type": "error", "reason": "too busy"}}'), retry_s=0.0)


def test_documents_that_do_not_fit_are_refused_one_by_one() -> None:
    poison = {"type": "mapper_parsing_exception", "reason": "failed", "caused_by": {"type": "x", "reason": "no number"}}
    refused, _ = sent([items(OK, {"index": {"status": 400, "error": poison}}, OK, OK)])
    assert refused == {1: "mapper_parsing_exception: failed (no number)"}


def test_a_request_that_is_too_long_is_cut_until_it_fits() -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        lines = asked.body.count(b"\n")
        if lines > 2 or b"line 3" in asked.body:
            return 413, b""
        return items(*[OK] * lines)

    refused, bodies = sent(answer)
    assert refused == {3: "the server takes no request of this length"}
    assert bodies == [
        b"line 0\nline 1\nline 2\nline 3\n", b"line 0\nline 1\n", b"line 2\nline 3\n", b"line 2\n", b"line 3\n",
    ]  # fmt: skip


def test_a_newer_document_ends_the_task_and_one_of_the_same_checkpoint_does_not() -> None:
    def conflict(version: int) -> dict[str, Any]:
        reason = f"[a]: version conflict, current version [{version}] is higher than the one provided [1]"
        return failed(409, "version_conflict_engine_exception", reason)

    refused, _ = sent([items(OK, conflict(BEGUN << POSITION_BITS | 5), OK, OK)])
    assert refused == {}
    with pytest.raises(TransientError, match="2026-09-21") as caught:
        sent([items(OK, conflict(BEGUN + 1 << POSITION_BITS), OK, OK)])
    assert "another job writes the same documents" in caught.value.next
    with pytest.raises(TransientError, match="unknown"):
        sent([items(OK, failed(409, "version_conflict_engine_exception"), OK, OK)])


@pytest.mark.parametrize(
    "answer",
    [
        items(OK, failed(404, "index_not_found_exception"), OK, OK),
        items(OK, failed(400, "index_closed_exception"), OK, OK),
        items(OK, failed(403, "security_exception"), OK, OK),
        (401, b'{"error": "Unauthorized"}'),
        (403, b'{"error": {"type": "security_exception", "reason": "no permissions"}}'),
    ],
)
def test_what_is_no_rows_fault_ends_the_job(answer: tuple[int, bytes]) -> None:
    with pytest.raises(DefinitionError):
        sent([answer])


def test_a_block_of_the_disk_is_waited_for() -> None:
    refused, bodies = sent([items(*[failed(403, "cluster_block_exception")] * 4), items(OK, OK, OK, OK)])
    assert refused == {}
    assert len(bodies) == 2


def test_the_next_host_is_asked_where_one_does_not_answer_and_secrets_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_PASSWORD", "pässword")
    with ScriptedHttp(lambda asked: items(OK, OK, OK, OK)) as server:
        login = OpenSearchLogin(
            ("http://127.0.0.1:1", server.url), "etl", "env:OS_PASSWORD", {"X-Who": "env:OS_PASSWORD"}
        )
        opened = login.open()
        assert BulkSender(opened, None, BEGUN, 1.0).send(LINES) == {}
        assert BulkSender(opened, None, BEGUN, 1.0).send(LINES) == {}
        first = server.asked[0]
        assert first.path.startswith("/_bulk?")
        assert first.headers["authorization"] == "Basic ZXRsOnDDpHNzd29yZA=="
        assert "pässword" not in repr(login)
