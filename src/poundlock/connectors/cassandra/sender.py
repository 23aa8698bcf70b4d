"""Sends statements, many at a time: what the cluster is too busy for is sent again, and a row that it refuses is found in its batch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from poundlock.connectors.cassandra.login import CassandraLogin, load_driver
from poundlock.connectors.cassandra.statements import joined
from poundlock.errors import TransientError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0


class StatementSender:
    """Sends the statements of one task attempt.

    Args:
        requests: how many are under way at once.
        retry_s: how long what failed is sent again, seconds.
        pause: waits; for tests.
    """

    def __init__(
        self, login: CassandraLogin, requests: int, retry_s: float, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._login, self._requests, self._retry_s, self._pause = login, requests, retry_s, pause

    def send(self, statements: dict[int, Any], groups: Sequence[Sequence[int]]) -> dict[int, str]:
        """Send statements in groups until each is carried out or refused; return why some were refused, by their numbers.

        All of them may be sent again at any time, for each has its timestamp.

        Raises:
            TransientError: the cluster did not take some of them for too long.
            DefinitionError: it lets this user write nothing.
        """
        refused: dict[int, str] = {}
        left = list(groups)
        since, wait, failure = time.monotonic(), _FIRST_WAIT_S, None
        while left:
            left, failure = self._once(statements, left, refused)
            if not left:
                break
            if failure is None:
                continue  # what was refused as a batch goes row by row, at once
            if time.monotonic() - since > self._retry_s:
                rows = sum(map(len, left))
                error = self._login.explain(failure, "writing")
                raise TransientError(
                    f"{error.what}; {rows} rows were not taken in {self._retry_s:g} s",
                    next="see nodetool status, write with fewer tasks or requests=, or make retry_for= longer; the checkpoint is repeated",
                ) from failure
            self._pause(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, _LONGEST_WAIT_S)
        return refused

    def _once(
        self, statements: dict[int, Any], groups: Sequence[Sequence[int]], refused: dict[int, str]
    ) -> tuple[list[Sequence[int]], Exception | None]:
        """Send once; note what is refused, and return what has to be sent again, and the failure of one of them."""
        cassandra, client = load_driver("cassandra"), load_driver("cassandra.concurrent")
        sent = [(joined([statements[number] for number in group]), None) for group in groups]
        session = self._login.session()
        results = client.execute_concurrent(session, sent, concurrency=self._requests, raise_on_first_error=False)
        again: list[Sequence[int]] = []
        failure: Exception | None = None
        for group, (good, result) in zip(groups, results, strict=True):
            if good:
                continue
            if isinstance(result, cassandra.Unauthorized):
                raise self._login.explain(result, "writing")
            if not isinstance(result, cassandra.InvalidRequest):
                again.append(group)
                failure = result
            elif len(group) == 1:
                refused[group[0]] = " ".join(str(result).split())
            else:
                again += [[number] for number in group]
        return again, failure
