"""Class archives: their names tell what they fit, options appear only with a file, a failed training leaves nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from poundlock.errors import DefinitionError
from poundlock.spark.launch import class_archive as cds
from poundlock.spark.launch.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\necho no; exit 3\n")
    program.chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    return Java(path=str(program), version=17, home=str(home))


def with_version(java: Java, version: int) -> Java:
    return Java(path=java.path, version=version, home=java.home)


def test_the_same_installation_has_the_same_archive(java: Java, tmp_path: Path) -> None:
    assert cds.archive_path(java, cache=tmp_path) == cds.archive_path(java, cache=tmp_path)
    assert cds.archive_path(java, cache=tmp_path).parent == tmp_path / "cds"


def test_another_build_of_java_has_another(java: Java, tmp_path: Path) -> None:
    before = cds.archive_path(java, cache=tmp_path)
    (Path(java.home) / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert cds.archive_path(java, cache=tmp_path) != before


def test_the_class_path_and_its_order_count(java: Java, tmp_path: Path) -> None:
    jars = [str(tmp_path / "a.jar"), str(tmp_path / "b.jar")]
    for jar in jars:
        Path(jar).write_bytes(b"x")
    paths = {cds.archive_path(java, given, cache=tmp_path) for given in ([], jars, jars[::-1], jars[:1])}
    assert len(paths) == 4


def test_a_changed_jar_means_another(java: Java, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"x")
    before = cds.archive_path(java, [str(jar)], cache=tmp_path)
    os.utime(jar, ns=(1, 1))
    assert cds.archive_path(java, [str(jar)], cache=tmp_path) != before


def test_a_java_without_release_file_is_told_by_its_program(java: Java, tmp_path: Path) -> None:
    (Path(java.home) / "release").unlink()
    before = cds.archive_path(java, cache=tmp_path)
    Path(java.path).write_text("#!/bin/sh\nanother\n")
    assert cds.archive_path(java, cache=tmp_path) != before


@pytest.mark.parametrize(
    ("version", "use", "dump"), [(17, "SharedArchiveFile", "ArchiveClassesAtExit"), (25, "AOTCache", "AOTCacheOutput")]
)
def test_options_need_the_archive_and_are_the_java_versions(
    java: Java, tmp_path: Path, version: int, use: str, dump: str
) -> None:
    java = with_version(java, version)
    assert cds.jvm_options(java, cache=tmp_path) == []
    archive = cds.archive_path(java, cache=tmp_path)
    archive.parent.mkdir()
    archive.write_bytes(b"")
    assert cds.jvm_options(java, cache=tmp_path) == [f"-XX:{use}={archive}"]
    assert cds.dump_options(java, archive) == [f"-XX:{dump}={archive}"]


def test_a_failed_training_says_where_to_look_and_leaves_no_archive(java: Java, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"class archive was not made.*\nNext: read .*\.log; jobs run without it"):
        cds.train(java, cache=tmp_path)
    assert cds.jvm_options(java, cache=tmp_path) == []
    assert [p.name for p in (tmp_path / "cds").iterdir() if p.suffix == ".jsa"] == []


def test_training_does_not_repeat_itself(java: Java, tmp_path: Path) -> None:
    archive = cds.archive_path(java, cache=tmp_path)
    archive.parent.mkdir()
    archive.write_bytes(b"there")
    assert cds.train(java, cache=tmp_path) == archive
    assert archive.read_bytes() == b"there"


def test_what_a_killed_training_left_is_removed(java: Java, tmp_path: Path) -> None:
    left = tmp_path / "cds" / ".tmp-1-x.jsa"
    left.parent.mkdir()
    left.write_bytes(b"half")
    with pytest.raises(DefinitionError):
        cds.train(java, cache=tmp_path)
    assert not left.exists()


def test_it_loads_no_spark() -> None:
    import subprocess

    program = "import sys, poundlock.spark.launch.class_archive; assert not {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("version", "builds_on"), [(21, False), (21, True), (25, False)])
def test_a_small_runtime_is_told_before_the_training(
    java: Java, tmp_path: Path, version: int, builds_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Java 24 an archive only adds to the one that a runtime brings."""
    small = tmp_path / "small"
    (small / "lib" / "server").mkdir(parents=True)
    if builds_on:
        (small / "lib" / "server" / "classes.jsa").write_bytes(b"")
    Path(java.path).write_text(f"#!/bin/sh\necho '    java.home = {small}' >&2\n")
    trained: list[Java] = []

    def training(java: Java, _jars: object, fresh: Path, *_: object) -> None:
        trained.append(java)
        fresh.touch()

    monkeypatch.setattr(cds, "_run_training", training)
    if version < 25 and not builds_on:
        with pytest.raises(DefinitionError, match="no class archive of its own"):
            cds.train(with_version(java, version), cache=tmp_path)
        assert trained == []
    else:
        assert cds.train(with_version(java, version), cache=tmp_path).exists()
        assert len(trained) == 1
