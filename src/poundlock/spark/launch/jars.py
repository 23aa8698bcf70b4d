"""Brings the jars that `jar_lock.toml` pins onto this machine: from a user's folder, the cache, or a Maven repository by Ivy.

A set is complete: with the jars it borrows from pyspark it needs nothing else, so nothing is ever resolved. No path is returned whose bytes did not have the pinned SHA-256, and a warm cache needs neither network nor Java.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from poundlock.errors import DefinitionError, pip_install, refusing
from poundlock.spark.launch.java import cache_dir, find_java

if TYPE_CHECKING:
    from poundlock.config import Settings


Progress = Callable[[str], None]
_STAMP = ".checked.json"


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: where a Maven repository keeps it and the SHA-256 of its bytes; `classifier` tells several of one version apart."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """Name of the file, as Maven repositories name it."""
        return f"{self.artifact}-{self.version}{'-' if self.classifier else ''}{self.classifier}.jar"

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Return the pin of a line such as "group:artifact:version sha256", or "group:artifact:version:classifier sha256"."""
        coordinates, sha256 = text.split(" ")
        group, artifact, version, *classifier = coordinates.split(":")
        return cls(group, artifact, version, sha256, *classifier)


@dataclass(frozen=True, slots=True)
class JarPins:
    """A named set of jars; those that are borrowed are pyspark's own, in whatever version is there."""

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
            pins=tuple(map(Pin.parse, of["pins"])),
            borrowed=tuple(of.get("borrowed", ())),
        )
        for name, of in sets.items()
    }


JAR_SETS: Mapping[str, JarPins] = MappingProxyType(_read())


@dataclass(frozen=True, slots=True)
class JarPlaces:
    """Where jars come from: a folder with all of a set, put there by the user, or else what is fetched into the cache, by Ivy's own default or
    from the repository that an ivysettings.xml names."""

    cache: Path
    folder: Path | None = None
    ivy_settings: Path | None = None

    @classmethod
    def from_environment(cls) -> JarPlaces:
        """Return the places that POUNDLOCK_CACHE_DIR, POUNDLOCK_JARS_DIR and POUNDLOCK_IVY_SETTINGS say."""
        given = (os.environ.get(name) for name in ("POUNDLOCK_JARS_DIR", "POUNDLOCK_IVY_SETTINGS"))
        return cls(cache_dir(), *(Path(path).expanduser() if path else None for path in given))

    @classmethod
    def of(cls, settings: Settings) -> JarPlaces:
        """Return the places that a run's settings say."""
        return cls(cache=settings.cache_dir, folder=settings.jars_dir, ivy_settings=settings.ivy_settings)


def jar_set(
    name: str, *, progress: Progress | None = None, places: JarPlaces | None = None, pins: JarPins | None = None
) -> list[str]:
    """Return the paths of all jars of a set, fetching what is not there yet.

    Args:
        name: "s3a" (for checkpoints on S3), "kafka-broker" (class path of the test broker) or
            "hdfs-minicluster" (a test HDFS; it needs all of pyspark's jars besides).
        progress: called with a line at a time while something is fetched; never called when the cache is warm.
        places: where jars come from; default: as the environment says.
        pins: the jars of a set that is not poundlock's own; `name` is then only its name in the cache.

    Raises:
        DefinitionError: the set is unknown, a jar cannot be fetched, or one has other bytes than pinned.
    """
    pins = pins or JAR_SETS.get(name)
    if pins is None:
        raise DefinitionError(f"there is no set of jars {name!r}", next=f"use one of: {', '.join(JAR_SETS)}")
    places = places or JarPlaces.from_environment()
    borrowed = [_borrow(artifact) for artifact in pins.borrowed]
    if places.folder is not None:
        home = places.folder
        if faults := _faults(home, pins):
            raise DefinitionError(
                f"POUNDLOCK_JARS_DIR={home} cannot give {pins.what}: {'; '.join(faults)}",
                next="put exactly these files there, or unset POUNDLOCK_JARS_DIR to have them fetched",
            )
    else:
        home = places.cache / "jars" / f"{name}-{pins.digest}"
        if not _warm(home, pins):
            _fill(home, name, pins, places, progress or (lambda line: None))
    return [str(home / pin.file) for pin in pins.pins] + borrowed


def missing_jars(name: str, places: JarPlaces) -> Sequence[str]:
    """Return the files of a set that are to be fetched before it can be used; none where it is there. Fetches nothing.

    Raises:
        DefinitionError: jars are taken from the user's folder, and it cannot give them.
    """
    pins = JAR_SETS[name]
    if places.folder is not None:
        jar_set(name, places=places)
        return []
    return [] if _warm(places.cache / "jars" / f"{name}-{pins.digest}", pins) else [pin.file for pin in pins.pins]


def pyspark_jars() -> Path:
    """Return the folder of the jars that come with pyspark, without importing it.

    Raises:
        DefinitionError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        jars = Path(folder) / "jars"
        if jars.is_dir():
            return jars
    # In a container of a cluster pyspark itself is in a zip, and the jars are where the class path says.
    for place in os.environ.get("CLASSPATH", "").split(os.pathsep):
        if place.endswith("/*") and any(Path(place[:-2]).glob("spark-core_*.jar")):
            return Path(place[:-2])
    raise DefinitionError("pyspark is not installed in this Python", next=pip_install("pyspark>=3.5,<5"))


def _borrow(artifact: str) -> str:
    matches = [j for j in pyspark_jars().glob(f"{artifact}-*.jar") if re.match(r"[0-9]", j.name[len(artifact) + 1 :])]
    if len(matches) != 1:
        names = ", ".join(sorted(j.name for j in matches)) or "none"
        raise DefinitionError(
            f"pyspark's jars in {pyspark_jars()} should hold one {artifact}, found {names}",
            next="install an unchanged pyspark",
        )
    return str(matches[0])


def _warm(home: Path, pins: JarPins) -> bool:
    """Return whether the jars are there as they were when their bytes were last checked, by size and time."""
    try:
        stamp = json.loads((home / _STAMP).read_text())
        return all(stamp.get(pin.file) == _mark(home / pin.file) for pin in pins.pins)
    except (OSError, ValueError):
        return False


def _mark(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _faults(home: Path, pins: JarPins) -> list[str]:
    faults = []
    for pin in pins.pins:
        path = home / pin.file
        if not path.is_file():
            faults.append(f"{pin.file} is missing")
        elif _sha256(path) != pin.sha256:
            faults.append(f"{pin.file} has another SHA-256 than {pin.sha256}")
    return faults


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, over processes. Ivy's own cache does not bear two writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fill(home: Path, name: str, pins: JarPins, places: JarPlaces, progress: Progress) -> None:
    """Make the folder of a set whole: check what is there, else fetch, and put it in place by one rename."""
    with (
        refusing(f"cannot write {home}", next="set POUNDLOCK_CACHE_DIR to a folder with room"),
        locked(home.parent / ".lock"),
    ):
        if _warm(home, pins):
            return
        if home.is_dir() and not _faults(home, pins):
            _stamp(home, pins)
            return
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".tmp-", ignore_cleanup_errors=True) as temporary:
            fresh = Path(temporary) / "jars"
            fresh.mkdir()
            _fetch(fresh, name, pins, places, Path(temporary), progress)
            _stamp(fresh, pins)
            shutil.rmtree(home, ignore_errors=True)
            fresh.rename(home)


def _stamp(home: Path, pins: JarPins) -> None:
    (home / _STAMP).write_text(json.dumps({pin.file: _mark(home / pin.file) for pin in pins.pins}))


def _fetch(home: Path, name: str, pins: JarPins, places: JarPlaces, temporary: Path, progress: Progress) -> None:
    ivy = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not ivy:
        raise DefinitionError(f"no Ivy in {pyspark_jars()}", next="install an unchanged pyspark")
    wanted = temporary / "ivy.xml"
    wanted.write_text(_ivy_file(pins.pins))
    user = places.cache / "ivy"
    command = [find_java().path, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Divy.default.ivy.user.dir={user}", "-cp", str(ivy[-1]), "org.apache.ivy.Main"]
    command += ["-settings", str(places.ivy_settings)] if places.ivy_settings else []
    command += ["-cache", str(user / "cache"), "-ivy", str(wanted), "-confs", "default"]
    command += ["-retrieve", f"{home}/[artifact]-[revision](-[classifier]).[ext]"]
    progress(f"fetching {pins.what}: {len(pins.pins)} jars, once")
    output = _run_ivy(command, len(pins.pins), progress)
    if faults := _faults(home, pins):
        raise DefinitionError(
            f"could not fetch {pins.what} ({name}): {_reason(output)}: {'; '.join(faults)}",
            next="connect to a network, or put the files into a folder and set POUNDLOCK_JARS_DIR to it, "
            "or set POUNDLOCK_IVY_SETTINGS to an ivysettings.xml with your repository",
        )


def _run_ivy(command: Sequence[str], total: int, progress: Progress) -> str:
    """Run Ivy, passing on its progress; return all it printed."""
    lines: list[str] = []
    done = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line)
            if fetched := re.search(r"\[SUCCESSFUL \]\s+\S*!([\w.-]+\.jar)", line):
                done += 1
                progress(f"fetched {fetched[1]} ({done} of {total})")
    return "".join(lines)


def _ivy_file(pins: Sequence[Pin]) -> str:
    """Return an ivy.xml in which nothing is transitive: the set is pinned whole, so Ivy has nothing to decide."""
    together: dict[tuple[str, str, str], list[str]] = {}
    for pin in pins:  # what differs by its classifier alone is one dependency
        together.setdefault((pin.group, pin.artifact, pin.version), []).append(pin.classifier)
    modules = "".join(_dependency(*module, classifiers) for module, classifiers in together.items())
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="poundlock" module="jars"/>\n'
        f'<dependencies defaultconf="*-&gt;default">\n{modules}</dependencies></ivy-module>\n'
    )


def _dependency(group: str, artifact: str, version: str, classifiers: Sequence[str]) -> str:
    module = f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
    if not any(classifiers):
        return f'{module} transitive="false"/>\n'
    artifacts = "".join(
        f'<artifact name={quoteattr(artifact)} type="jar"{f" m:classifier={quoteattr(each)}" if each else ""}/>'
        for each in classifiers
    )
    return f'{module} transitive="false">{artifacts}</dependency>\n'


def _reason(output: str) -> str:
    """Return why Ivy failed, in few words."""
    if re.search(
        r"UnknownHostException|ConnectException|NoRouteToHost|SocketTimeout|Connection (?:refused|timed out)", output
    ):
        return "the repository cannot be reached"
    if re.search(r"UNRESOLVED DEPENDENCIES|not found", output):
        return "the repository does not have all of them"
    last = [line.strip() for line in output.splitlines() if line.strip()]
    return last[-1][:200] if last else "Ivy printed nothing"
