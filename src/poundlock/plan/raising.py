"""What a task raises, made fit to cross to the JVM: its text must be UTF-8, or Spark's worker and the JVM wait for each other for ever.

The error stays what it was; only characters that UTF-8 does not have are written as escapes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import wraps

import pyarrow as pa

__all__ = ["speaking"]


def speaking(
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task whose errors can always be told to the JVM; names of files and values of JSON may hold lone surrogates."""

    @wraps(task)
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        except Exception as error:
            if _utf8(_printed(error)):
                raise
            link: BaseException | None = error
            while link is not None:
                link.args = tuple(_escaped(part) if isinstance(part, str) else part for part in link.args)
                link = link.__cause__ or link.__context__
            if _utf8(_printed(error)):
                raise
            # It makes its text of something else than its arguments, or holds further errors.
            said = _escaped("".join(traceback.format_exception_only(error)).strip())
            raise RuntimeError(said).with_traceback(error.__traceback__) from None

    return run


def _printed(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _utf8(text: str) -> bool:
    return _escaped(text) == text


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
