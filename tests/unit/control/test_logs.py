"""The log of a run: JSON lines, no secrets, nothing on the terminal."""

from __future__ import annotations

import json
import logging
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from poundlock.control.logs import open_log
from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import find_java
from poundlock.spark.launch.jvm import write_log4j2


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_json_with_job_time_and_level(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with open_log("event log", tmp_path / "logs", now=now) as log:
        log.logger.info("restored", topic="t", partition=0, path=Path("/x"))
        logging.getLogger("poundlock.connectors.kafka").warning("lag of %s is %d", "t", 3)
        log.logger.debug("too much")
    assert log.path == tmp_path / "logs" / "event_log-20260102T030405.000Z.log"
    first, second = _lines(log.path)
    assert list(first)[:3] == ["time", "level", "message"]
    assert first["message"] == "restored"
    assert (first["job"], first["partition"], first["path"]) == ("event log", 0, "/x")
    assert (second["level"], second["message"]) == ("warning", "lag of t is 3")


def test_nothing_secret_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with open_log("a", tmp_path, secrets=["hunter22"]) as log:
        log.logger.info("x hunter22", password="p-one", conf={"sasl.jaas.config": "p-two"})
        logging.getLogger("poundlock.x").error("ssl.key.password=p-three and hunter22")
        log.hide(["hunter33"])
        try:
            raise ValueError("token: p-four hunter33")
        except ValueError:
            log.logger.exception("failed")
    text = log.path.read_text()
    assert "failed" in text
    assert "ValueError" in text
    assert [word for word in ("hunter22", "hunter33", "p-one", "p-two", "p-three", "p-four") if word in text] == []
    assert capfd.readouterr() == ("", "")


def test_a_second_open_goes_on_with_the_same_file(tmp_path: Path) -> None:
    with open_log("a", tmp_path) as outer:
        with open_log("a", tmp_path / "other", secrets=["hunter22"]) as inner:
            assert inner.path == outer.path
            inner.logger.info("inner hunter22")
        outer.logger.info("outer")
    assert [line["message"] for line in _lines(outer.path)] == ["inner *****", "outer"]
    assert not (tmp_path / "other").exists()
    assert logging.getLogger("poundlock").handlers == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DefinitionError, match="log folder") as caught:
        open_log("a", tmp_path / "file" / "logs")
    assert "log_dir" in caught.value.next


@pytest.mark.engine
def test_the_jvm_logs_to_the_file_and_nowhere_else(tmp_path: Path) -> None:
    """The properties file is read by the log4j that comes with Spark, in a real JVM."""
    from poundlock.spark.launch.jars import pyspark_jars

    properties = write_log4j2(tmp_path / "l" / "log4j2.properties", tmp_path / "a.jvm.log")
    source = tmp_path / "Say.java"
    source.write_text(
        "public class Say { public static void main(String[] a) {"
        ' org.slf4j.LoggerFactory.getLogger("org.apache.spark.Some").warn("loud words");'
        ' org.slf4j.LoggerFactory.getLogger("org.apache.spark.Some").info("quiet words"); } }'
    )
    java = find_java().path
    jars = ":".join(str(jar) for name in ("slf4j-api", "log4j-") for jar in pyspark_jars().glob(f"{name}*.jar"))
    done = subprocess.run(
        [java, f"-Dlog4j2.configurationFile={properties}", "-cp", jars, str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "jdk.compiler" in done.stderr:
        pytest.skip("this Java runtime has no compiler")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / "a.jvm.log").read_text()
    assert "WARN  Some: loud words" in text
    assert "quiet" not in text
