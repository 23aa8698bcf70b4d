"""`python -m poundlock.rest.probe`: whether the job of this machine answers, for a probe that is run every few seconds.

It imports next to nothing but the standard library, so that asking costs the job as little; exit code 0 = it answers.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from poundlock.rest.access.pinned import pinned_context

_TIMEOUT_S = 8.0
_TLS = "POUNDLOCK_SECURITY_SSL_REST_"


def answers(environment: Mapping[str, str]) -> str | None:
    """Ask GET /overview on the loopback, by POUNDLOCK_REST_PORT and POUNDLOCK_REST_TOKEN_FILE, over TLS where
    POUNDLOCK_SECURITY_SSL_REST_ENABLED is true; return what is wrong, None if nothing is."""
    try:
        port = int(environment["POUNDLOCK_REST_PORT"])
        token = _token(Path(environment["POUNDLOCK_REST_TOKEN_FILE"]).read_text(encoding="utf-8"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        if environment.get(f"{_TLS}ENABLED", "").lower() == "true":
            context = pinned_context(Path(environment[f"{_TLS}CERTIFICATE_FILE"]))
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=context)
    except (KeyError, ValueError, OSError) as error:
        return f"POUNDLOCK_REST_PORT and POUNDLOCK_REST_TOKEN_FILE have to say where to ask: {error}"
    try:
        connection.request("GET", "/overview", headers={"Authorization": f"Bearer {token}"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"the job does not answer on port {port}: {error or type(error).__name__}"
    finally:
        connection.close()
    return None if status == http.HTTPStatus.OK else f"the job answers with HTTP status {status}"


def _token(text: str) -> str:
    """Return the token of a file that has one, or the first of several that may be sent as it stands there."""
    lines = [parts for line in text.splitlines() if (parts := line.split()) and not line.startswith("#")]
    return next((parts[-1] for parts in lines if not parts[-1].startswith("sha256:")), "")


def main() -> int:
    """Ask, say what is wrong, and return the exit code."""
    wrong = answers(os.environ)
    if wrong is not None:
        print(wrong, file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
