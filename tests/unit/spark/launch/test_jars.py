"""Jars are fetched by the real Ivy, here from a repository in a folder; what is returned has the pinned bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.errors import DefinitionError
from poundlock.spark.launch import jars
from poundlock.spark.launch.jars import JAR_SETS, JarPins, JarPlaces, Pin, jar_set, pyspark_jars

ONE, TWO = b"jar one", b"jar two"


def pin(name: str, content: bytes) -> Pin:
    return Pin("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


PINS = JarPins(what="two jars", pins=(pin("one_2.13", ONE), pin("two", TWO)))


def publish(repository: Path, name: str, content: bytes) -> None:
    folder = repository / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-1.0.jar").write_bytes(content)
    # The dependency is nowhere: a set is pinned whole, so it must not be asked for.
    (folder / f"{name}-1.0.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>"
        "<version>1.0</version><dependencies><dependency><groupId>org.example</groupId><artifactId>none</artifactId>"
        "<version>9</version></dependency></dependencies></project>"
    )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jars, "JAR_SETS", {"two": PINS})
    publish(tmp_path / "repository", "one_2.13", ONE)
    publish(tmp_path / "repository", "two", TWO)
    return tmp_path / "repository"


def places(tmp_path: Path, root: str) -> JarPlaces:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="r"/><resolvers>'
        f'<ibiblio name="r" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
    )
    return JarPlaces(cache=tmp_path / "cache", ivy_settings=settings)


@pytest.mark.engine
def test_fetch_then_warm_without_java_and_network(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = places(tmp_path, repository.as_uri())
    lines: list[str] = []
    fetched = jar_set("two", progress=lines.append, places=where)
    assert [Path(p).read_bytes() for p in fetched] == [ONE, TWO]
    assert [Path(p).name for p in fetched] == ["one_2.13-1.0.jar", "two-1.0.jar"]
    assert lines[0] == "fetching two jars: 2 jars, once"
    assert lines[-1].endswith("(2 of 2)")
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("a warm cache needs no Java"))
    assert jar_set("two", progress=lambda line: pytest.fail(line), places=where) == fetched
    assert not list((tmp_path / "cache" / "jars").glob(".tmp-*"))


@pytest.mark.engine
def test_a_touched_jar_is_checked_again_and_a_damaged_one_fetched_again(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = places(tmp_path, repository.as_uri())
    first = Path(jar_set("two", places=where)[0])
    first.touch()
    with monkeypatch.context() as patch:
        patch.setattr(jars, "find_java", lambda: pytest.fail("the bytes are right"))
        jar_set("two", places=where)
    first.write_bytes(b"damaged")
    assert [Path(p).read_bytes() for p in jar_set("two", places=where)] == [ONE, TWO]


@pytest.mark.engine
def test_other_bytes_than_pinned_are_refused(tmp_path: Path, repository: Path) -> None:
    publish(repository, "two", b"something else")
    with pytest.raises(DefinitionError, match=r"two-1\.0\.jar has another SHA-256") as caught:
        jar_set("two", places=places(tmp_path, repository.as_uri()))
    assert "one_2.13" not in caught.value.what
    assert not list((tmp_path / "cache" / "jars").glob("two-*"))


@pytest.mark.engine
def test_unreachable_repository_names_the_jars_and_the_ways_out(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(DefinitionError, match="the repository cannot be reached") as caught:
        jar_set("two", places=places(tmp_path, "http://127.0.0.1:1/"))
    assert "one_2.13-1.0.jar is missing" in caught.value.what
    assert "POUNDLOCK_JARS_DIR" in caught.value.next
    assert "POUNDLOCK_IVY_SETTINGS" in caught.value.next


@pytest.mark.engine
def test_a_jar_the_repository_lacks(tmp_path: Path, repository: Path) -> None:
    (repository / "org/example/two/1.0/two-1.0.jar").unlink()
    (repository / "org/example/two/1.0/two-1.0.pom").unlink()
    with pytest.raises(DefinitionError, match="the repository does not have all of them"):
        jar_set("two", places=places(tmp_path, repository.as_uri()))


def test_a_folder_of_jars(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one_2.13-1.0.jar").write_bytes(ONE)
    monkeypatch.setenv("POUNDLOCK_JARS_DIR", str(folder))
    with pytest.raises(DefinitionError, match=r"two-1\.0\.jar is missing"):
        jar_set("two")
    (folder / "two-1.0.jar").write_bytes(TWO)
    assert jar_set("two") == [str(folder / "one_2.13-1.0.jar"), str(folder / "two-1.0.jar")]


@pytest.mark.engine
def test_processes_at_once_fetch_one_after_the_other(tmp_path: Path, repository: Path) -> None:
    where = places(tmp_path, repository.as_uri())
    code = (
        "import sys; from pathlib import Path; from poundlock.spark.launch import jars\n"
        f"jars.JAR_SETS = {{'two': jars.JarPins(what='two jars', pins={PINS.pins!r})}}\n".replace("Pin(", "jars.Pin(")
        + f"where = jars.JarPlaces(cache=Path({str(where.cache)!r}), ivy_settings=Path({str(where.ivy_settings)!r}))\n"
        "print(*jars.jar_set('two', places=where, progress=lambda line: print(line, file=sys.stderr)))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], told
    assert len({out for out, _ in told}) == 1
    assert sum(bool(err) for _, err in told) == 1  # the others found it warm


def test_unknown_set() -> None:
    with pytest.raises(DefinitionError, match="no set of jars 'kafak'"):
        jar_set("kafak")


@pytest.mark.parametrize("name", sorted(JAR_SETS))
def test_pins_are_whole(name: str) -> None:
    pins = JAR_SETS[name]
    assert all(len(p.sha256) == 64 and int(p.sha256, 16) for p in pins.pins)
    assert len({p.file for p in pins.pins}) == len(pins.pins)
    for artifact in pins.borrowed:
        assert Path(jars._borrow(artifact)).parent == pyspark_jars()


def test_neither_pyspark_nor_confluent_is_imported() -> None:
    code = "import sys, poundlock.spark.launch.jars as j; j.pyspark_jars(); print([m for m in sys.modules if m[:5] in ('pyspa', 'confl')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_classifier_tells_jars_of_one_version_apart() -> None:
    lines = (f"org.example:a:1.0 {'1' * 64}", f"org.example:a:1.0:tests {'2' * 64}")
    pins = [Pin.parse(line) for line in lines]
    assert [(pin.file, pin.sha256[0]) for pin in pins] == [("a-1.0.jar", "1"), ("a-1.0-tests.jar", "2")]
    wanted = jars._ivy_file(pins)
    assert wanted.count("<dependency ") == 1
    assert wanted.count("<artifact ") == 2
    assert wanted.count('m:classifier="tests"') == 1
