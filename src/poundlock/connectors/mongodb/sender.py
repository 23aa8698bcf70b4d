"""Sends statements, and says of each that the server refused why: what is busy is asked again, a newer document ends the task."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock.connectors.mongodb.login import NOT_ALLOWED, MongoLogin, load_client
from poundlock.connectors.mongodb.statements import ID
from poundlock.connectors.write_order import POSITION_BITS
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.values import utc_text

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_STATEMENTS = {"update": "updates", "delete": "deletes", "insert": "documents"}
_DUPLICATE_KEY = 11000
_NO_SHARD_KEY = (61, 31025)  # ShardKeyNotFound, and that of an upsert without it
_BUSY = frozenset(
    {
        6, 7, 24, 46, 50, 63, 89, 91, 112, 133, 134, 150, 189, 202, 234, 246, 251, 262, 290, 365,  # hosts, locks, time, configuration
        9001, 10058, 10107, 11600, 11602, 13388, 13435, 13436, 14031, 16500, 17382,  # primaries, shards, disk, rate
    }
)  # fmt: skip
"""Codes of what may pass: https://www.mongodb.com/docs/manual/reference/error-codes/"""

_TRIES = 5  # of a document whose id is taken by none that is newer, which two upserts at once can be


@dataclass(frozen=True, slots=True)
class MongoTarget:
    """Where statements go.

    Args:
        version_field: of documents.
    """

    database: str
    collection: str
    version_field: str


class MongoStatementSender:
    """Sends the statements of one task attempt; may be used by several threads.

    Args:
        begun_ms: what the versions of this attempt begin with.
        retry_s: how long what the server is too busy for is asked again, seconds.
        pause: waits; for tests.
    """

    def __init__(
        self,
        login: MongoLogin,
        target: MongoTarget,
        begun_ms: int,
        retry_s: float,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._login, self._target, self._begun_ms = login, target, begun_ms
        self._retry_s, self._pause = retry_s, pause
        self._raw = load_client("bson.raw_bson").RawBSONDocument
        self._failures = load_client("pymongo.errors")

    def send(self, command: str, lines: pa.Array) -> dict[int, str]:
        """Send statements until each is carried out or refused; return why the server refused some, by their place.

        Args:
            command: "update", "delete", or "insert", whose documents have their ids already.

        Raises:
            TransientError: it was too busy for too long, nobody answers, or a document is newer than this attempt.
            DefinitionError: it lets this user write nothing, or the collection is none that can be written to like that.
            TerminalError: it does not understand.
        """
        statements = dict(enumerate(map(self._raw, lines.to_pylist())))
        refused: dict[int, str] = {}
        tries = dict.fromkeys(statements, 0)
        since, wait = time.monotonic(), _FIRST_WAIT_S
        while statements:
            again, why = self._once(command, statements, refused, tries)
            if not again:
                break
            if time.monotonic() - since > self._retry_s:
                raise TransientError(
                    f"MongoDB at {self._login.name} did not take {len(again)} documents in {self._retry_s:g} s: {why}",
                    next="see that the cluster has a primary and room, write with fewer tasks, or make retry_for= longer; the"
                    " checkpoint is repeated",
                )
            self._pause(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, _LONGEST_WAIT_S)
            statements = {place: statements[place] for place in again}
        return refused

    def _once(
        self, command: str, statements: Mapping[int, Any], refused: dict[int, str], tries: dict[int, int]
    ) -> tuple[list[int], str]:
        """Send once; note what is refused, and return the places of what has to be sent again, and why."""
        places = list(statements)
        try:
            answer = self._ask(command, list(statements.values()))
        except self._failures.ConnectionFailure as error:
            return places, self._login.explain(error, "writing").what
        except self._failures.PyMongoError as error:
            if isinstance(error, self._failures.OperationFailure) and self._may_pass(error.code, error.details):
                return places, str(error)
            raise self._login.explain(error, "writing") from error
        failed = answer.get("writeErrors", ())
        if len(places) > 1 and not _is_whole(command, answer, len(places)):
            return self._alone(command, statements, refused, tries)
        again: list[int] = []
        why = ""
        for each in failed:
            place, code, text = places[int(each["index"])], each.get("code"), _text(each)
            if code == _DUPLICATE_KEY:
                if command == "insert" and _is_of_id(each):
                    continue  # it arrived, and the answer was lost
                verdict = self._taken(statements[place], each, tries, place) if command == "update" else text
                if verdict == "":
                    continue
                if verdict is None:
                    again.append(place)
                    why = text
                else:
                    refused[place] = verdict
            elif self._may_pass(code, each):
                again.append(place)
                why = text
            elif code in NOT_ALLOWED or code in _NO_SHARD_KEY:
                raise DefinitionError(
                    f"MongoDB at {self._login.name} takes no document: {text}",
                    next="give this user the role readWrite, and shard the collection by _id where it is sharded",
                )
            else:
                refused[place] = text
        if "writeConcernError" in answer:
            # All of it was done, and may be undone when another node becomes the primary.
            left = [place for place in places if place not in refused]
            return left, _text(answer["writeConcernError"])
        return again, why

    def _alone(
        self, command: str, statements: Mapping[int, Any], refused: dict[int, str], tries: dict[int, int]
    ) -> tuple[list[int], str]:
        """Send each statement in a request of its own; return the places of what has to be sent again, and why."""
        again: list[int] = []
        why = ""
        for place, statement in statements.items():
            left, text = self._once(command, {place: statement}, refused, tries)
            again += left
            why = text or why
        return again, why

    def _ask(self, command: str, statements: list[Any]) -> Mapping[str, Any]:
        database = self._login.client()[self._target.database]
        asked = {
            command: self._target.collection,
            _STATEMENTS[command]: statements,
            "ordered": False,
            "writeConcern": {"w": "majority", "j": True},
        }
        answer: Mapping[str, Any] = database.command(asked)
        if "n" not in answer and "writeErrors" not in answer:
            raise TerminalError(
                f"what answers at {self._login.name} does not say what it did: {answer}",
                next="see what stands before the cluster",
            )
        return answer

    def _may_pass(self, code: Any, details: Any) -> bool:
        labels = details.get("errorLabels", ()) if isinstance(details, Mapping) else ()
        return code in _BUSY or "RetryableWriteError" in labels

    def _taken(self, statement: Any, error: Mapping[str, Any], tries: dict[int, int], place: int) -> str | None:
        """Return "" where a row of the same checkpoint has replaced it, None to send it again, or why it is refused.

        Raises:
            TransientError: the document is newer than this attempt, which therefore must not go on.
        """
        with self._login.errors("looking for a document"):
            collection = self._login.client()[self._target.database][self._target.collection]
            document = collection.find_one({ID: statement["q"][ID]}, {self._target.version_field: 1})
        version = None if document is None else document.get(self._target.version_field)
        known = version if isinstance(version, int) else -1
        begun = known >> POSITION_BITS
        if begun > self._begun_ms:
            raise TransientError(
                f"a document at {self._login.name} has version {known} (of {utc_text(begun)}), and this checkpoint was begun"
                f" {utc_text(self._begun_ms)}",
                next="nothing, where a newer driver runs; else another job writes the same documents, or a clock was ahead of this one",
            )
        if begun == self._begun_ms and _is_of_id(error):
            return ""
        tries[place] += 1
        return _text(error) if tries[place] >= _TRIES or (document and not _is_of_id(error)) else None


def _is_whole(command: str, answer: Mapping[str, Any], count: int) -> bool:
    """Return whether an answer says of each of so many statements what became of it.

    FerretDB's does not: it ends with the first one that fails, whatever the order, and does not say which that was.
    """
    failed = len(answer.get("writeErrors", ()))
    return not failed if command == "delete" else int(answer.get("n", 0)) + failed == count


def _is_of_id(error: Mapping[str, Any]) -> bool:
    """Return whether a key that is there already is that of the `_id`; so is it where the server does not say of which index it is."""
    pattern = error.get("keyPattern")
    if isinstance(pattern, Mapping):
        return list(pattern) == [ID]
    text = str(error.get("errmsg", ""))
    return "index:" not in text or f"index: {ID}" in text


def _text(error: Mapping[str, Any]) -> str:
    return " ".join(str(error.get("errmsg", error)).split())
