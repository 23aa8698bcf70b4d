"""What `poundlock new --connector` makes: the example of the repository is it, and it is installed without a network, found, and its own tests run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import poundlock
from poundlock.cli.setup.project.connector import connector_files
from poundlock.errors import DefinitionError

PACKAGE = Path(__file__).parents[2] / "examples" / "connector_package"


def test_the_example_is_what_the_command_makes() -> None:
    """`poundlock new --connector spool` in an empty folder, moved to examples/connector_package, brings it up to date."""
    made = connector_files("spool")
    there = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there == set(made)
    assert {file: (PACKAGE / file).read_text(encoding="utf-8") for file in made} == made


def test_a_name_gives_module_and_classes() -> None:
    files = connector_files("my-queue")
    assert "src/poundlock_my_queue/source.py" in files
    assert "class MyQueueSource:" in files["src/poundlock_my_queue/source.py"]
    assert 'my-queue-sink = "poundlock_my_queue.sink:MyQueueSink"' in files["pyproject.toml"]
    assert not [file for file, text in files.items() if "{name}" in text or "{module}" in text or "{Class}" in text]


@pytest.mark.parametrize("name", ["My", "a_b", "-a", "a-", "1a", "a.b"])
def test_a_name_that_no_package_can_have_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="no name for a connector"):
        connector_files(name)


@pytest.mark.slow
def test_the_example_package(tmp_path: Path) -> None:
    if find_spec("hatchling") is None:
        if os.environ.get("CI"):
            pytest.fail("hatchling is not installed; it is in the extra dev")
        pytest.skip("hatchling is not installed; it builds the example package")
    if find_spec("uv") is not None:
        install = ["uv", "pip", "install", "--quiet", "--offline", "--python", sys.executable]
    else:
        install = ["pip", "install", "--quiet", "--no-index"]
    source, target = tmp_path / "source", tmp_path / "installed"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
    arguments = ["--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run([sys.executable, "-m", *install, *arguments], check=True, timeout=300)

    paths = [str(target), str(Path(poundlock.__file__).parents[1])]
    # The options of the tests around it are not this run's: a temporary folder named there would be emptied under them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    listed = _run("-m", "poundlock", "connectors", "--json", environment=environment)
    found = {one["name"]: one for one in json.loads(listed)["connectors"]}
    assert found["spool-sink"]["roles"] == ["sink"]
    assert found["spool-source"]["roles"] == ["source"]
    assert {one["package"] for one in found.values() if one["name"].startswith("spool")} == {"poundlock-spool"}
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(source / "tests"))
    assert "2 passed" in _run(*tests, environment=environment, cwd=tmp_path)


def _run(*arguments: str, environment: dict[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
