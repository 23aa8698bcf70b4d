"""What a cluster's tasks need and its machines may not have: this package as a zip, the user's modules, the user's Python.

The zip is made once for each state of the package, holds code, the list of public names and that of jars only, and is the same for the same files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import secrets
import struct
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from poundlock.config import Settings
from poundlock.errors import DefinitionError, refusing

_SUFFIXES = (".py", ".zip", ".egg", ".whl", ".jar")
_PACKED = (".zip", ".tar.gz", ".tgz", ".tar", ".jar")
_ENVIRONMENTS = ("env", "environment")
_TASK_PYTHON = ("spark.sql.execution.pyspark.python", "spark.pyspark.python")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file in the zip, so that equal files give equal zips


def shipped_files(settings: Settings) -> Sequence[str]:
    """Return what is sent to every task of a cluster: this package, and the user's --py-files.

    Raises:
        DefinitionError: one of them is not there, or is nothing that Python imports from.
    """
    for name in settings.py_files:
        if not name.endswith(_SUFFIXES):
            raise DefinitionError(
                f"--py-files {name} is nothing that Python imports", next=f"give one of {', '.join(_SUFFIXES)}"
            )
        _check_there(name, "--py-files")
    return [str(package_zip(settings.cache_dir)), *(_whole(name) for name in settings.py_files)]


def add_to_path(settings: Settings) -> None:
    """Let the job's file import what --py-files brings, as the tasks will. Raises DefinitionError as `shipped_files` does."""
    for name in settings.py_files:
        _check_there(name, "--py-files")
        if _elsewhere(name):
            continue  # the tasks fetch it from there, and nothing here does
        path = os.path.abspath(name)
        place = os.path.dirname(path) if name.endswith(".py") else path
        if place not in sys.path:
            sys.path.insert(1, place)


def package_zip(cache: Path) -> Path:
    """Return a zip of this package, sources and byte code, made again when a file of it has changed.

    Raises:
        DefinitionError: the cache cannot be written.
    """
    spec = importlib.util.find_spec("poundlock")
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin)
    if not origin.is_file():  # the driver itself runs from such a zip, as in a container of a cluster
        return next(parent for parent in origin.parents if parent.is_file())
    files = sorted(path for path in origin.parent.rglob("*") if path.suffix in (".py", ".pyi", ".toml"))
    marks = [f"{path.relative_to(origin.parent)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    digest = hashlib.sha256("\n".join([sys.version, str(origin), *marks]).encode()).hexdigest()[:16]
    target = cache / "shipped" / f"poundlock-{digest}.zip"
    if not target.is_file():
        what = f"{target.parent} cannot be written"
        with refusing(what, next="set cache_dir to a folder of yours: -D cache_dir=…"):
            _write_zip(target, origin.parent, files)
    return target


def _write_zip(target: Path, package: Path, files: Sequence[Path]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with zipfile.ZipFile(temporary, "w") as made:
            for path in files:
                name = f"{package.name}/{path.relative_to(package).as_posix()}"
                made.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED, 1)
                if path.suffix == ".py":
                    made.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _byte_code(path), zipfile.ZIP_DEFLATED, 1)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    for old in sorted(target.parent.glob("poundlock-*.zip"), key=lambda path: path.stat().st_mtime)[:-8]:
        old.unlink(missing_ok=True)


def _byte_code(source: Path) -> bytes:
    """Return a file's byte code, as Python has kept it or compiled here, marked as always right.

    A worker cannot keep what it compiles out of a zip. One of another version takes the source.
    """
    unchecked = struct.pack("<4sI8s", importlib.util.MAGIC_NUMBER, 1, bytes(8))  # PEP 552
    with suppress(OSError, NotImplementedError):
        kept = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        stat = source.stat()
        known = struct.pack("<4sIII", importlib.util.MAGIC_NUMBER, 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size)
        if kept[:16] == known:
            return unchecked + kept[16:]
    return unchecked + marshal.dumps(compile(source.read_bytes(), str(source), "exec", dont_inherit=True))


def archive_conf(settings: Settings) -> Mapping[str, str]:
    """Return the setting that has archives unpacked beside the tasks. Raises DefinitionError if one is not there."""
    for archive in settings.archives:
        path, _, name = archive.partition("#")
        if not path.endswith(_PACKED):
            raise DefinitionError(f"--archives {path} is no archive", next=f"give one of {', '.join(_PACKED)}")
        if "/" in name:
            raise DefinitionError(f"--archives {archive}: {name!r} is no folder's name", next=f"write {path}#env")
        _check_there(path, "--archives")
    made = [_whole(archive) for archive in settings.archives]
    return {"spark.archives": ",".join(made)} if made else {}


def python_of_tasks(
    settings: Settings, given: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> str | None:
    """Return the Python of a cluster's tasks where it is not the driver's own path; None if it is.

    That is: what Spark's own settings say, PYSPARK_PYTHON, or the environment in an archive called `…#env`.
    """
    env = os.environ if environment is None else environment
    for name in _TASK_PYTHON:
        if name in given:
            return given[name]
    if env.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return env["PYSPARK_PYTHON"]
    for archive in settings.archives:
        _, _, name = archive.partition("#")
        if name in _ENVIRONMENTS:
            return f"./{name}/bin/python"
    return None


def _elsewhere(name: str) -> bool:
    """Whether a file is on a store that the cluster reads, such as hdfs://."""
    return ":/" in name


def _whole(name: str) -> str:
    return name if _elsewhere(name) else os.path.abspath(name)


def _check_there(name: str, option: str) -> None:
    if not _elsewhere(name) and not os.path.isfile(name):
        raise DefinitionError(
            f"{option}: there is no file {name}", next="mend the path; several are separated by commas"
        )
