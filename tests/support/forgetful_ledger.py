"""A ledger broken on purpose, for controls that have to fail: a driver believes no decision of the lives before it."""

from __future__ import annotations

from dataclasses import replace

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger


class ForgetfulLedger(Ledger):
    """Says of what was decided before that nothing was read, and that all of it is visible."""

    def newest(self) -> Decision | None:
        newest = super().newest()
        return None if newest is None else replace(newest, checkpoint=-1, sources={}, redo={})

    def is_committed(self, number: int) -> bool:
        return True
