"""Keyed state as a decision has it, by stage: all there is, or what the decision changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from poundlock.errors import TerminalError
from poundlock.state.manifest import FORMAT as MANIFEST_FORMAT
from poundlock.state.manifest import Manifest, ManifestChange, apply_change
from poundlock.storage.json_record import typed

FORMAT = 1
Manifests = Mapping[str, Manifest]


class DecidedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a record says of keyed state: `manifest` or `change`."""

    v: int
    manifest: Manifests | None = None
    change: Mapping[str, ManifestChange] | None = None
    # in the record of a start with something to be redone, all there was before the newest checkpoint
    before: Manifests | None = None

    @classmethod
    def whole(cls, manifests: Manifests, before: Manifests | None = None) -> DecidedState:
        """Return what a record says that says all there is."""
        return cls(v=FORMAT, manifest=manifests, before=before)

    def each(self, change: Callable[[Manifest], Manifest]) -> DecidedState:
        """Return the state with another manifest for each; those without operators are left out."""
        manifests = {name: change(manifest) for name, manifest in (self.manifest or {}).items()}
        return DecidedState.whole({name: manifest for name, manifest in manifests.items() if manifest.operators})

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return dict(msgspec.to_builtins(self, str_keys=True))

    @classmethod
    def from_json(cls, value: Any) -> DecidedState:
        """Return what a JSON object says.

        Raises:
            TerminalError: it is of a newer format.
            ValueError: it is damaged.
        """
        state = typed(value, cls)
        manifests = (*(state.manifest or {}).values(), *(state.before or {}).values())
        formats = (*(each.v for each in manifests), *(each.v for each in (state.change or {}).values()))
        newest = max([state.v - FORMAT, *(format - MANIFEST_FORMAT for format in formats)])
        if newest > 0:
            raise TerminalError(
                f"the manifest of the state has format {MANIFEST_FORMAT + newest};"
                f" this version reads up to {MANIFEST_FORMAT}",
                next="run the version of poundlock that wrote it, or a newer one",
            )
        return state


def manifests_of(state: DecidedState | None) -> Manifests:
    """Return the manifests that a record names which says all there is, by stage; none where there is no state."""
    return {} if state is None else state.manifest or {}


def followed(parts: Sequence[DecidedState]) -> tuple[Manifests | None, Manifests | None]:
    """Return all keyed state behind the newest decision, and behind the one before it; None where there is none.

    Args:
        parts: what decisions say, oldest first, beginning with one that says all there is.
    """
    known: Manifests | None = None
    before: Manifests | None = None
    for part in parts:
        if part.manifest is not None:
            known, before = part.manifest, known if part.before is None else part.before
        elif known is None:
            raise TerminalError(
                "the ledger says what changed of the state and not what it was",
                next="restore the checkpoint folder from one moment, or go on from a savepoint",
            )
        else:
            changes = part.change or {}
            before = known
            known = {n: apply_change(m, changes[n]) if n in changes else m for n, m in known.items()}
    return known, before


def state_behind(parts: Sequence[DecidedState]) -> DecidedState | None:
    """Return all keyed state behind the newest decision, as a record says it; None where there is none. `parts` as for `followed`."""
    known, _ = followed(parts)
    return None if known is None else DecidedState.whole(known)
