"""A JVM that does not start, as a program in Java's place: what is said of it, whether a restart may mend it, and what it leaves."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from pyspark import SparkContext

from poundlock import DatagenSource, FileSink, Job
from poundlock.config import load_settings
from poundlock.errors import DefinitionError, TransientError
from poundlock.spark.launch import jvm
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session import SessionStart, start_session
from poundlock.spark.launch.session_conf import SessionSpec
from poundlock.spark.launch.spark_launch import heap

OLDER = "java.lang.IllegalStateException: of yesterday\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for one test, temporary files included, whose log has a line of an older JVM."""
    for name in jvm._CONF_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "j.jvm.log").write_text(OLDER)
    return tmp_path


def spec(folder: Path, script: str) -> SessionSpec:
    """Return a session in whose Java's place a shell script runs."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    home = str(program.parent.parent)
    return SessionSpec(name="j", master=Master.of("local[1]"), jvm_log=folder / "j.jvm.log", java_home=home)


def refused(folder: Path, script: str, kind: type[Exception]) -> str:
    """Return what is said of a session that does not start: two lines. Nothing is left of it."""
    with pytest.raises(kind) as caught:
        start_session(spec(folder, script))
    assert type(caught.value) is kind
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == ["Spark did not start", "Next"]
    assert list((folder / "tmp").iterdir()) == []
    assert SparkContext._active_spark_context is SparkContext._gateway is None
    return str(caught.value).partition("\n")[0].removeprefix("Spark did not start: ")


GATEWAY = (
    r"printf '\000\000\000\001\000\000\000\001s' > $_PYSPARK_DRIVER_CONN_INFO_PATH; sleep 0.2"  # nobody is at port 1
)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kill -9 $$", "its Java process was ended by signal 9"),
        ("exit 137", "its Java process was ended by signal 9"),
        ("touch $_PYSPARK_DRIVER_CONN_INFO_PATH.tmp; kill -15 $$", "its Java process was ended by signal 15"),
        (f"{GATEWAY}; kill -9 $$", "its Java process was ended by signal 9"),
        (
            "echo 'java.lang.OutOfMemoryError: unable to create native thread'; echo '	at a.B.c(D.java:1)'; exit 1",
            "java.lang.OutOfMemoryError: unable to create native thread",
        ),
        (
            "echo '# There is insufficient memory for the Java Runtime Environment to continue.'; echo '# hs_err'; exit 1",
            "# There is insufficient memory for the Java Runtime Environment to continue.",
        ),
    ],
)
def test_what_may_pass_is_transient(folder: Path, script: str, why: str) -> None:
    assert refused(folder, script, TransientError) == why
    assert TransientError.exit_code == 3


def test_a_java_that_says_nothing_is_ended_and_may_be_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_START_S", 0.1)
    monkeypatch.setattr(jvm, "_DYING_S", 0.1)
    began = time.monotonic()
    assert refused(folder, "exec sleep 600", TransientError) == "its Java process does not answer after 0 s"
    assert time.monotonic() - began < 300


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Unrecognized option: -Xnope'; exit 1", "Unrecognized option: -Xnope"),
        (
            "echo 'Caused by: org.apache.spark.SparkException: wrong'; echo '	at org.apache.SparkException.x(Y.scala:1)';"
            " echo '	... 3 more'; exit 1",
            "Caused by: org.apache.spark.SparkException: wrong",
        ),
        ("exit 1", "its Java process ended"),
    ],
)
def test_a_wrong_setting_is_final_and_the_error_is_of_this_jvm(folder: Path, script: str, why: str) -> None:
    assert refused(folder, script, DefinitionError) == why
    assert (folder / "j.jvm.log").read_text().startswith(OLDER)


def test_a_java_that_has_ended_can_be_ended_again(folder: Path) -> None:
    wanted = spec(folder, "exec cat")
    killed, ended = (jvm.Jvm.start(wanted, wanted.settings()) for _ in range(2))
    killed.kill()
    ended.end(300)
    assert (killed.process.returncode, ended.process.returncode) == (-9, 0)
    for each in (killed, ended):
        each.end(0)
        each.kill()
        assert not each.alive


def test_nothing_starts_beside_another_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(DefinitionError, match=r"job\.start\(spark\) or stream\.preview\(5, spark=spark\)"):
        start_session(spec(folder, f"touch {folder}/started"))
    assert not (folder / "started").exists()
    assert list((folder / "tmp").iterdir()) == []


def test_a_job_is_refused_beside_another_session_before_it_touches_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    job = Job("second")
    job.from_source(DatagenSource(count=1), name="in").sink_to(FileSink(str(folder / "out"), row="value"), name="out")
    with pytest.raises(DefinitionError, match="a Spark session is running in this process already"):
        job.run(settings=load_settings([f"state_dir={folder}/state", "master=local[1]"]))
    assert not (folder / "state").exists()
    assert not (folder / "out").exists()


def test_a_preview_beside_another_threads_session_says_how_to_use_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.driver.interactive import preview

    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(preview, "active_session", lambda: None)
    rows = Job("looked-at").from_source(DatagenSource(rate=1), name="in")
    with pytest.raises(DefinitionError) as caught:
        rows.preview(5, settings=load_settings([f"state_dir={folder}/state", "master=local[1]"]))
    assert "stream.preview(5, spark=spark)" in caught.value.next
    assert "handle.stop()" in caught.value.next
    assert "job.run" not in str(caught.value)


def test_a_start_that_nobody_waits_for_leaves_nothing(folder: Path) -> None:
    start = SessionStart(spec(folder, f"touch {folder}/started; sleep 600"))
    deadline = time.monotonic() + 60
    while not (folder / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert start._process is not None
    start.cancel()
    assert not start._process.alive
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "small", "exchanges", "heap_size"),
    [
        ([], True, False, "512m"),
        ([], True, True, "768m"),
        ([], False, False, "2048m"),
        (["driver_memory=3g"], True, False, "3072m"),
    ],
)
def test_a_jvm_that_touches_no_row_has_a_small_heap(
    options: list[str], small: bool, exchanges: bool, heap_size: str
) -> None:
    assert heap(load_settings(options), small=small, exchanges=exchanges) == heap_size
