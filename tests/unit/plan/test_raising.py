"""An error with text that UTF-8 does not have can still be told: Spark's worker would hang on it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest

from poundlock.errors import SourceGoneError
from poundlock.plan.raising import speaking


class Odd(Exception):
    def __str__(self) -> str:
        return "odd \udcff"


def failing(error: Exception, cause: Exception | None = None):
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise error from cause

    return speaking(task)


@pytest.mark.parametrize(
    ("error", "cause", "kind", "said"),
    [
        (ValueError("user \ud83d is bad"), None, ValueError, r"user \ud83d is bad"),
        (ValueError("fine"), KeyError("\udcff"), ValueError, "fine"),
        (ValueError("fine"), ValueError("\udcff"), ValueError, "fine"),
        (SourceGoneError("a-\udcff is gone", next="mend"), None, SourceGoneError, "a-\\udcff is gone\nNext: mend"),
        (Odd(), None, RuntimeError, r"Odd: odd \udcff"),
        (ExceptionGroup("two", [ValueError("\udcff"), KeyError(1)]), None, RuntimeError, "ExceptionGroup"),
    ],
)
def test_what_a_task_raises_is_utf8(error: Exception, cause: Exception | None, kind: type, said: str) -> None:
    with pytest.raises(kind) as caught:
        list(failing(error, cause)(iter(())))
    assert said in str(caught.value)
    printed = "".join(traceback.format_exception(caught.value))
    printed.encode()
    assert "in task" in printed  # where it was raised


def test_other_errors_and_rows_pass() -> None:
    error = ValueError("ünï")
    batch = pa.record_batch([pa.array([1])], ["a"])
    rows = failing(error)(iter([batch]))
    assert next(rows) is batch
    with pytest.raises(ValueError, match="ünï") as caught:
        next(rows)
    assert caught.value is error
