"""How the job's own user makes sure of it over TLS: the server's certificate has to be the one in the file that the job names.

Its names do not count then, so that a certificate for a name of the network works on the loopback as well. Nothing but the standard
library is imported.
"""

from __future__ import annotations

import ssl
from pathlib import Path

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts the holder of the first certificate of a PEM file, and nobody else.

    Raises:
        OSError: the file cannot be read, or has no certificate.
    """
    text = certificate.read_text(encoding="ascii", errors="replace")
    _, begin, rest = text.partition(_BEGIN)
    inner, end, _ = rest.partition(_END)
    if not (begin and end):
        raise OSError(f"{certificate} has no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=f"{begin}{inner}{end}\n")
    return context
