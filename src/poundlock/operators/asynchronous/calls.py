"""Many calls of a user's function at once, in an event loop of the task's own thread.

Between two groups of answers the loop stands still, so that the steps behind may run loops of their own; what was sent meanwhile is
on its way all the same. Nothing is on its way any more when the last group was given.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from poundlock.errors import DefinitionError
from poundlock.operators.user_functions import NOT_OF_A_ROW
from poundlock.stream.functions.asynchronous import AsyncOptions

GROUP = 512
"""Answers that are given on together where their order does not matter."""


class CallOutcome(NamedTuple):
    """What a call for one record came to.

    Args:
        place: of the record among those that were given.
        error: what the call ended in; None where there is a result.
    """

    place: int
    result: Any
    error: Exception | None


class AsyncCalls:
    """Calls a function for records. Used by one thread, between `open` and `close`.

    Args:
        step: the id of the step, for errors.
        keeps_errors: whether an exception is the answer for its record; else the first one ends all.
    """

    def __init__(self, step: str, function: Callable[[Any], Any], options: AsyncOptions, keeps_errors: bool) -> None:
        self._step, self._function, self._options, self._keeps_errors = step, function, options, keeps_errors
        self._runner = asyncio.Runner()
        self._threads = ThreadPoolExecutor(options.capacity, "async-map") if options.in_threads else None

    def run(self, call: Callable[[], Any]) -> None:
        """Call a function, and wait for what it returns where that is a coroutine."""
        if inspect.isawaitable(awaited := call()):
            self._runner.run(_awaited(awaited))

    def close(self) -> None:
        """End the loop. A thread that still waits for a call that took too long is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._runner.close()

    def answers(self, records: Iterable[Any], count: int) -> Generator[list[CallOutcome], None, None]:
        """Yield the answers for so many records: all of them in order, or in groups as they come.

        Raises:
            Exception: of the function, where errors are not kept; a PoundlockError or MemoryError in any case.
        """
        group = count if self._options.ordered else min(count, GROUP)
        numbered = enumerate(records)
        finished: list[CallOutcome] = []
        running = min(self._options.capacity, count)
        enough = asyncio.Event()

        async def work() -> None:
            nonlocal running
            try:
                for place, record in numbered:
                    finished.append(await self._answer(place, record))
                    if len(finished) >= group:
                        enough.set()
            except BaseException:
                enough.set()
                raise
            running -= 1
            if not running:
                enough.set()

        loop = self._runner.get_loop()
        workers = [loop.create_task(work()) for _ in range(running)]
        try:
            while running:
                loop.run_until_complete(enough.wait())
                for worker in workers:
                    if worker.done():
                        worker.result()
                given = sorted(finished)
                finished.clear()
                enough.clear()
                yield given
        finally:
            for worker in workers:
                worker.cancel()
            loop.run_until_complete(asyncio.gather(*workers, return_exceptions=True))

    async def _answer(self, place: int, record: Any) -> CallOutcome:
        try:
            return CallOutcome(place, await self._in_time(record), None)
        except NOT_OF_A_ROW:
            raise
        except Exception as error:
            if not self._keeps_errors:
                raise
            return CallOutcome(place, None, error)

    async def _in_time(self, record: Any) -> Any:
        seconds = self._options.timeout_s
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._repeated(record)
        except TimeoutError:
            if not limit.expired():
                raise
            if self._options.on_timeout is None:
                raise TimeoutError(f"no answer within {seconds:g} s") from None
            return self._options.on_timeout(record)

    async def _repeated(self, record: Any) -> Any:
        retry = self._options.retry
        done = 0
        while True:
            try:
                outcome = await self._once(record)
            except NOT_OF_A_ROW:
                raise
            except Exception as error:
                if retry is None or not retry.repeats(error, done):
                    raise
            else:
                if retry is None or not retry.repeats(outcome, done):
                    return outcome
            await asyncio.sleep(retry.delay_s(done))
            done += 1

    async def _once(self, record: Any) -> Any:
        if self._threads is None:
            return await self._function(record)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, self._function, record)
        if inspect.iscoroutine(result):
            result.close()
            raise DefinitionError(
                f"{self._step}: the function returned {type(result).__name__}, which nobody waits for",
                next="write it with async def",
            )
        return result


async def _awaited(given: Awaitable[Any]) -> None:
    await given
