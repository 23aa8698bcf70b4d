"""What the first edition left: its jobs were streaming queries of Spark's, with Spark's log and state beside the ledger.

None of that can be read here, so such a checkpoint is refused before anything is touched.
"""

from __future__ import annotations

from poundlock.errors import DefinitionError
from poundlock.storage import Storage

OF_FIRST_EDITION = "poundlock 0.1, whose state and positions are Spark's and cannot be read by this version"


def refuse_first_edition(checkpoint: Storage) -> None:
    """Raise DefinitionError if a job of the first edition left a checkpoint folder."""
    if next(iter(checkpoint.list("spark/offsets")), None) is not None:
        raise DefinitionError(
            f"the checkpoint {checkpoint.root} was taken by {OF_FIRST_EDITION}",
            next="let that version finish the job's input (poundlock stop --drain), then begin in another checkpoint_dir",
        )
