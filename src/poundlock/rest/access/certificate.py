"""TLS of the REST server: its certificate and key, taken again when the files have changed, and what clients verify by.

Connections that are open keep what they began with; the next one gets the newer certificate.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.rest.access.tokens import check_private

_log = logging.getLogger("poundlock.rest")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A server's certificate, with its chain, and its private key, as PEM files.

    Args:
        password: of the key; None = the key is not encrypted.
    """

    certificate: Path
    key: Path
    password: str | None = field(default=None, repr=False)

    def context(self) -> ssl.SSLContext:
        """Return a context for a server that has what is in the files now. Raises DefinitionError if that does not make one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # as Flink's security.ssl.protocol
        try:
            check_private(self.key, "security.ssl.rest.key-file")
            self.certificate.stat()
            # Without a password OpenSSL would ask on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=self.password or "")
        except ssl.SSLError as error:
            why = "they do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else _reason(error)
            raise DefinitionError(
                f"{self.certificate} and {self.key} are no certificate and key of a server: {why}",
                next="give PEM files in security.ssl.rest.certificate-file and security.ssl.rest.key-file, and the key's "
                "password, if it has one, in security.ssl.rest.key-password",
            ) from error
        except OSError as error:
            raise DefinitionError(
                f"the certificate or key of REST cannot be read: {error.filename or self.key}: {error.strerror or error}",
                next="give PEM files that you can read in security.ssl.rest.certificate-file and security.ssl.rest.key-file",
            ) from error
        return context

    def version(self) -> tuple[int, ...]:
        """Return what is different once one of the files was changed, or another took its place."""
        versions: list[int] = []
        for path in (self.certificate, self.key):
            try:
                status = path.stat()
            except OSError:
                continue
            versions += [status.st_mtime_ns, status.st_size, status.st_ino]
        return tuple(versions)


class ServedCertificate:
    """What a server gives its connections: `context` is for the server, and each handshake takes the newest certificate."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._seen = certificate.version()
        self._newest = certificate.context()
        self.context = certificate.context()
        self.context.sni_callback = self._choose

    def look(self) -> None:
        """Take the certificate again if its files have changed; one that cannot be used leaves the one before in use."""
        now = self._certificate.version()
        if now == self._seen:
            return
        self._seen = now
        try:
            self._newest = self._certificate.context()
        except DefinitionError as error:
            _log.warning("REST keeps its certificate: %s. Next: %s", error.what, error.next)
        else:
            _log.info("REST has taken the certificate in %s", self._certificate.certificate)

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest


def trusting(authorities: Path) -> ssl.SSLContext:
    """Return a context for a client that trusts the authorities of a PEM file, and asks that names fit.

    Raises:
        DefinitionError: the file cannot be read, or has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=str(authorities))
    except OSError as error:
        why = _reason(error) if isinstance(error, ssl.SSLError) else error.strerror or error
        raise DefinitionError(
            f"the authorities of security.ssl.rest.ca-file cannot be read: {authorities}: {why}",
            next="name a PEM file with the certificates of those who signed the servers'",
        ) from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
