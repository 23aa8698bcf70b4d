"""The operator that calls a user's function for many records at once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from poundlock.formats.chunk import Chunk
from poundlock.operators.asynchronous.calls import AsyncCalls
from poundlock.operators.chain import Emit
from poundlock.operators.user_functions import MapRecords, given_records, readable
from poundlock.stream.functions.asynchronous import AsyncOptions
from poundlock.stream.functions.base import RichFunction


@dataclass(frozen=True)
class AsyncMapRecords(MapRecords):
    """One record in, one record out, of calls that wait for something else; all that a chunk began is over when it is through."""

    options: AsyncOptions = field(kw_only=True)
    _calls: list[AsyncCalls] = field(default_factory=list, init=False, repr=False, compare=False)

    def open(self) -> None:
        """Begin a loop, and open the function in it, where it can be opened."""
        calls = AsyncCalls(self.id, self.function, self.options, keeps_errors=self.failed is not None)
        self._calls.append(calls)
        if isinstance(self.function, RichFunction):
            calls.run(self.function.open)

    def close(self) -> None:
        """Close the function in its loop, and end that."""
        calls = self._calls.pop()
        try:
            if isinstance(self.function, RichFunction):
                calls.run(self.function.close)
        finally:
            calls.close()

    def process(self, chunk: Chunk, emit: Emit) -> None:
        chunk = readable(chunk, self)
        with closing(self._calls[-1].answers(given_records(chunk, self.records), len(chunk))) as groups:
            for answers in groups:
                for answer in answers:
                    if answer.error is not None and self.failed is not None:
                        self.failed(chunk, answer.place, answer.error)
                good = [answer for answer in answers if answer.error is None]
                whole = len(good) == len(chunk)
                self._send(
                    chunk,
                    [answer.result for answer in good],
                    None if whole else [answer.place for answer in good],
                    emit,
                )
