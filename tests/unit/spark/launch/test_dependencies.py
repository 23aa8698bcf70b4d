"""What goes to the tasks of a cluster: the package as a zip that Python imports from, the user's files, the user's Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from poundlock.config import Settings, load_settings
from poundlock.errors import DefinitionError
from poundlock.spark.launch.dependencies import add_to_path, archive_conf, package_zip, python_of_tasks, shipped_files


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: to make the zip takes seconds where Python has kept no byte code."""
    return tmp_path_factory.mktemp("cache")


def settings(folder: Path, **more: str) -> Settings:
    return load_settings(cache_dir=folder, **more)


def test_the_package_runs_from_its_zip(tmp_path: Path, cache: Path) -> None:
    made = package_zip(cache)
    assert package_zip(cache) == made
    with zipfile.ZipFile(made) as opened:
        names = opened.namelist()
    assert "poundlock/__init__.py" in names
    assert "poundlock/tasks/entry.pyc" in names
    assert all(name.endswith((".py", ".pyc", "/__init__.pyi", "/jar_lock.toml")) for name in names)
    program = (
        "import poundlock.tasks.entry, poundlock; from poundlock.spark.launch.jars import JAR_SETS; "
        "assert JAR_SETS['kafka-broker'].pins; print(poundlock.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(made)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"{made}/poundlock/__init__.pyc", done.stderr


def test_a_driver_in_a_zip_ships_that_zip(tmp_path: Path, cache: Path) -> None:
    made = package_zip(cache)
    program = "from pathlib import Path; from poundlock.spark.launch.dependencies import package_zip; print(package_zip(Path('x')))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(made)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(made), done.stderr


def test_files_of_the_user_go_along(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "one.py").write_text("NAME = 1\n")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as made:
        made.writestr("inside_two.py", "NAME = 2\n")
    given = settings(cache, py_files="one.py, two.zip")
    assert given.py_files == ("one.py", "two.zip")
    assert list(shipped_files(given))[1:] == [str(tmp_path / "one.py"), str(tmp_path / "two.zip")]
    add_to_path(given)
    assert __import__("inside_two").NAME == 2
    for wrong, what in (("three.zip", "there is no file three.zip"), ("notes.txt", "nothing that Python imports")):
        with pytest.raises(DefinitionError, match=what):
            shipped_files(settings(cache, py_files=wrong))


def test_files_on_a_store_stay_where_they_are(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before, given = list(sys.path), settings(cache, py_files="hdfs://host/one.py")
    assert list(shipped_files(given))[1:] == ["hdfs://host/one.py"]
    add_to_path(given)
    assert sys.path == before


def test_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packed.tar.gz").touch()
    found = archive_conf(settings(tmp_path, archives="packed.tar.gz#env,hdfs://host/more.zip#data"))
    assert found == {"spark.archives": f"{tmp_path}/packed.tar.gz#env,hdfs://host/more.zip#data"}
    assert archive_conf(settings(tmp_path)) == {}
    for wrong, what in (
        ("none.zip#env", "there is no file none.zip"),
        ("packed.rar", "is no archive"),
        ("packed.tar.gz#a/b", "is no folder's name"),
    ):
        with pytest.raises(DefinitionError, match=what):
            archive_conf(settings(tmp_path, archives=wrong))


def test_the_python_of_the_tasks(tmp_path: Path) -> None:
    plain, packed = settings(tmp_path), settings(tmp_path, archives="data.zip#data,x.tar.gz#env")
    assert python_of_tasks(plain, {}, {}) is None
    assert python_of_tasks(plain, {}, {"PYSPARK_PYTHON": sys.executable}) is None
    assert python_of_tasks(plain, {}, {"PYSPARK_PYTHON": "/opt/python"}) == "/opt/python"
    assert python_of_tasks(packed, {}, {}) == "./env/bin/python"
    assert python_of_tasks(packed, {"spark.pyspark.python": "python3"}, {}) == "python3"
    assert python_of_tasks(settings(tmp_path, archives="data.zip"), {}, {}) is None
