"""Sources and sinks of other packages, by the entry points of the group `poundlock.connectors`.

Finding reads metadata only. A package is imported when one of its connectors is asked for, so that a broken one is named where
it matters and stands in nobody else's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pkgutil import resolve_name
from typing import Any, Literal

from poundlock.errors import DefinitionError, did_you_mean

GROUP = "poundlock.connectors"
Role = Literal["source", "sink"]


@dataclass(frozen=True, slots=True)
class Connector:
    """What an installed package offers.

    Args:
        name: how it is asked for.
        target: "module:Class".
        package: who brings it.
        version: of the package.
    """

    name: str
    target: str
    package: str
    version: str

    def load(self) -> Any:
        """Return the class.

        Raises:
            DefinitionError: the package cannot be imported, or the class is neither a source nor a sink.
        """
        who = f"connector {self.name!r} of {self.package} {self.version}"
        try:
            target: Any = resolve_name(self.target)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise DefinitionError(
                f"{who} cannot be loaded: {self.target}: {type(error).__name__}: {error}",
                next=f"mend or remove the package: pip uninstall {self.package}",
            ) from error
        if not _roles(target):
            raise DefinitionError(
                f"{who} is neither a source nor a sink: {self.target}",
                next="a sink has open_writer or as_participant, a source enumerator and reader, or spark_read",
            )
        return target

    def roles(self) -> list[Role]:
        """Return whether it is a source, a sink or both. Raises DefinitionError as `load` does."""
        return _roles(self.load())


# A class has a role if it has all methods of one of these.
_ROLES: Mapping[Role, Sequence[Sequence[str]]] = {
    "source": [("enumerator", "reader"), ("spark_read",)],
    "sink": [("open_writer",), ("as_participant",)],
}


def _roles(target: Any) -> list[Role]:
    if not isinstance(target, type):
        return []
    return [role for role, ways in _ROLES.items() if any(all(hasattr(target, n) for n in names) for names in ways)]


def connectors() -> Sequence[Connector]:
    """Return what installed packages offer, by name. Nothing of theirs is imported."""
    points = metadata.entry_points(group=GROUP)
    packages = [(p, p.dist.name, p.dist.version) if p.dist is not None else (p, "?", "?") for p in points]
    offered = [Connector(point.name, point.value, name, version) for point, name, version in packages]
    return sorted(offered, key=lambda each: (each.name, each.package))


def find(name: str) -> Connector:
    """Return the connector of a name.

    Raises:
        DefinitionError: no package has it, or two have.
    """
    known = connectors()
    named = [connector for connector in known if connector.name == name]
    if len(named) > 1:
        raise DefinitionError(
            f"connector {name!r} is in {' and in '.join(f'{c.package} {c.version}' for c in named)}",
            next=f"remove one of the packages: pip uninstall {named[-1].package}",
        )
    if not named:
        every = "install its package; see what there is: poundlock connectors"
        next = did_you_mean(name, [connector.name for connector in known], every, show=repr)
        raise DefinitionError(f"no installed package has a connector {name!r}", next=next)
    return named[0]
