"""Class data archives: what a JVM learned of Spark's classes in one run, mapped in by the next instead of read again.

An archive fits one Java build, one pyspark and one class path, all in its name; one that does not fit is not used, and says so
nowhere but in the JVM's log.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import locked, pyspark_jars
from poundlock.spark.launch.java import Java, cache_dir, reported_home

# From Java 25 on one flag makes a cache that holds linked classes, lambdas and method profiles as well.
_TRAINING_CONTENT = "3"  # to be raised whenever the training loads other classes
_AOT_SINCE = 25
_MODULE = "poundlock.spark.launch.class_archive"  # run as a program, it makes one
_TASKS = 2
_WRITE_S = 600.0


def archive_path(java: Java, jars: Sequence[str] = (), *, cache: Path | None = None) -> Path:
    """Return where the archive for this Java, this pyspark and this class path is, or would be.

    Args:
        jars: jars before Spark's own on the class path, in order.
        cache: folder for what can be made again; default: `cache_dir()`.

    Raises:
        DefinitionError: pyspark is not installed.
    """
    spark = pyspark_jars()
    facts = [java.path, str(java.version), _build(java), str(spark), _TRAINING_CONTENT]
    # The JVM compares time and size of every jar, so a changed one means another archive.
    for jar in [*map(Path, jars), *sorted(spark.iterdir())]:
        with contextlib.suppress(FileNotFoundError):
            stat = jar.stat()
            facts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    suffix = "aot" if java.version >= _AOT_SINCE else "jsa"
    return (cache or cache_dir()) / "cds" / f"spark-java{java.version}-{digest}.{suffix}"


def jvm_options(java: Java, jars: Sequence[str] = (), *, cache: Path | None = None) -> list[str]:
    """Return the options that make Spark's JVM use its archive; empty while there is none.

    Args: as `archive_path`.
    """
    archive = archive_path(java, jars, cache=cache)
    if not archive.exists():
        return []
    return [f"-XX:AOTCache={archive}" if java.version >= _AOT_SINCE else f"-XX:SharedArchiveFile={archive}"]


def dump_options(java: Java, archive: Path) -> list[str]:
    """Return the options that make a JVM write an archive of the classes it used when it ends."""
    return [f"-XX:{'AOTCacheOutput' if java.version >= _AOT_SINCE else 'ArchiveClassesAtExit'}={archive}"]


def train(
    java: Java,
    jars: Sequence[str] = (),
    *,
    cache: Path | None = None,
    progress: Callable[[str], None] | None = None,
    again: bool = False,
    timeout_s: float = 900.0,
) -> Path:
    """Make the archive by running two small queries in another process; takes a minute or so and 150 MB.

    Args:
        jars: as for `archive_path`; all their classes are archived.

    Raises:
        DefinitionError: it could not be made; nothing is changed then.
    """
    archive = archive_path(java, jars, cache=cache)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with locked(archive.parent / ".lock"):
        if archive.exists() and not again:
            return archive
        _check_base(java)
        if progress is not None:
            progress("archiving Spark's classes for quick starts, once")
        for left in archive.parent.glob(".tmp-*"):
            left.unlink(missing_ok=True)
        fresh = archive.with_name(f".tmp-{os.getpid()}-{archive.name}")
        log = archive.with_suffix(".log")
        try:
            _run_training(java, jars, fresh, log, timeout_s)
            os.replace(fresh, archive)
        finally:
            fresh.unlink(missing_ok=True)
    return archive


def _check_base(java: Java) -> None:
    """Raise DefinitionError for a Java before 25 that comes without an archive of its own classes, as small runtimes do."""
    # Asked of the program: JAVA_HOME may be a folder that only leads to it.
    home = reported_home(java.path) if java.version < _AOT_SINCE else None
    if home is not None and not any(home.glob("lib/*/classes*.jsa")):
        raise DefinitionError(
            f"Java {java.version} in {home} has no class archive of its own to build on",
            next="use a whole JDK, or Java 25; jobs run without the archive, and only start more slowly",
        )


def _run_training(java: Java, jars: Sequence[str], fresh: Path, log: Path, timeout_s: float) -> None:
    environment = {**os.environ, "JAVA_HOME": java.home}
    command = [sys.executable, "-m", _MODULE, java.home, str(log), os.pathsep.join(jars), *dump_options(java, fresh)]
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise DefinitionError(
                f"the class archive took longer than {timeout_s:.0f} s",
                next="type it again when the machine is less busy",
            ) from error
    if done.returncode != 0 or not fresh.exists():
        raise DefinitionError(
            f"the class archive was not made (exit code {done.returncode})", next=f"read {log}; jobs run without it"
        )


def _build(java: Java) -> str:
    """Return what tells one build of Java from another."""
    try:
        return (Path(java.home) / "release").read_text()
    except OSError:
        stat = Path(java.path).resolve().stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"


def dump(java_home: str, log: Path, jars: Sequence[str], options: Sequence[str]) -> None:
    """Run what an archive is made from: a session as jobs have it, and the RDD jobs that checkpoints are.

    It ends only when its JVM has ended, because the JVM writes the archive as the last thing it does.
    """
    from poundlock.spark.launch.master import Master
    from poundlock.spark.launch.session import start_session
    from poundlock.spark.launch.session_conf import SessionSpec

    spec = SessionSpec(
        name="warm",
        master=Master.of("local[2]"),
        jvm_log=log,
        java_home=java_home,
        jars=jars,
        quick_start=True,
        jvm_options=options,
    )
    session = start_session(spec)
    try:
        context = session.context
        elements = context.parallelize(range(_TASKS), _TASKS)
        elements.mapPartitions(_count).collect()
        elements.map(_pair).partitionBy(_TASKS, int).mapPartitions(_count).collect()
        context.statusTracker().getActiveStageIds()
    except BaseException:
        session.kill()  # or it would go on and write an archive of half a run
        raise
    session.stop(_WRITE_S)


def _pair(number: int) -> tuple[int, bytes]:
    return number, bytes(8)


def _count(elements: Iterator[Any]) -> Iterator[int]:
    yield sum(1 for _ in elements)


if __name__ == "__main__":
    dump(sys.argv[1], Path(sys.argv[2]), [jar for jar in sys.argv[3].split(":") if jar], sys.argv[4:])
