"""What a checkpoint folder has from before, as a start finds it: all of it is asked for at once.

Of a store each question takes 20 to 50 ms, and a start that asks one after the other stands still for a second.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import Life, newest_life
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.savepoints.checkpoint_deletion import is_being_deleted
from poundlock.driver.savepoints.handover import refuse_left
from poundlock.savepoint.metadata import refuse_first_edition
from poundlock.storage import Storage
from poundlock.threads import in_thread

_NAME = "poundlock-look"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is there; None where there is none.

    Args:
        life: the newest driver's.
        newest: the newest decision.
    """

    identity: Identity | None
    life: Life | None
    newest: Decision | None


def look(storage: Storage, script: str, command: str = "run") -> Standing | None:
    """Return how a checkpoint stands; None where it is being deleted, so that nothing else of it counts. Nothing is changed.

    Raises:
        DefinitionError: its job ended with a savepoint, is half restored, or is one of the first edition.
        TerminalError: what is there is damaged.
    """
    deleting = in_thread(lambda: is_being_deleted(storage), _NAME)
    left = in_thread(lambda: refuse_left(storage, script, command), _NAME)
    first_edition = in_thread(lambda: refuse_first_edition(storage), _NAME)
    identity = in_thread(lambda: read_identity(storage), _NAME)
    life = in_thread(lambda: newest_life(storage), _NAME)
    newest = in_thread(lambda: Ledger(storage).newest(), _NAME)
    if deleting.result():
        return None
    left.result()
    first_edition.result()
    return Standing(identity=identity.result(), life=life.result(), newest=newest.result())


def begin_look(storage: Storage, script: str, command: str = "run") -> Future[Standing | None]:
    """Begin to look, beside whatever else a start does first; the future has what `look` returns or raises."""
    return in_thread(lambda: look(storage, script, command), _NAME)
