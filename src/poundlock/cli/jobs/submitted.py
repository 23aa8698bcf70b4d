"""The driver of a job that was submitted: what a cluster starts in a container where a user would type `poundlock run`.

Whatever ended the job for good, the cluster must not start it again: a job that was stopped or cancelled has ended well for
the cluster, and an attempt that comes after a last word leaves at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path

from poundlock.control import cluster_driver as submitted
from poundlock.errors import FencedError, PoundlockError

_SIGNALLED = 128


def main(arguments: Sequence[str], environment: MutableMapping[str, str]) -> None:
    """Run the command line that was submitted; end the process with what the cluster is to know.

    The arguments are the checkpoint folder, the id for a job that begins with a savepoint, and the command line. The environment is the
    container's, and is changed: `os.environ` where the process is the driver's own.
    """
    checkpoint, job_id, *typed = arguments
    place = submitted.Container.of(environment["CONTAINER_ID"], checkpoint=checkpoint, job_id=job_id)
    _settle_in(place, environment)
    submitted.end_with_parent()
    _check_installed(place)
    code = _earlier(place) if place.attempt > 1 else None
    if code is None:
        from poundlock.cli.main import main as command_line

        code = command_line(typed, lambda error: _say(place, error))
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that Spark calls back into would keep the process.
    os._exit(0 if code > _SIGNALLED else code)


def _settle_in(place: submitted.Container, environment: MutableMapping[str, str]) -> None:
    """Have everything that is kept on a machine kept in the container: what matters is in the checkpoint folder."""
    here = os.getcwd()
    logs = environment.get("LOG_DIRS", here).partition(",")[0]
    hadoop = os.path.join(here, "__spark_conf__", "__hadoop_conf__")
    if not os.path.isdir(environment.get("HADOOP_CONF_DIR", "")):
        environment["HADOOP_CONF_DIR"] = hadoop
    environment[submitted.VARIABLE] = place.to_environment()
    environment["POUNDLOCK_STATE_DIR"] = os.path.join(here, "poundlock-state")
    environment["POUNDLOCK_CACHE_DIR"] = os.path.join(here, "poundlock-cache")
    environment["POUNDLOCK_LOG_DIR"] = logs


def _check_installed(place: submitted.Container) -> None:
    """End the process where Python here has no package for the checkpoint's file system: no word can be left there."""
    from poundlock.storage import open_storage

    try:
        open_storage(place.checkpoint)
    except PoundlockError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(submitted.NOT_INSTALLED)


def _earlier(place: submitted.Container) -> int | None:
    """Return the exit code where there is nothing left to do for this attempt; None where it has to go on."""
    from poundlock.checkpoint.epoch import newest_life
    from poundlock.control.control_files import entry_of, newest_entry
    from poundlock.storage import open_storage

    storage = open_storage(place.checkpoint)
    own, newest = entry_of(storage, place.application), newest_entry(storage)
    if own is not None and own.ended:
        return own.exit_code or 0
    if newest is not None and newest.application != place.application:
        # An application that was killed never says that it ended; this one was submitted after it, to go on from there.
        other = newest.application or ""
        before = newest.ended or _number(other) < _number(place.application)
        return (
            None
            if before and own is None
            else _taken_over(place, other or f"process {newest.process} on {newest.host}")
        )
    life = newest_life(storage)
    if own is not None and life is not None and (life.host, life.pid) != (own.host, own.process):
        return _taken_over(place, f"process {life.pid} on {life.host}")
    return None


def _number(application: str) -> tuple[int, ...]:
    """Return what the ids of a cluster's applications are ordered by."""
    return tuple(int(part) for part in application.split("_") if part.isdigit())


def _taken_over(place: submitted.Container, who: str) -> int:
    sys.stderr.write(f"{who} has taken over {place.checkpoint}: this attempt does not begin\n")
    return FencedError.exit_code


def _say(place: submitted.Container, error: PoundlockError) -> None:
    """Leave the error where the one who submitted looks for it, unless the job has done so itself."""
    from poundlock.control.control_files import entry_of, put_aside
    from poundlock.control.registry import now_ms, registered
    from poundlock.storage import open_storage

    storage = open_storage(place.checkpoint)
    own = entry_of(storage, place.application)
    if isinstance(error, FencedError) or (own is not None and own.ended):
        return
    made = registered(job_id="", name="", checkpoint_dir=place.checkpoint, log=Path("log"), job_file="", arguments=())
    ended = replace(
        made,
        application=place.application,
        attempt=place.attempt,
        state="FAILED",
        ended_ms=now_ms(),
        exit_code=error.exit_code,
        failure=(error.what, error.next),
        failure_code=error.code,
    )
    try:
        put_aside(storage, ended)
    except (OSError, PoundlockError) as trouble:
        sys.stderr.write(f"{storage.root} cannot be written: {trouble}\n")
