"""`poundlock doctor script.sql`: what each job of a script needs, through the checks that `job.py` has, and nothing that stays."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main

pytestmark = pytest.mark.usefixtures("own_folder")

FILES = """
SET 'execution.checkpointing.dir' = 'checkpoints';
CREATE TABLE lines (a BIGINT, word STRING) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE words (a BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out/deep', 'format' = 'json');
"""
INSERT = "INSERT INTO words SELECT a FROM lines;\n"
KAFKA = """
CREATE TABLE events (a BIGINT, word STRING, seen AS PROCTIME()) WITH (
  'connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = '127.0.0.1:1', 'format' = 'avro',
  'scan.startup.mode' = 'earliest-offset');
CREATE TABLE names (word STRING, title STRING) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:1/db', 'table-name' = 'names', 'username' = 'u', 'password' = 'open sesame');
INSERT INTO words SELECT e.a FROM events AS e JOIN names FOR SYSTEM_TIME AS OF e.seen AS n ON e.word = n.word;
"""


def examined(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the checks of a script; those of the machine are left out."""
    Path("script.sql").write_text(text)
    Path("in").mkdir(exist_ok=True)
    Path("in/a.json").write_text('{"a": 1, "word": "one"}\n')
    before = sorted(map(str, Path().rglob("*")))
    code = main(["doctor", "script.sql", "--json", *more])
    assert sorted(map(str, Path().rglob("*"))) == before
    out = capsys.readouterr().out
    assert "sesame" not in out
    checks = json.loads(out)["checks"]
    first = next(number for number, check in enumerate(checks) if check["name"] == "job")
    return code, checks[first:]


def named(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (check for check in checks if check["name"] == name)
    return found


def test_a_script_over_files_is_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    _, checks = examined(FILES + INSERT, capsys)
    assert [check for check in checks if not check["ok"]] == []
    assert named(checks, "job")["found"].startswith("script-")
    assert named(checks, "job")["found"].endswith("1 source(s), 1 sink(s) (script.sql)")
    assert "/checkpoints/script-" in named(checks, "checkpoint")["found"], "that of the script's own setting"
    assert "the job's start makes the folder" in named(checks, "sink words-sink")["found"]
    assert named(checks, "source lines")["ok"]
    assert {"master", "disk of the checkpoint", "disk of sink words-sink"} <= {check["name"] for check in checks}


def test_each_job_of_a_script_is_looked_at_and_what_is_the_same_is_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = FILES + INSERT + "SELECT word FROM lines;\nEXPLAIN SELECT a FROM lines;\n"
    _, checks = examined(both, capsys)
    jobs = [check["found"] for check in checks if check["name"] == "job"]
    assert len(jobs) == 2, "what is only explained runs nothing"
    assert jobs[1].startswith("script-query: ")
    assert len([check for check in checks if check["name"] == "master"]) == 1
    assert named(checks, "sink result")["ok"]


def test_tables_that_cannot_be_reached_and_formats_that_are_not_installed_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = metadata.version

    def version(name: str) -> str:
        if name == "fastavro":
            raise metadata.PackageNotFoundError(name)
        return versions(name)

    monkeypatch.setattr(metadata, "version", version)
    code, checks = examined(FILES + KAFKA, capsys)
    assert code == 1
    assert named(checks, "job")["found"].endswith("1 source(s), 1 sink(s), 1 table(s) looked up in (script.sql)")
    assert "127.0.0.1:1" in named(checks, "source events")["found"]
    assert not named(checks, "lookup names")["ok"]
    assert "127.0.0.1" in named(checks, "lookup names")["found"]
    assert named(checks, "package psycopg")["found"].endswith("(extra postgres, for lookup names)")
    assert named(checks, "package fastavro")["found"] == "not installed (extra avro, for format of table events)"
    assert "poundlock[avro]" in named(checks, "package fastavro")["next"]
    assert named(checks, "package confluent-kafka")["ok"]


@pytest.mark.parametrize(
    ("text", "what", "next"),
    [
        (FILES + "INSERT INTO words SELECT b FROM lines", "line 5, column 26: there is no column b", ""),
        (FILES, "script.sql has no statement that runs a job", "INSERT INTO"),
        (FILES.replace("'format' = 'json'", "'format' = 'jsn'") + INSERT, "jsn", "json"),
    ],
    ids=["column", "nothing", "format"],
)
def test_a_script_that_cannot_be_run_is_a_problem_of_its_own(
    text: str, what: str, next: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, checks = examined(text, capsys)
    assert code == 1
    assert [check["name"] for check in checks] == ["job"]
    assert what in checks[0]["found"]
    assert next in checks[0]["next"]
    assert checks[0]["next"]


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "nowhere.SQL"]) == 1
    assert "nowhere.SQL cannot be read" in capsys.readouterr().out
