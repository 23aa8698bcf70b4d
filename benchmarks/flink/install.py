"""Installs Flink below build/flink: the jars of its Python wheel, the Kafka connector by pinned SHA-256, our Java jobs compiled.

PyFlink is one of the peers, below build/peers. Nothing outside these folders and the jar cache is changed; a second call fetches
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import install as peers
from benchmarks.peers.install import PYFLINK
from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import JarPins, Pin, jar_set
from poundlock.spark.launch.java import find_java

__all__ = ["FLINK", "Installed", "PyFlink", "install", "installed", "installed_pyflink"]

FLINK = "2.3.0"
ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "flink"
_HEAP = ("-Xmx2g", "-XX:+UseSerialGC")
_JOBS = ("EventLog", "KafkaCopy", "KeyedWork", "KeyedKafka", "SqlScript")
_SOURCES = [Path(__file__).with_name(f"{job}.java") for job in _JOBS]
_CONNECTOR = JarPins(
    what="Flink's Kafka connector",
    pins=tuple(
        Pin(*line.split())
        for line in """
org.apache.flink flink-connector-kafka 5.0.0-2.2 6bb63f7b09930d99745325393b481c092b0c26d626e738b7a1fd6fd8d7d4f1da
org.apache.kafka kafka-clients 4.2.0 bcf39f152c5553c2501a491fc4a73c5b0330741e8eed96a481323b8ee89738af
at.yawk.lz4 lz4-java 1.10.1 a58a84c4271e50df4c96ed916ccb7e48a869f8ed9cdcda1ad5d3d4c33b0214a3
org.xerial.snappy snappy-java 1.1.10.7 4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36
com.github.luben zstd-jni 1.5.6-10 b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df
com.fasterxml.jackson.core jackson-core 2.18.2 d8054ae7c0d1c2d2f55d28e46026ebe5892881f3fab5f439233184381c3b4a1f
com.fasterxml.jackson.core jackson-databind 2.18.2 4b364e6850dc89172fcf1d4dd26b8ff5488eda44ff4657e22dd265203dd5ab3c
com.fasterxml.jackson.core jackson-annotations 2.18.2 581bd61000ef7648943f781ca05689e56d03f6052748365a8e2b3a9b5d3fa32f
""".strip().splitlines()
    ),
)


@dataclass(frozen=True, slots=True)
class Installed:
    """A Flink that can be run: the `java` program and the class path, our jobs first."""

    java: str
    classpath: str

    def command(self, job: str, *arguments: object, options: Sequence[str] = ()) -> list[str]:
        """Return the command that runs one of our jobs with a heap of 2 GB.

        Args:
            job: its class.
            arguments: its own.
            options: further ones of Java's.
        """
        opens = [word for p in ("util", "lang", "time") for word in ("--add-opens", f"java.base/java.{p}=ALL-UNNAMED")]
        return [
            self.java, *_HEAP, *options, *opens, "-cp", self.classpath, job, *map(str, arguments)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PyFlink:
    """A PyFlink that can be run: the Python of its environment and the jars of its Kafka connector."""

    python: str
    jars: Sequence[str]

    def command(self, program: str, *arguments: object) -> list[str]:
        """Return the command that runs one of our programs with a heap of 2 GB.

        Args:
            program: its path, from this folder.
            arguments: its own; before them come the URLs of the jars, joined by semicolons.
        """
        env = {
            "JAVA_HOME": find_java().home,
            "JVM_ARGS": " ".join(_HEAP),
            "FLINK_LOG_DIR": str(PYFLINK.bin.parent / "log"),
        }
        jars = ";".join(Path(jar).as_uri() for jar in self.jars)
        words = [self.python, str(Path(__file__).parent / program), jars, *map(str, arguments)]
        return ["env", *(f"{name}={value}" for name, value in env.items()), *words]


def installed() -> Installed | None:
    """Return the installed Flink, None where `make bench-flink` has not been run here with these jobs."""
    listing = HOME / "classpath"
    if not listing.exists():
        return None
    entries = listing.read_text().splitlines()
    compiled = {Path(entries[0]) / f"{source.stem}.class": source for source in _SOURCES}
    if not all(path.exists() for path in (*map(Path, entries), *compiled)):
        return None
    if any(path.stat().st_mtime < source.stat().st_mtime for path, source in compiled.items()):
        return None  # they take other arguments than the cases give
    return Installed(find_java().path, os.pathsep.join(entries))


def install() -> Installed:
    """Install what is missing and compile the jobs; needs a JDK and, the first time, a network.

    Raises:
        DefinitionError: there is no `javac`, or a download failed.
    """
    javac = _javac()
    jars = _flink_jars()
    kafka = jar_set("flink-connector", progress=print, pins=_CONNECTOR)
    classes = HOME / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    _do(
        [javac, "-cp", os.pathsep.join([*jars, *kafka]), "-d", str(classes), *map(str, _SOURCES)],
        "compile the Java jobs",
        "read what javac says above",
    )
    (HOME / "classpath").write_text("\n".join([str(classes), *jars, *kafka]))
    found = installed()
    assert found is not None
    return found


def installed_pyflink() -> PyFlink | None:
    """Return the installed PyFlink, None where neither `make bench-flink` nor `make bench-peers` has been run here."""
    return PyFlink(str(PYFLINK.bin / "python"), PYFLINK.jars()) if peers.installed(PYFLINK) else None


def _javac() -> str:
    home = Path(find_java().home)
    program = home / "bin" / "javac"
    found = str(program) if program.exists() else shutil.which("javac")
    if found is None:
        raise DefinitionError(
            f"{home} is a Java runtime without a compiler, and there is no javac on PATH",
            next="install a JDK (17 or later) and set JAVA_HOME to it, then type: make bench-flink",
        )
    return found


def _flink_jars() -> list[str]:
    environment = HOME / "venv"
    if not (jars := sorted(environment.glob("lib/python*/site-packages/pyflink/lib/*.jar"))):
        print(f"installing Flink {FLINK} below {HOME}: about 240 MB, once", flush=True)
        venv.create(environment, with_pip=True, clear=True)
        package = f"apache-flink-libraries=={FLINK}"
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", package]
        _do(pip, f"install {package}", "connect to a network and type it again: make bench-flink")
        jars = sorted(environment.glob("lib/python*/site-packages/pyflink/lib/*.jar"))
    return [str(jar) for jar in jars]


def _do(command: list[str], what: str, next: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise DefinitionError(f"could not {what}", next=next)
