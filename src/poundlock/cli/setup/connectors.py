"""`poundlock connectors`: the sources and sinks that installed packages bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledConnector:
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

    connectors: Sequence[InstalledConnector]

    @property
    def ok(self) -> bool:
        """Whether all can be loaded."""
        return not any(connector.problem for connector in self.connectors)

    def to_json(self) -> Any:
        return {"ok": self.ok, "connectors": [asdict(connector) for connector in self.connectors]}

    def lines(self) -> Iterable[str]:
        if not self.connectors:
            yield "no installed package brings connectors"
        width = max((len(connector.name) for connector in self.connectors), default=0)
        for connector in self.connectors:
            what = "problem" if connector.problem else ", ".join(connector.roles)
            yield f"{connector.name:{width}}  {what:12}  {connector.target}  ({connector.package} {connector.version})"
            if connector.problem:
                yield f"{'':{width}}  {connector.problem}"
                yield f"{'':{width}}  Next: {connector.next}"


def command(json: JsonOption = False) -> int:
    """List the connectors that installed packages bring.

    Each is loaded to see whether it can be. The exit code is 1 if one cannot.
    """
    listing = listed()
    Output(json).show(listing)
    return 0 if listing.ok else 1


def listed() -> Listing:
    """Look at all of them."""
    from poundlock.connectors.registry import connectors

    result = []
    for one in connectors():
        about = {"name": one.name, "target": one.target, "package": one.package, "version": one.version}
        try:
            result.append(InstalledConnector(roles=list(one.roles()), **about))
        except PoundlockError as error:
            result.append(InstalledConnector(roles=[], problem=error.what, next=error.next, **about))
    return Listing(connectors=result)
