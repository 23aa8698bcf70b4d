"""Errors out of Spark, as PySpark 4.2 really words them (files beside this one), told in two lines."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from poundlock.errors import (
    CommitUnknown,
    DefinitionError,
    FencedError,
    PoundlockError,
    SourceGoneError,
    TerminalError,
    TransientError,
)
from poundlock.spark.error_translation import UserCodeError, as_caught, explain

CASES = Path(__file__).parent / "errors"


def _raised(name: str, text: str) -> Exception:
    """Return an exception as pyspark's own of that name would print itself; pyspark is not needed to explain it."""
    kind = type(name, (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    error: Exception = kind(text)
    return error


@pytest.mark.parametrize(
    ("file", "kind", "what", "next"),
    [
        (
            "user_function.StreamingQueryException.txt",
            UserCodeError,
            "/home/ada/jobs/userjob.py:2 in parse: ZeroDivisionError: division by zero",
            'mend the function, leave such records out before it with filter, or give on_error="bad_record"',
        ),
        (
            "user_function_alone.PythonException.txt",
            UserCodeError,
            "/home/ada/jobs/userjob.py:2 in parse: ZeroDivisionError: division by zero",
            "mend the function",
        ),
        (
            "terminal_in_task.StreamingQueryException.txt",
            TerminalError,
            "a record of topic t partition 0 offset 3 has no timestamp",
            'set on_error="dead_letter"',
        ),
        ("fenced_in_driver.StreamingQueryException.txt", FencedError, "another driver holds /x", "stop it"),
        (
            "disk_full.StreamingQueryException.txt",
            TransientError,
            "the disk is full: OSError: [Errno 28] No space left on device: '/data/x'",
            "free some space",
        ),
        (
            "worker_died.StreamingQueryException.txt",
            TransientError,
            "a worker process died: SparkException: Python worker exited unexpectedly (crashed).",
            "memory",
        ),
        (
            "bug_in_driver.StreamingQueryException.txt",
            PoundlockError,
            "KeyError: 'nokey' (in plan/lower.py:44 keyerr)",
            "see the log",
        ),
        (
            "analysis.AnalysisException.txt",
            DefinitionError,
            "Spark cannot plan the job: [PATH_NOT_FOUND] Path does not exist: file:/nonexistent.",
            "mend the expression",
        ),
        (
            "one_frame_twice.AnalysisException.txt",
            DefinitionError,
            "a function given to apply uses one DataFrame in two places, and Spark keeps one position for each",
            "give it the stream twice: events.apply(",
        ),
    ],
)
def test_real_texts(file: str, kind: type[PoundlockError], what: str, next: str) -> None:
    error = explain(_raised(file.split(".")[1], (CASES / file).read_text()))
    assert type(error) is kind
    assert error.what == what
    assert next in error.next
    assert len(str(error).splitlines()) == 2


def test_every_kept_text_has_a_case() -> None:
    cases = [mark.args[1] for mark in test_real_texts.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {case[0] for case in cases[0]} == {path.name for path in CASES.iterdir()}


@pytest.mark.parametrize(
    ("error", "kind", "what"),
    [
        (OSError(28, "No space left on device", "/data"), TransientError, "the disk is full"),
        (PermissionError(13, "Permission denied", "/data"), TerminalError, "not writable"),
        (ConnectionRefusedError(111, "Connection refused"), TransientError, "could not be reached"),
        (TimeoutError(), TransientError, "did not answer in time"),
        (OSError(98, "Address already in use"), DefinitionError, "a port is taken"),
        (
            _raised(
                "ParseException",
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 3)\n\n"
                "== SQL ==\nn +\n---^^^\n",
            ),
            DefinitionError,
            "end of input. (line 1, pos 3) in 'n +'",
        ),
        (KeyError("a"), PoundlockError, "KeyError: 'a'"),
        (ValueError(""), PoundlockError, "ValueError"),
        (
            _raised("Py4JNetworkError", "Answer from Java side is empty"),
            TransientError,
            "the JVM of this job is gone",
        ),
        (
            _raised("Py4JError", "An error occurred while calling o62.setJobGroup"),
            TransientError,
            "the JVM of this job is gone: An error occurred while calling o62.setJobGroup",
        ),
        (
            _raised(
                "Py4JJavaError", "An error occurred while calling o62.load.\n: java.lang.IllegalStateException: no"
            ),
            PoundlockError,
            "An error occurred while calling o62.load.",
        ),
        (
            _raised("PySparkRuntimeError", "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port"),
            DefinitionError,
            "Java could not be started",
        ),
        (
            _raised(
                "Py4JJavaError",
                "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(C.scala)\n"
                "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.\n"
                "\tat d.e(F.java)",
            ),
            TransientError,
            "did not answer in time: TimeoutException: Timed out waiting for a node assignment.",
        ),
        (
            _raised("Py4JJavaError", "x\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat a.b(C.scala)"),
            TransientError,
            "the JVM ran out of memory",
        ),
        (
            _raised("Py4JJavaError", "x\n\tat q\nCaused by: java.lang.IllegalStateException: odd\n\tat a.b(C.scala)"),
            PoundlockError,
            "IllegalStateException: odd",
        ),
    ],
)
def test_kinds(error: Exception, kind: type[PoundlockError], what: str) -> None:
    explained = explain(error)
    assert type(explained) is kind
    assert what in explained.what
    assert explained.next


def test_words_in_source_lines_and_plans_do_not_count() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: boom\n"
        '  File "/x/site-packages/a.py", line 3, in f\n    except TimeoutError: raise ConnectionRefusedError\n'
        "\n=== Streaming Query ===\nConnection refused timed out No space left on device\n"
    )
    assert explain(_raised("StreamingQueryException", text)).what == "boom"


def test_an_error_of_ours_is_found_behind_another() -> None:
    error = RuntimeError("Connection refused")
    error.__cause__ = CommitUnknown("asked", next="ask again")
    assert explain(error) is error.__cause__


def test_the_text_of_an_exception_of_sparks_is_kept_when_its_jvm_is_gone() -> None:
    gone = False

    def text(self: BaseException) -> str:
        assert not gone, "there is nobody to ask"
        return "A column with name `usr` cannot be resolved."

    kind = type(
        "AnalysisException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured", "__str__": text}
    )
    error = DefinitionError("few: Spark cannot plan the job")
    error.__cause__ = kind()
    kept = as_caught(error)
    gone = True
    logged = "".join(traceback.format_exception(kept))
    assert "AnalysisException: A column with name `usr` cannot be resolved." in logged
    assert "few: Spark cannot plan the job" in logged
    assert "exception str() failed" not in logged
    assert "exception str() failed" in "".join(traceback.format_exception(error)), "what it is for"


def test_another_exception_is_logged_as_it_is() -> None:
    error = KeyError("n")
    assert as_caught(error) is error


class _Source:
    def explain_error(self, message: str) -> Exception | None:
        return SourceGoneError("topic t is gone") if "UnknownTopic" in message else None


def test_sources_are_asked_first() -> None:
    text = "x\nCaused by: org.apache.kafka.UnknownTopicException: timed out"
    assert type(explain(_raised("StreamingQueryException", text), [object(), _Source()])) is SourceGoneError
    assert type(explain(_raised("StreamingQueryException", "Connection refused"), [_Source()])) is TransientError


def test_secrets_and_length_are_cut() -> None:
    error = explain(ValueError("password=hunter22 " + "x" * 5000))
    assert "hunter22" not in str(error)
    assert len(str(error)) < 1000


class _Dead(Exception):
    def __str__(self) -> str:
        raise ConnectionError("the JVM is gone")


def test_an_exception_that_cannot_print_itself_is_explained_too() -> None:
    assert explain(_Dead()).what
