"""Projects with a source and a sink of one's choice: their own tests pass as made, and their files are what other tools read."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from poundlock.cli.job_loader import load_job
from poundlock.cli.main import main
from poundlock.cli.setup import new
from poundlock.cli.setup.project.connectors import SINKS, SOURCES
from poundlock.plan.guarantees import guarantees
from poundlock.plan.plan import make_plan

pytestmark = pytest.mark.usefixtures("own_folder")
WAYS = [(source, sink, table) for source in SOURCES for sink, table in SINKS]
SOURCE = Path(__file__).parents[4] / "src"


def made(source: str, sink: str, table: bool) -> Path:
    assert main(["new", "clicks", "--from", source, "--to", sink, *(["--table"] if table else [])]) == 0
    return Path("clicks")


def own_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "sink", "table"), [("kafka", "s3", True), ("files", "postgres", False)])
def test_its_test_passes_as_made(source: str, sink: str, table: bool, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(source, sink, table)
    assert capsys.readouterr().out.splitlines()[-1] == "Next: cd clicks && python -m pytest"
    done = own_tests(folder)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.slow
def test_its_test_fails_where_its_function_does_nothing() -> None:
    folder = made("files", "files", False)
    functions = folder / "functions.py"
    functions.write_text(functions.read_text().replace("if self.seen.value() is None:", "if True:"))
    done = own_tests(folder)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 2 passed" in done.stdout


@pytest.mark.parametrize(("source", "sink", "table"), WAYS)
def test_every_way_can_be_planned_and_is_exactly_once(source: str, sink: str, table: bool) -> None:
    folder = made(source, sink, table)
    try:
        job = load_job(str(folder / "job.py"))
    finally:
        sys.modules.pop("functions", None)
    promised = {(path.source, path.sink): path.guarantee for path in guarantees(make_plan(job))}
    assert promised["events", "out"] == "exactly-once"
    assert "spark" not in job.explain(), "no row enters the JVM"


@pytest.mark.parametrize(("source", "sink", "table"), WAYS)
def test_its_files_are_read_by_other_tools(source: str, sink: str, table: bool) -> None:
    folder = made(source, sink, table)
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            left = [
                word
                for word in ("{name}", "{source", "{sink", "{job}", "{services}", "{keep", "{kept", "{imports")
                if word in text
            ]
            assert left == [], path
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    (needed,) = project["dependencies"]
    extras = {"kafka": "kafka", "s3": "s3", "postgres": "postgres"}
    wanted = {"rest", *(extras[end] for end in (source, sink) if end in extras)}
    assert set(needed.removeprefix("poundlock[").removesuffix("]").split(",")) == wanted
    known = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert wanted <= set(known)
    compose = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(compose) == {"job", *({source, sink} - {"files"})}
    assert set(compose["job"].get("depends_on", ())) == set(compose) - {"job"}
    for name in compose["job"]["environment"]:
        read = f'"{name}"' in (folder / "job.py").read_text() or f"env:{name}" in (folder / "job.py").read_text()
        assert read or name.startswith("AWS_"), name
    topics = {"kafka": "--topic events:3"}.get(source, ""), {"kafka": "--topic events-once:3"}.get(sink, "")
    broker = " ".join(["poundlock kafka up", *filter(None, topics)])
    trial = [line.strip() for line in (folder / "README.md").read_text().splitlines() if "kafka up" in line]
    assert trial == (
        [f"{broker}    # a broker for trials, in a terminal of its own, until Ctrl-C"] if any(topics) else []
    )
    assert (folder / "input" / "events.jsonl").exists() == (source == "files")
    workflow = yaml.safe_load((folder / ".github/workflows/test.yml").read_text())
    assert workflow["jobs"]["test"]["steps"][-1] == {"run": "pytest"}
    copied = [
        line.split()[1:-1] for line in (folder / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]
    assert all((folder / name).exists() for names in copied for name in names)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--from", "pulsar"], "--from pulsar is not known"),
        (["--to", "mars"], "--to mars is not known"),
        (["--to", "kafka", "--table"], "--table is for files, and --to is kafka"),
    ],
)
def test_what_there_is_not_is_refused(arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "clicks", *arguments]) == 2
    assert what in capsys.readouterr().err
    assert not Path("clicks").exists()


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (["kafka", "s3", True], "new.days"),
        (["files", "kafka"], "KafkaSink("),
        (["files", "files", False], 'FileSource("input")'),  # the small project, as without a terminal
    ],
)
def test_on_a_terminal_it_asks(
    answers: list[object], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = iter(answers)
    monkeypatch.setattr(new, "prompt", lambda text, default: next(asked))
    monkeypatch.setattr(new, "confirm", lambda text: next(asked))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert main(["new", "clicks"]) == 0
    assert list(asked) == []
    job = Path("clicks/job.py").read_text()
    assert ("PartitionCommit(" in job and "s3://" in job) if line == "new.days" else line in job
