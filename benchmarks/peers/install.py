"""Installs each peer below build/peers, in an environment of its own, from a list of pinned packages.

Nothing outside that folder and the jar cache is changed; a second call does nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import JarPins, Pin, jar_set

__all__ = ["BYTEWAX", "HOME", "PATHWAY", "PEERS", "PYFLINK", "QUIX", "SPARK_ICEBERG", "Peer", "install", "installed"]

HOME = Path(__file__).resolve().parents[2] / "build" / "peers"
_STAMP = "installed.txt"


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine for Python users.

    Args:
        name: what its environment and its list of packages are called.
        package: what it is on the package index; the version is in its list.
        module: what is imported.
        python: the Python that its wheels are for.
        pins: the jars it needs besides.
    """

    name: str
    package: str
    module: str
    python: str = "3.11"
    pins: JarPins | None = None

    @property
    def requirements(self) -> Path:
        """The list of its packages."""
        return Path(__file__).with_name("requirements") / f"{self.name}.txt"

    @property
    def title(self) -> str:
        """Its package with the version."""
        return next(line for line in self.requirements.read_text().splitlines() if line.startswith(f"{self.package}=="))

    @property
    def bin(self) -> Path:
        """The folder of its programs."""
        return HOME / self.name / "bin"

    def jars(self) -> Sequence[str]:
        """Return the paths of the jars it needs besides, fetched the first time."""
        return jar_set(f"{self.name}-connector", progress=print, pins=self.pins) if self.pins else ()


_CONNECTOR = JarPins(
    what="PyFlink's Kafka connector",
    pins=(
        Pin(
            "org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2",
            "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
        ),
    ),
)  # fmt: skip
_ICEBERG = JarPins(
    what="Iceberg for Spark",
    pins=(
        Pin(
            "org.apache.iceberg",
            "iceberg-spark-runtime-4.1_2.13",
            "1.12.0",
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        ),
    ),
)
BYTEWAX = Peer("bytewax", "bytewax", "bytewax.run")
QUIX = Peer("quix", "quixstreams", "quixstreams")
PATHWAY = Peer("pathway", "pathway", "pathway")
PYFLINK = Peer("pyflink", "apache-flink", "pyflink.datastream", pins=_CONNECTOR)
SPARK_ICEBERG = Peer("spark_iceberg", "pyspark", "pyspark", pins=_ICEBERG)
"""Spark with Iceberg, whose newest jar is for Spark 4.1: for the cases of tables, not one of those that others here are compared with."""
PEERS = (BYTEWAX, QUIX, PATHWAY, PYFLINK)


def installed(peer: Peer) -> bool:
    """Return whether the peer is there, in the versions of its list."""
    stamp = HOME / peer.name / _STAMP
    return stamp.exists() and stamp.read_text() == peer.requirements.read_text()


def install(peer: Peer) -> None:
    """Install a peer unless it is there; needs a network the first time.

    Raises:
        DefinitionError: a package could not be installed, or what was installed cannot be imported.
    """
    if installed(peer):
        return
    folder = HOME / peer.name
    print(f"installing {peer.title} below {folder}, once", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = [sys.executable, "-m", "uv"]
    _do(peer, [*uv, "venv", "--quiet", "--python", peer.python, str(folder)])
    python = str(peer.bin / "python")
    _do(
        peer, [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "-r", str(peer.requirements)]
    )
    _do(peer, [python, "-c", f"import {peer.module}"])
    peer.jars()
    (folder / _STAMP).write_text(peer.requirements.read_text())


def _do(peer: Peer, command: list[str]) -> None:
    # uv would fetch a Python of its own from a place that is no package index.
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split()[-80:])
        raise DefinitionError(
            f"could not install {peer.title} for Python {peer.python}: {message}",
            next="mend what it says, then type: make bench-peers; without it, the others are measured",
        )
