"""What the files of one run are called: after the job, and after the time in UTC, so that a later run's never replace them."""

from __future__ import annotations

import re
from datetime import UTC, datetime


def stamped(name: str, ending: str, now: datetime | None = None) -> str:
    """Return a file name such as `event-log-20181219T080000.123Z.log`.

    Args:
        name: what it is of; characters that some file system refuses become `_`.
        ending: the file's ending, its dot included.
        now: the time in it; default: now.
    """
    time = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{time}Z{ending}"
