"""The state files of a job as a worker process opens them: kept open from task to task, and copied where the folder is not local.

All of it is a cache, known by the names and digests that the manifest has: losing it costs time only.
"""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache

from poundlock.state.runs.files import LocalCopies, RunFiles
from poundlock.storage import LocalStorage, open_storage


@lru_cache(maxsize=8)
def run_files(checkpoint_dir: str) -> RunFiles:
    """Return the state files below a job's checkpoint folder; the same object at each call of a process.

    Args:
        checkpoint_dir: path or URL of the folder.
    """
    storage = open_storage(checkpoint_dir)
    copies = None
    if not isinstance(storage, LocalStorage):
        copies = LocalCopies(os.path.join(tempfile.gettempdir(), f"poundlock-{os.getuid()}", "state"))
    return RunFiles(storage, copies)
