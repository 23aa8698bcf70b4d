"""How a job goes whose driver runs on a cluster: that driver's newest word, and where it is silent, what the cluster says."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from poundlock.control import yarn
from poundlock.control.cluster_driver import ANOTHER_ATTEMPT, NOT_INSTALLED, OTHER_PYTHON
from poundlock.control.control_files import Word, last_word, word_of
from poundlock.errors import FencedError, PoundlockError, TransientError
from poundlock.storage import open_storage

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry


_FRESH_MS = 30_000
_LONGEST = 300
_MINORS = range(50)


def heard_from(application: str, checkpoint: str) -> Word | None:
    """Return the newest word of an application's driver; see `control_files.word_of`.

    Args:
        application: the cluster's id of it.
        checkpoint: the job's checkpoint folder.
    """
    try:
        return word_of(open_storage(checkpoint), application)
    except PoundlockError:
        return None


def heard_last(application: str, checkpoint: str) -> Word | None:
    """Return the last word of an application that is over; see `control_files.last_word`.

    Args:
        application: the cluster's id of it.
        checkpoint: the job's checkpoint folder.

    Raises:
        TransientError: the folder cannot be read, so that it may have said one.
    """
    try:
        return last_word(open_storage(checkpoint), application)
    except (OSError, RuntimeError, ValueError, PoundlockError) as error:
        why = error.what if isinstance(error, PoundlockError) else str(error)
        raise TransientError(
            f"{application} is over, and how it ended cannot be read in {checkpoint}: {why}",
            next=f"see that {checkpoint} can be reached, then type: poundlock list -a",
        ) from error


def lost(application: yarn.Application) -> PoundlockError:
    """Return why an application is over whose driver has left no last word."""
    for code in _exit_codes(application.why):
        if code - OTHER_PYTHON in _MINORS:
            return PoundlockError(
                f"the Python of the cluster's containers is 3.{code - OTHER_PYTHON}, and the job was submitted by another",
                next="send this one along with --archives env.tar.gz#env, or name one of the same version there: "
                "--conf spark.pyspark.python=/path/to/python",
            )
        if code == NOT_INSTALLED:
            return PoundlockError(
                "the Python of the cluster's containers lacks a package that poundlock needs",
                next=f"see which: yarn logs -applicationId {application.id}; or send an environment along: "
                "--archives env.tar.gz#env",
            )
        if code == FencedError.exit_code:
            return FencedError(
                f"another driver has taken over the checkpoint of {application.id}",
                next="let that one run; nothing is lost",
            )
        if code == ANOTHER_ATTEMPT:
            return PoundlockError(
                f"{application.id} has had all attempts that the cluster allows, and each lost its executors or its Spark",
                next=f"read yarn logs -applicationId {application.id}, then start the job again; nothing is lost",
            )
    if (program := _missing_program(application.why)) is not None:
        return PoundlockError(
            f"the cluster's containers have no {program}",
            next="send an environment along with --archives env.tar.gz#env, or name the Python there: "
            "--conf spark.pyspark.python=/path/to/python",
        )
    said = f": {application.why[:_LONGEST]}" if application.why else ""
    return PoundlockError(
        f"{application.id} is over ({application.state}), without a last word of its driver{said}",
        next=f"read yarn logs -applicationId {application.id}, then start the job again; nothing is lost",
    )


def hear(entry: JobEntry) -> JobEntry:
    """Return the entry of a job whose driver runs on a cluster as it stands now."""
    assert entry.application is not None
    word = heard_from(entry.application, entry.checkpoint_dir)
    if word is not None and (word.ended or abs(_now_ms() - word.said_ms) < _FRESH_MS):
        return _with(entry, word)
    known = yarn.ask(entry.application)
    if known is None or not known.over:
        return entry if word is None else _with(entry, word)
    # It may have said its last word between the reading and the asking.
    try:
        last = heard_last(entry.application, entry.checkpoint_dir)
    except TransientError:
        return entry if word is None else _with(entry, word)
    word = last or word
    if word is not None and word.ended:
        return _with(entry, word)
    error = lost(known)
    found = entry if word is None else _with(entry, word)
    return replace(found, state="FAILED", exit_code=error.exit_code, failure=(error.what, error.next))


def _with(entry: JobEntry, word: Word) -> JobEntry:
    return replace(
        entry,
        state=word.state,
        ended_ms=word.ended_ms,
        exit_code=word.exit_code,
        failure=word.failure,
        progress=word.progress,
    )


def _exit_codes(why: str) -> list[int]:
    """Return the exit codes of containers and drivers in what YARN says."""
    return [int(code) for code in re.findall(r"(?:exitCode: |exited with status )([0-9]+)", why)]


def _missing_program(why: str) -> str | None:
    found = re.search(r'Cannot run program "([^"]+)"', why)
    return found[1] if found else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
