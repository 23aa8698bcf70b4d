"""`poundlock doctor`, `version`, `connectors` and `warm`: what is on this machine, what stands in the way of a job, each with what to
type, and Spark's classes made ready for jobs to start sooner.

`doctor` installs, fetches and changes nothing; folders that would be made are only tried. What a job needs is in `job_checks`.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from poundlock.cli.options import Call, JsonOption, with_shared_options
from poundlock.cli.output import Output
from poundlock.cli.setup.check import LEAST_DISK, Check, tried
from poundlock.cli.setup.job_checks import JobChecks, load_python_job
from poundlock.cli.setup.script_checks import is_script, load_script_jobs
from poundlock.errors import PoundlockError, pip_install
from poundlock.values import format_bytes, size
from poundlock.versions import version_of

if TYPE_CHECKING:
    from poundlock.config import Settings


_GB = 1 << 30
_PACKAGES = {"pyspark": ((3, 5), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,)), "numpy": ((1, 26), None)}


@with_shared_options
def command(
    job: Annotated[
        str | None,
        Argument(
            metavar="[JOB.PY[:NAME]|SCRIPT.SQL]", help="File of a job, or of SQL: what it needs is looked at as well."
        ),
    ] = None,
    *,
    call: Call,
) -> int:
    """Check the machine, and what a job needs.

    Looks at Java, Python, packages, jars, memory, disk, ports and folders; of a job, or of each job of a script of SQL, also at its sources,
    sinks, logins, rights and clocks, and leaves nothing there. The exit code is 1 if there is a problem.
    """
    settings = call.settings()
    checks = list(_examine(settings, None if job is None else _job_checks(job, settings, call)))
    ok = all(check.ok for check in checks)
    call.output.show(_lines(checks), {"ok": ok, "checks": [check.to_json() for check in checks]})
    return 0 if ok else 1


def _job_checks(target: str, settings: Settings, call: Call) -> JobChecks:
    if is_script(target):
        return JobChecks(partial(load_script_jobs, target, settings, call), settings)
    return JobChecks(partial(load_python_job, target, settings), settings)


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{'ok' if check.ok else 'problem':8}{check.name:{width}}  {check.result}"
        if not check.ok:
            yield f"{'':8}{'':{width}}  Next: {check.next}"


def _examine(settings: Settings, job: JobChecks | None) -> Iterator[Check]:
    yield _python()
    yield from _packages()
    yield _java(settings)
    yield _memory(size(settings.driver_memory) if job is None else job.heap)
    yield from _folders(settings)
    yield _loopback()
    yield from _connectors()
    if job is not None:
        yield from job.checks()


def _python() -> Check:
    result = f"{platform.python_version()} ({sys.executable})"
    return Check(name="python", ok=sys.version_info >= (3, 11), result=result, next="install Python 3.11 or later")


def _packages() -> Iterator[Check]:
    for package, (least, below) in _PACKAGES.items():
        wanted = f"{package}>={_dotted(least)}" + (f",<{_dotted(below)}" if below else "")
        next = pip_install(wanted)
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Check(name=package, ok=False, result="not installed", next=next)
            continue
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        ok = numbers >= least and (below is None or numbers < below)
        yield Check(name=package, ok=ok, result=version, next=next)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _java(settings: Settings) -> Check:
    from poundlock.spark.launch.java import java_of

    def look() -> str:
        java = java_of(settings)
        return f"{java.version} ({java.path}, from {java.origin})"

    return tried("java", look)


def _memory(heap: int) -> Check:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return Check(name="memory", ok=True, result="not known")
    free = _available() or total
    needed = heap + _GB  # the JVM's heap, and as much again for itself and the workers
    return Check(
        name="memory",
        ok=free >= needed,
        result=f"{format_bytes(free)} free of {format_bytes(total)}; a job takes about {format_bytes(needed)}",
        next="end other programs, or give the JVM less: -D driver_memory=1g",
    )


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _folders(settings: Settings) -> Iterator[Check]:
    places = {
        "state_dir": settings.state_dir,
        "cache_dir": settings.cache_dir,
        "log_dir": settings.logs,
        "temporary": Path(tempfile.gettempdir()),
    }
    for name, folder in places.items():
        nearest = folder.absolute()
        while not nearest.exists():
            nearest = nearest.parent
        option = "set TMPDIR to a folder" if name == "temporary" else f"choose a folder: -D {name}=DIR"
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            yield Check(name=name, ok=False, result=f"{folder} is not writable", next=f"{option} that you may write to")
            continue
        free = shutil.disk_usage(nearest).free
        result = f"{folder}, {format_bytes(free)} free"
        yield Check(name=name, ok=free >= LEAST_DISK, result=result, next=f"free some space, or {option} with room")


def _loopback() -> Check:
    from poundlock.testing.servers import is_free

    def look() -> str:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5),
        ):
            return f"127.0.0.1 works; port 9092 is {'free' if is_free(9092) else 'taken (kafka up needs --port)'}"

    return tried("ports", look, next="let programs of this machine talk to each other on 127.0.0.1")


def _connectors() -> Iterator[Check]:
    for one in installed_connectors():
        result = one.problem or f"{', '.join(one.roles)} of {one.package} {one.version}"
        yield Check(name=f"connector {one.name}", ok=not one.problem, result=result, next=one.next)


def version(json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """Show what is installed."""
    # By the metadata of packages: nothing is imported.
    result = {"poundlock": version_of("poundlock"), "python": platform.python_version()}
    result |= {name: version_of(name) for name in ("pyspark", "pyarrow", "numpy", "pandas")}
    Output(json).show(", ".join(f"{name} {version}" for name, version in result.items()), result)


def connectors(json: JsonOption = False) -> int:
    """List the connectors that installed packages bring.

    Each is loaded to see whether it can be. The exit code is 1 if one cannot.
    """
    listed = installed_connectors()
    ok = not any(connector.problem for connector in listed)
    Output(json).show(_listed(listed), {"ok": ok, "connectors": [asdict(connector) for connector in listed]})
    return 0 if ok else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledConnector:
    """One connector; one that cannot be loaded has no roles, and a problem instead."""

    name: str
    roles: Sequence[str]
    target: str
    package: str
    version: str
    problem: str = ""
    next: str = ""


def installed_connectors() -> Sequence[InstalledConnector]:
    from poundlock.connectors import registry

    result = []
    for one in registry.connectors():
        about = {"name": one.name, "target": one.target, "package": one.package, "version": one.version}
        try:
            result.append(InstalledConnector(roles=list(one.roles()), **about))
        except PoundlockError as error:
            result.append(InstalledConnector(roles=[], problem=error.what, next=error.next, **about))
    return result


def _listed(listed: Sequence[InstalledConnector]) -> Iterable[str]:
    if not listed:
        yield "no installed package brings connectors"
    width = max((len(connector.name) for connector in listed), default=0)
    for connector in listed:
        what = "problem" if connector.problem else ", ".join(connector.roles)
        yield f"{connector.name:{width}}  {what:12}  {connector.target}  ({connector.package} {connector.version})"
        if connector.problem:
            yield f"{'':{width}}  {connector.problem}"
            yield f"{'':{width}}  Next: {connector.next}"


def warm(
    again: Annotated[bool, Option("--again", help="Make the archive even if it is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Make jobs start sooner, once per installation.

    Archives Spark's classes: a minute or two and 150 MB. A job whose Java, pyspark or jars changed since then runs without.
    """
    from poundlock.config import load_settings
    from poundlock.spark.launch import class_archive
    from poundlock.spark.launch.java import java_of

    output, settings = Output(json), load_settings()
    made = str(class_archive.train(java_of(settings), [], cache=settings.cache_dir, progress=output.note, again=again))
    output.show(made, {"archives": [made]})
