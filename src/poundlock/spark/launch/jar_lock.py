"""The JVM parts that are fetched: `jar_lock.toml` beside this module as values.

A set is complete: together with the jars it borrows from pyspark it needs nothing else, so nothing is ever resolved.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: where a Maven repository keeps it and the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of the file, as Maven repositories name it."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarPins:
    """A named set of jars.

    Args:
        borrowed: artifacts taken from pyspark's own jars, in whatever version is there.
    """

    what: str
    pins: tuple[Pin, ...]
    borrowed: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """16 hex digits that change with any pin."""
        return hashlib.sha256("".join(f"{p.file}:{p.sha256}\n" for p in self.pins).encode()).hexdigest()[:16]


def _read() -> dict[str, JarPins]:
    sets = tomllib.loads(resources.files("poundlock.spark.launch").joinpath("jar_lock.toml").read_text("utf-8"))
    return {
        name: JarPins(
            what=of["what"],
            pins=tuple(Pin(*re.split("[: ]", pin)) for pin in of["pins"]),
            borrowed=tuple(of.get("borrowed", ())),
        )
        for name, of in sets.items()
    }


JAR_SETS: Mapping[str, JarPins] = MappingProxyType(_read())
