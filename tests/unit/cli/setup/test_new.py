"""A new project: what is made, and that nothing is overwritten. That it runs is tested with Spark in tests/engine."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.config import load_settings


def test_makes_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "clicks"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Next: cd clicks && poundlock run job.py"
    files = {path.name for path in (tmp_path / "clicks").iterdir()}
    assert files == {"job.py", "poundlock.toml", "README.md", ".gitignore", "input"}
    assert 'Job("clicks"' in (tmp_path / "clicks" / "job.py").read_text()
    assert "{name}" not in (tmp_path / "clicks" / "README.md").read_text()


def test_its_settings_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "sub/clicks"]) == 0
    monkeypatch.chdir(tmp_path / "sub" / "clicks")
    assert tomllib.loads(Path("poundlock.toml").read_text())
    settings = load_settings()
    assert settings.restart_strategy_type == "exponential-delay"
    assert str(settings.state_dir) == ".poundlock"


def test_writes_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "job.py").write_text("mine")
    assert main(["new", "clicks"]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "clicks" / "job.py").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert main(["new", "empty", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "empty"


def test_makes_a_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--connector", "tickets"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Next: cd tickets && python -m pytest"
    assert (tmp_path / "tickets" / "src" / "poundlock_tickets" / "sink.py").exists()


def test_a_connector_is_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--connector", "tickets", "--to", "kafka"]) == 2
    assert not (tmp_path / "tickets").exists()
