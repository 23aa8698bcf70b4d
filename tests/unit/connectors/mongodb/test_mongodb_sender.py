"""Answers of a server to statements: what is sent again, what is refused, and what ends the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pyarrow as pa
import pytest
from pymongo.errors import AutoReconnect, OperationFailure

from poundlock import DefinitionError, PoundlockError, TerminalError, TransientError
from poundlock.connectors.mongodb import login as logins
from poundlock.connectors.mongodb.login import MongoLogin
from poundlock.connectors.mongodb.sender import MongoStatementSender, MongoTarget
from poundlock.connectors.write_order import POSITION_BITS

BEGUN = 1_790_000_000_000
LINES = pa.array([bson.encode({"q": {"_id": n}, "u": {}}) for n in range(4)], pa.large_binary())
OF_ID = "E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 1 }"
OF_OTHER = "E11000 duplicate key error collection: test.c index: word_1 dup key: { word: 1 }"
DONE = {"ok": 1.0}
Answer = Mapping[str, Any] | Exception


class ScriptedClient:
    """A client whose server gives these answers, and has these versions of documents."""

    def __init__(self, answers: Sequence[Answer], versions: Mapping[int, Any]) -> None:
        self._answers, self._versions = iter(answers), versions
        self.asked: list[list[int]] = []

    def __getitem__(self, name: str) -> ScriptedClient:
        return self

    def command(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        assert (asked["ordered"], asked["writeConcern"]) == (False, {"w": "majority", "j": True})
        statements = asked.get("updates") or asked.get("deletes") or asked["documents"]
        self.asked.append([each["q"]["_id"] for each in statements])
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        count = len(statements) - len(answer.get("writeErrors", ()))
        return {"n": count, **answer} if "ok" in answer else answer

    def find_one(self, query: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"_version": self._versions[query["_id"]]} if query["_id"] in self._versions else None


def errors(**each: Any) -> Mapping[str, Any]:
    """Return an answer in which some statements failed: `at1=(code, message)`."""
    made = [{"index": int(at[2:]), "code": code, "errmsg": text} for at, (code, text) in each.items()]
    return {"ok": 1.0, "writeErrors": made}


def sent(
    monkeypatch: pytest.MonkeyPatch,
    *answers: Answer,
    versions: Mapping[int, Any] | None = None,
    command: str = "update",
    retry_s: float = 60.0,
) -> tuple[dict[int, str], list[list[int]]]:
    client = ScriptedClient(answers, versions or {})
    monkeypatch.setattr(logins.MongoLogin, "client", lambda self: client)
    login = MongoLogin("mongodb://a:1", None, None, None, 5.0)
    sender = MongoStatementSender(login, MongoTarget("test", "c", "_version"), BEGUN, retry_s, lambda seconds: None)
    return sender.send(command, LINES), client.asked


def test_what_may_pass_is_sent_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, asked = sent(
        monkeypatch,
        AutoReconnect("gone"),
        OperationFailure("stepped down", 10107),
        OperationFailure("again", 5, {"errorLabels": ["RetryableWriteError"]}),
        errors(at1=(112, "WriteConflict"), at3=(16500, "rate")),
        errors(at1=(91, "shutdown")),
        DONE,
    )
    assert refused == {}
    assert asked == [[0, 1, 2, 3]] * 4 + [[1, 3], [3]]


def test_what_a_majority_has_not_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {
        **errors(at1=(121, "Document failed validation")),
        "writeConcernError": {"code": 64, "errmsg": "timed out"},
    }
    refused, asked = sent(monkeypatch, failed, DONE)
    assert refused == {1: "Document failed validation"}
    assert asked == [[0, 1, 2, 3], [0, 2, 3]]


def test_a_server_that_stays_busy_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransientError, match="did not take 4 documents in 0 s: MongoDB at a:1, writing: gone"):
        sent(monkeypatch, AutoReconnect("gone"), retry_s=0.0)


def test_a_document_of_the_same_checkpoint_stays_and_a_newer_one_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, asked = sent(monkeypatch, errors(at1=(11000, OF_ID)), versions={1: (BEGUN << POSITION_BITS) + 7})
    assert (refused, len(asked)) == ({}, 1)
    with pytest.raises(TransientError, match="and this checkpoint was begun 2026-09-21"):
        sent(monkeypatch, errors(at1=(11000, OF_ID)), versions={1: (BEGUN + 1) << POSITION_BITS})


@pytest.mark.parametrize("version", [None, 3, "theirs"])
def test_a_document_that_appeared_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch, version: Any) -> None:
    refused, asked = sent(monkeypatch, errors(at1=(11000, OF_ID)), DONE, versions={1: version})
    assert (refused, asked) == ({}, [[0, 1, 2, 3], [1]])


def test_where_not_every_statement_is_accounted_for_each_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {"n": 0, "ok": 1.0, "writeErrors": [{"index": 0, "code": 121, "errmsg": "no"}]}
    refused, asked = sent(monkeypatch, ended, DONE, DONE, ended, errors(at0=(112, "conflict")), DONE)
    assert (refused, asked) == ({2: "no"}, [[0, 1, 2, 3], [0], [1], [2], [3], [3]])
    assert sent(monkeypatch, {"n": 0, "ok": 1.0}, command="delete") == ({}, [[0, 1, 2, 3]])  # which were gone before


def test_an_index_of_the_users_refuses_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent(monkeypatch, errors(at2=(11000, OF_OTHER)), versions={2: 5})[0] == {2: OF_OTHER}
    refused, asked = sent(monkeypatch, errors(at2=(11000, OF_OTHER)), *[errors(at0=(11000, OF_OTHER))] * 4)
    assert (refused, len(asked)) == ({2: OF_OTHER}, 5)  # there may have been one, and it is gone: it is tried


def test_what_was_added_and_not_answered_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = errors(at0=(11000, OF_ID), at1=(11000, OF_OTHER))
    assert sent(monkeypatch, answer, command="insert")[0] == {1: OF_OTHER}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (OperationFailure("not authorized on test", 13), DefinitionError, "not authorized on test"),
        (OperationFailure("unknown", 59), DefinitionError, "MongoDB at a:1, writing: unknown"),
        (errors(at1=(13, "not authorized")), DefinitionError, "takes no document: not authorized"),
        (errors(at1=(61, "no shard key")), DefinitionError, "takes no document: no shard key"),
        ({"who": "a proxy"}, TerminalError, "does not say what it did"),
    ],
)
def test_what_is_no_rows_fault_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: type[PoundlockError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        sent(monkeypatch, answer)
