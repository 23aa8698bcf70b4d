"""`poundlock version`, `connectors` and `warm`: what is installed, what it brings, and Spark's classes made ready for jobs to start sooner."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from typer import Option

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError
from poundlock.versions import version_of


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
    Output(json).show(_lines(listed), {"ok": ok, "connectors": [asdict(connector) for connector in listed]})
    return 0 if ok else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledConnector:
    """One connector.

    Args:
        roles: "source", "sink" or both; empty where it cannot be loaded.
        problem: why it cannot be used; "" if it can.
    """

    name: str
    roles: Sequence[str]
    target: str
    package: str
    version: str
    problem: str = ""
    next: str = ""


def installed_connectors() -> Sequence[InstalledConnector]:
    """Load all of them."""
    from poundlock.connectors import registry

    result = []
    for one in registry.connectors():
        about = {"name": one.name, "target": one.target, "package": one.package, "version": one.version}
        try:
            result.append(InstalledConnector(roles=list(one.roles()), **about))
        except PoundlockError as error:
            result.append(InstalledConnector(roles=[], problem=error.what, next=error.next, **about))
    return result


def _lines(listed: Sequence[InstalledConnector]) -> Iterable[str]:
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
