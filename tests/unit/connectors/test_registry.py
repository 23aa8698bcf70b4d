"""Connectors of other packages: found by metadata, loaded when asked for, a broken one in nobody's way."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poundlock import DefinitionError
from poundlock.cli.main import main
from poundlock.connectors.registry import GROUP, connectors, find

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package: its name, its code, and its entry points."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(package: str, code: str, **points: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("spool"):
            del sys.modules[name]


SINK = "from poundlock import TwoPhaseCommitSink\nclass Sink(TwoPhaseCommitSink): pass\n"


def test_a_connector_is_found_without_being_imported(install: Install) -> None:
    install("spool_a", SINK, spool="spool_a:Sink")
    (found,) = [one for one in connectors() if one.package == "spool_a"]
    assert (found.name, found.target, found.version) == ("spool", "spool_a:Sink", "1.2")
    assert "spool_a" not in sys.modules
    assert find("spool").load().__name__ == "Sink"
    assert found.roles() == ["sink"]


def test_a_source_is_told_from_a_sink(install: Install) -> None:
    install(
        "spool_b",
        "class Source:\n    def enumerator(self, workspace): ...\n    def reader(self, context): ...\n",
        pool="spool_b:Source",
    )
    assert find("pool").roles() == ["source"]


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("import no_such_thing", "spool_c:Sink", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("", "spool_c:Sink", "AttributeError"),
        ("raise SystemExit(3)", "spool_c:Sink", "SystemExit: 3"),
        ("Sink = 3", "spool_c:Sink", "is neither a source nor a sink"),
    ],
)
def test_a_broken_one_is_named_and_breaks_no_other(
    code: str, target: str, said: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("spool_c", code, bad=target)
    install("spool_d", SINK, good="spool_d:Sink")
    assert find("good").load()
    with pytest.raises(DefinitionError, match=said) as caught:
        find("bad").load()
    assert len(str(caught.value).splitlines()) == 2
    assert "spool_c 1.2" in str(caught.value)
    assert main(["connectors", "--json"]) == 1
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)["connectors"]}
    assert said in listed["bad"]["problem"]
    assert listed["good"]["roles"] == ["sink"]
    assert main(["connectors"]) == 1
    assert "Next: " in capsys.readouterr().out


def test_two_of_one_name_are_refused(install: Install) -> None:
    install("spool_e", SINK, twice="spool_e:Sink")
    install("spool_f", SINK, twice="spool_f:Sink")
    with pytest.raises(DefinitionError, match=r"spool_e 1\.2 and in spool_f 1\.2"):
        find("twice")


def test_an_unknown_one_is_refused(install: Install) -> None:
    install("spool_g", SINK, spoolbox="spool_g:Sink")
    with pytest.raises(DefinitionError, match="did you mean 'spoolbox'"):
        find("spolbox")
    with pytest.raises(DefinitionError, match="poundlock connectors"):
        find("zzz")


def test_doctor_names_them(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("spool_h", "import no_such_thing", lame="spool_h:Sink")
    assert main(["doctor", "--json"]) == 1
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert not checks["connector lame"]["ok"]
    assert "no_such_thing" in checks["connector lame"]["found"]
