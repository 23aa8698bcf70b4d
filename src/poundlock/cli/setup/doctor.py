"""`poundlock doctor`: looks at the machine and says what stands in the way of a job, each with what to type.

Nothing is installed, fetched or changed; folders that would be made are only tried.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poundlock.cli.options import Call, with_shared_options
from poundlock.errors import PoundlockError
from poundlock.values import format_bytes, size

if TYPE_CHECKING:
    from poundlock.config import Settings


_GB = 1 << 30
_LEAST_DISK = _GB
_PACKAGES = {"pyspark": ((4, 2), (4, 4)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,)), "numpy": ((1, 26), None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        result: what there is.
    """

    name: str
    ok: bool
    result: str
    next: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; programs read `result` as "found"."""
        return {"name": self.name, "ok": self.ok, "found": self.result, "next": self.next}


@with_shared_options
def command(*, call: Call) -> int:
    """Check the machine and say what to type.

    Looks at Java, Python, packages, jars, memory, disk, ports and folders. The exit code is 1 if there is a problem.
    """
    checks = list(_examine(call.settings()))
    ok = all(check.ok for check in checks)
    call.output.show(_lines(checks), {"ok": ok, "checks": [check.to_json() for check in checks]})
    return 0 if ok else 1


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{'ok' if check.ok else 'problem':8}{check.name:{width}}  {check.result}"
        if not check.ok:
            yield f"{'':8}{'':{width}}  Next: {check.next}"


def _examine(settings: Settings) -> Iterator[Check]:
    yield _python()
    yield from _packages()
    yield _java(settings)
    yield _memory(settings)
    yield from _folders(settings)
    yield _loopback()
    yield from _connectors()


def _python() -> Check:
    result = f"{platform.python_version()} ({sys.executable})"
    return Check(name="python", ok=sys.version_info >= (3, 11), result=result, next="install Python 3.11 or later")


def _packages() -> Iterator[Check]:
    for package, (least, below) in _PACKAGES.items():
        wanted = f"{package}>={_dotted(least)}" + (f",<{_dotted(below)}" if below else "")
        next = f"{sys.executable} -m pip install '{wanted}'"
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

    return _tried("java", look)


def _memory(settings: Settings) -> Check:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return Check(name="memory", ok=True, result="not known")
    free = _available() or total
    needed = size(settings.driver_memory) + _GB  # the JVM's heap, and as much again for itself and the workers
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
        yield Check(name=name, ok=free >= _LEAST_DISK, result=result, next=f"free some space, or {option} with room")


def _loopback() -> Check:
    from poundlock.testing.servers import is_free

    def look() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return f"127.0.0.1 works; port 9092 is {'free' if is_free(9092) else 'taken (kafka up needs --port)'}"

    return _tried("ports", look, next="let programs of this machine talk to each other on 127.0.0.1")


def _connectors() -> Iterator[Check]:
    from poundlock.cli.setup.installed import installed_connectors

    for one in installed_connectors():
        result = one.problem or f"{', '.join(one.roles)} of {one.package} {one.version}"
        yield Check(name=f"connector {one.name}", ok=not one.problem, result=result, next=one.next)


def _tried(name: str, look: Callable[[], str], *, next: str = "") -> Check:
    try:
        return Check(name=name, ok=True, result=look())
    except PoundlockError as error:
        return Check(name=name, ok=False, result=error.what, next=error.next)
    except OSError as error:
        return Check(name=name, ok=False, result=str(error), next=next)
