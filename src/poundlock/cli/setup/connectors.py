"""`poundlock connectors`: the sources and sinks that installed packages bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One connector.

    Args:
        name: how it is asked for.
        roles: "source", "sink" or both; empty where it cannot be loaded.
        target: "module:Class".
        package, version: who brings it.
        problem: why it cannot be used; "" if it can.
        next: what to type then.
    """

    name: str
    roles: Sequence[str]
    target: str
    package: str
    version: str
    problem: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All connectors of other packages."""

    connectors: Sequence[Found]

    @property
    def ok(self) -> bool:
        """Whether all can be loaded."""
        return not any(found.problem for found in self.connectors)

    def to_json(self) -> Any:
        return {"ok": self.ok, "connectors": [asdict(found) for found in self.connectors]}

    def lines(self) -> Iterable[str]:
        if not self.connectors:
            yield "no installed package brings connectors"
        width = max((len(found.name) for found in self.connectors), default=0)
        for found in self.connectors:
            what = "problem" if found.problem else ", ".join(found.roles)
            yield f"{found.name:{width}}  {what:12}  {found.target}  ({found.package} {found.version})"
            if found.problem:
                yield f"{'':{width}}  {found.problem}"
                yield f"{'':{width}}  Next: {found.next}"


def command(json: JsonOption = False) -> int:
    """List the connectors that installed packages bring.

    Each is loaded to see whether it can be. The exit code is 1 if one cannot.
    """
    found = listed()
    Output(json).show(found)
    return 0 if found.ok else 1


def listed() -> Listing:
    """Look at all of them."""
    from poundlock.connectors.registry import connectors

    found = []
    for one in connectors():
        said = {"name": one.name, "target": one.target, "package": one.package, "version": one.version}
        try:
            found.append(Found(roles=list(one.roles()), **said))
        except PoundlockError as error:
            found.append(Found(roles=[], problem=error.what, next=error.next, **said))
    return Listing(connectors=found)
