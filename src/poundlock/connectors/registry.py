"""Sources and sinks of other packages, found by the entry points of the group `poundlock.connectors`.

Finding reads metadata only. A package is imported when one of its connectors is asked for, so that a broken one is named where
it matters and stands in nobody else's way.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, Literal, Protocol, runtime_checkable

from poundlock.checkpoint.capabilities import MakesParticipant
from poundlock.errors import DefinitionError

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
        module, _, name = self.target.partition(":")
        try:
            target: Any = import_module(module)
            for part in name.split("."):
                target = getattr(target, part)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise DefinitionError(
                f"connector {self.name!r} of {self.package} {self.version} cannot be loaded:"
                f" {self.target}: {type(error).__name__}: {error}",
                next=f"mend or remove the package: pip uninstall {self.package}",
            ) from error
        if not _roles(target):
            raise DefinitionError(
                f"connector {self.name!r} of {self.package} {self.version} is neither a source nor a sink: {self.target}",
                next="a sink has open_writer or as_participant, a source enumerator and reader, or spark_read",
            )
        return target

    def roles(self) -> list[Role]:
        """Return whether it is a source, a sink or both. Raises DefinitionError as `load` does."""
        return _roles(self.load())


class _Planned(Protocol):
    def enumerator(self, workspace: Any) -> Any: ...
    def reader(self, context: Any) -> Any: ...


class _OfSpark(Protocol):
    def spark_read(self) -> Any: ...


class _Written(Protocol):
    def open_writer(self, context: Any) -> Any: ...


_ROLES: Mapping[Role, Sequence[Any]] = {
    "source": [runtime_checkable(_Planned), runtime_checkable(_OfSpark)],
    "sink": [runtime_checkable(_Written), MakesParticipant],
}


def _roles(target: Any) -> list[Role]:
    if not isinstance(target, type):
        return []
    return [role for role, protocols in _ROLES.items() if any(issubclass(target, each) for each in protocols)]


def connectors() -> Sequence[Connector]:
    """Return what installed packages offer, by name. Nothing of theirs is imported."""
    offered: dict[tuple[str, str], Connector] = {}
    for distribution in metadata.distributions():
        named = distribution.metadata["Name"] or "?"
        for point in distribution.entry_points:
            if point.group == GROUP:
                # The first on the path is the one that is imported, as for modules.
                offered.setdefault(
                    (point.name, named), Connector(point.name, point.value, named, distribution.version or "?")
                )
    return [offered[key] for key in sorted(offered)]


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
        near = difflib.get_close_matches(name, [connector.name for connector in known], 1)
        raise DefinitionError(
            f"no installed package has a connector {name!r}",
            next=f"did you mean {near[0]!r}?"
            if near
            else "install its package; see what there is: poundlock connectors",
        )
    return named[0]
