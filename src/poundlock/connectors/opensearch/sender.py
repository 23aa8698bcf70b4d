"""Sends bulks, and says of each document that the server refused why: what is busy is asked again, a newer version ends the task."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.connectors.opensearch.bulk_lines import body_of
from poundlock.connectors.opensearch.login import JSON_LINES, OpenSearchServer, error_text
from poundlock.connectors.write_order import POSITION_BITS
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.formats.arrays import indices_of
from poundlock.values import utc_text

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_FILTER = "filter_path=errors,items.*.status,items.*.error"
_CURRENT = re.compile(r"current version \[(\d+)\]")
_NO_ROWS_FAULT = ("index_closed_exception", "index_not_found_exception", "security_exception")


class _Item(msgspec.Struct):
    status: int
    error: Any = None


class _Bulk(msgspec.Struct):
    errors: bool
    items: list[dict[str, _Item]] = msgspec.field(default_factory=list)


class _Outcome(msgspec.Struct):
    errors: bool


class BulkSender:
    """Sends the bulks of one task attempt; may be used by several threads.

    Args:
        index: of the request; None = each action names its own.
        begun_ms: what the versions of this attempt begin with.
        retry_s: how long what the server is too busy for is asked again, seconds.
        pause: waits; for tests.
    """

    def __init__(
        self,
        server: OpenSearchServer,
        index: str | None,
        begun_ms: int,
        retry_s: float,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server, self._begun_ms, self._retry_s, self._pause = server, begun_ms, retry_s, pause
        self._path = f"{'' if index is None else f'/{index}'}/_bulk?{_FILTER}"

    def send(self, lines: pa.Array) -> dict[int, str]:
        """Send actions until each is carried out or refused; return why the server refused some, by their place.

        Raises:
            TransientError: it was too busy for too long, nobody answers, or a document is newer than this attempt.
            DefinitionError: it lets this user write nothing, or there is no such index.
            TerminalError: it does not understand.
        """
        places = np.arange(len(lines))
        refused: dict[int, str] = {}
        since, wait, why = time.monotonic(), _FIRST_WAIT_S, ""
        while len(places):
            again, why = self._once(lines, places, refused)
            if not len(again):
                break
            if time.monotonic() - since > self._retry_s:
                raise TransientError(
                    f"OpenSearch at {self._server.login.name} did not take {len(again)} documents in {self._retry_s:g} s: {why}",
                    next="see GET /_cluster/health, write with fewer tasks, or make retry_for= longer; the checkpoint is repeated",
                )
            self._pause(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, _LONGEST_WAIT_S)
            if len(again) < len(places):
                lines = lines.take(indices_of(np.searchsorted(places, again)))
                places = again
        return refused

    def _once(self, lines: pa.Array, places: Any, refused: dict[int, str]) -> tuple[Any, str]:
        """Send once; note what is refused, and return the places of what has to be sent again, and why."""
        try:
            answer = self._server.ask("POST", self._path, body_of(lines), JSON_LINES)
        except TransientError as error:
            return places, error.what
        if answer.status == 413:
            return self._halves(lines, places, refused)
        if answer.status == 429 or answer.status >= 500:
            return places, answer.reason
        if answer.status != 200:
            self._server.refuse(answer, "writing")
            raise TerminalError(
                f"OpenSearch at {self._server.login.name} answers status {answer.status}: {answer.reason}",
                next="see what stands before the cluster",
            )
        try:
            if not msgspec.json.decode(answer.data, type=_Outcome).errors:
                return places[:0], ""
            items = [item for each in msgspec.json.decode(answer.data, type=_Bulk).items for item in each.values()]
        except msgspec.MsgspecError:
            return places, f"the answer is none of OpenSearch's: {answer.reason}"
        if len(items) != len(places):
            raise TransientError(
                f"OpenSearch answered for {len(items)} of {len(places)} documents", next="the checkpoint is repeated"
            )
        again, why = [], ""
        for place, item in zip(places.tolist(), items, strict=True):
            if item.error is None:
                continue
            text = error_text(item.error)
            if item.status == 409:
                self._check_conflict(text)
            elif item.status == 429 or item.status >= 500 or "cluster_block_exception" in text:
                again.append(place)
                why = text
            elif item.status != 400 or text.startswith(_NO_ROWS_FAULT):
                raise DefinitionError(
                    f"OpenSearch at {self._server.login.name} takes no document: {text}",
                    next="make or open the index, or give this user the right to write to it",
                )
            else:
                refused[place] = text
        return np.array(again, np.int64), why

    def _halves(self, lines: pa.Array, places: Any, refused: dict[int, str]) -> tuple[Any, str]:
        if len(places) == 1:
            refused[int(places[0])] = "the server takes no request of this length"
            return places[:0], ""
        half = len(places) // 2
        left, one = self._once(lines.slice(0, half), places[:half], refused)
        right, other = self._once(lines.slice(half), places[half:], refused)
        return np.concatenate([left, right]), one or other

    def _check_conflict(self, text: str) -> None:
        """Pass over a document that a row of the same checkpoint has replaced, or somebody else since.

        Raises:
            TransientError: it is newer than this attempt, which therefore must not go on.
        """
        match = _CURRENT.search(text)
        version = int(match[1]) if match else -1
        begun = version >> POSITION_BITS
        if begun == self._begun_ms:
            return
        raise TransientError(
            f"a document at {self._server.login.name} has version {version} (of {utc_text(begun) if match else 'unknown'}), and"
            f" this checkpoint was begun {utc_text(self._begun_ms)}: {text}",
            next="nothing, where a newer driver runs; else another job writes the same documents, or a clock was ahead of this one",
        )
