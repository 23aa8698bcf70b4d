"""`poundlock doctor job.py`: what the job at hand needs, each with what to type, and nothing that stays."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.cli.setup import job_checks

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 is a port of this machine where nobody listens."""
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


FILES = """
from poundlock import FileSink, FileSource, Job

job = Job("orders", checkpoint_dir="checkpoint")
job.from_source(FileSource("in/*.jsonl", format="json", schema="a LONG")).sink_to(FileSink("out/deep", format="json"), name="out")
"""

OWN = """
from poundlock import Job, FileSource
from poundlock.connectors import Committed, Examination, Kind, Participant


class Own(Participant):
    kind = Kind.APPEND
    def open_writer(self, context): raise AssertionError
    def commit(self, committable): return Committed()
    def preflight(self): raise AssertionError("it may make something")


class Seen(Own):
    def examine(self): return Examination(["the queue jobs"], {ahead}, "the queue")


class Away(Own):
    def examine(self): raise RuntimeError("nobody there")


job = Job("orders", checkpoint_dir="checkpoint", on_error="fail")
job.from_source(FileSource("in/*.jsonl", format="json", schema="a LONG")).sink_to({sink}(), name="out")
"""


def examined(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the checks of a job by name; those of the machine are left out."""
    Path("job.py").write_text(text)
    Path("in").mkdir(exist_ok=True)
    Path("in/a.jsonl").write_text('{"a": 1}\n')
    before = sorted(str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts)
    code = main(["doctor", "job.py", "--json", *more])
    assert sorted(str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts) == before
    checks = json.loads(capsys.readouterr().out)["checks"]
    first = next(number for number, check in enumerate(checks) if check["name"] == "job")
    return code, {check["name"]: check for check in checks[first:]}


def test_a_job_of_files_is_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    _, checks = examined(FILES, capsys)
    assert [check for check in checks.values() if not check["ok"]] == []
    assert checks["job"]["found"].startswith("orders: 1 source(s), 2 sink(s)")
    assert checks["checkpoint"]["found"].endswith("/checkpoint")
    assert "the job's start makes the folder" in checks["sink out"]["found"]
    assert checks["master"]["found"].endswith("is this machine")
    assert {"disk of the checkpoint", "disk of sink out", "source source-0", "REST"} <= checks.keys()
    assert "clock" not in checks  # those of a local disk are this machine's


def test_people_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    examined(FILES.replace("in/*", "nowhere/*"), capsys)
    assert main(["doctor", "job.py"]) == 1
    out = capsys.readouterr().out
    (line,) = (number for number, text in enumerate(out.splitlines()) if text.startswith("problem source"))
    assert "nowhere is not a folder that exists" in out.splitlines()[line]
    assert out.splitlines()[line + 1].strip() == f"Next: mkdir -p {Path.cwd()}/nowhere"


def test_a_place_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").write_text("a file in the way")
    Path("checkpoint").write_text("another")
    code, checks = examined(FILES, capsys)
    assert code == 1
    for name in ("checkpoint", "sink out"):
        assert not checks[name]["ok"]
        assert checks[name]["next"]
    assert f"{Path.cwd()}/out" in checks["sink out"]["found"]


@pytest.mark.parametrize(
    ("text", "what", "next"),
    [
        ("import nothing_of_that_name\n", "nothing_of_that_name", "pip install nothing_of_that_name"),
        (FILES.replace('"orders"', '"orders", checkpoint_interval="soon"'), "soon", ""),
        (
            FILES.replace('"orders"', '"orders", runtime_mode="batch"').replace('"a LONG"', '"a LONG", watch=True'),
            "batch",
            "",
        ),
    ],
    ids=["import", "definition", "plan"],
)
def test_a_job_that_cannot_be_read_is_a_problem_of_its_own(
    text: str, what: str, next: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, checks = examined(text, capsys)
    assert code == 1
    assert [*checks] == ["job"]
    assert what in checks["job"]["found"]
    assert next in checks["job"]["next"]
    assert checks["job"]["next"]


def test_a_sink_that_cannot_be_asked_safely_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _, checks = examined(OWN.format(sink="Own", ahead=None), capsys)
    assert checks["sink out"]["ok"]
    assert "not asked" in checks["sink out"]["found"]


def test_what_a_sink_of_ones_own_raises_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = examined(OWN.format(sink="Away", ahead=None), capsys)
    assert code == 1
    assert "nobody there" in checks["sink out"]["found"]
    assert checks["sink out"]["next"]


@pytest.mark.parametrize(
    ("ahead", "ok", "result"),
    [
        (0, True, "the queue: as here"),
        (-1500, True, "the queue: within 1.5 s"),
        (90_000, False, "the queue: 1.5 min ahead of this machine's clock"),
        (-3_000, False, "the queue: 3 s behind this machine's clock"),
    ],
)
def test_a_clock_that_differs_is_a_problem(
    ahead: int, ok: bool, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, checks = examined(OWN.format(sink="Seen", ahead=ahead), capsys)
    assert checks["sink out"]["found"].endswith("the job's start makes the queue jobs")
    assert (checks["clock"]["ok"], checks["clock"]["found"]) == (ok, result)
    assert "NTP" in checks["clock"]["next"] or ok


def test_packages_of_the_jobs_connectors_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = metadata.version

    def version(name: str) -> str:
        if name == "botocore":
            raise metadata.PackageNotFoundError(name)
        return "1.0" if name == "confluent-kafka" else versions(name)

    monkeypatch.setattr(metadata, "version", version)
    sink = 'KafkaSink("127.0.0.1:1", "out", format="json", transactional_id_prefix="x")'
    text = FILES.replace("FileSink,", "FileSink, KafkaSink,").replace('FileSink("out/deep", format="json")', sink)
    text = text.replace('"checkpoint"', '"s3://nowhere/checkpoint"').replace('"orders"', '"orders", on_error="fail"')
    code, checks = examined(text, capsys, "-D", "rest_enabled=false")
    assert code == 1
    assert checks["package botocore"]["found"] == "not installed (extra s3, for the checkpoint)"
    assert "poundlock[s3]" in checks["package botocore"]["next"]
    assert "1.0 (extra kafka, for sink out); 2.12 is needed" in checks["package confluent-kafka"]["found"]
    assert checks["package kafka-python"]["ok"]
    assert "no Kafka server answers at 127.0.0.1:1" in checks["sink out"]["found"]
    assert "REST" not in checks


def test_jars_are_looked_for_and_not_fetched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
from poundlock import FileSink, Job, SparkSource

job = Job("ticks", checkpoint_dir="s3://nowhere/checkpoint", spark={"spark.jars": "/nowhere/a.jar"})
job.from_source(SparkSource("delta", path="x", schema="value BINARY")).sink_to(FileSink("out", format="json"), name="out")
"""
    own = ["-D", f"cache_dir={tmp_path}/cache"]
    _, checks = examined(text, capsys, *own)
    assert checks["jars s3a"]["ok"]
    assert "are fetched when the job starts" in checks["jars s3a"]["found"]
    assert checks["jars"] == {
        "name": "jars", "ok": False, "found": "/nowhere/a.jar is not there", "next": "mend the path in spark.jars",
    }  # fmt: skip
    assert "connector 'delta' of Spark: spark.jars=/nowhere/a.jar" in checks["jars source-0"]["found"]
    _, checks = examined(text, capsys, *own, "-D", f"jars_dir={tmp_path}")
    assert not checks["jars s3a"]["ok"]
    assert "is missing" in checks["jars s3a"]["found"]


def test_memory_is_what_this_job_asks_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poundlock.cli.setup.doctor._available", lambda: 1600 << 20)
    examined(FILES, capsys)
    main(["doctor", "--json"])
    memory = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}["memory"]
    main(["doctor", "job.py", "--json"])
    of_job = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}["memory"]
    assert not memory["ok"]
    assert of_job["ok"], of_job
    assert job_checks.MOST_APART_MS == 2000
