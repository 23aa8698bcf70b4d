"""How OpenSearch is reached: its hosts, as whom, and requests that try the next host where one does not answer.

A password is read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, TransientError, required

JSON_LINES, JSON_TEXT = "application/x-ndjson", "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    data: bytes

    @property
    def reason(self) -> str:
        """Why it refused, in its own words; the beginning of the text where it is of something else, such as a proxy."""
        try:
            return error_text(msgspec.json.decode(self.data)["error"])
        except (msgspec.MsgspecError, TypeError, KeyError):
            return " ".join(self.data[:200].decode("utf-8", "replace").split()) or f"status {self.status}"


def error_text(error: Any) -> str:
    """Return an error of the server's, with what caused it, on one line."""
    if not isinstance(error, Mapping):
        return " ".join(str(error).split())
    text = f"{error.get('type', 'error')}: {error.get('reason', '')}"
    cause = error.get("caused_by")
    while isinstance(cause, Mapping):
        text += f" ({cause.get('reason') or cause.get('type')})"
        cause = cause.get("caused_by")
    return " ".join(text.split())


@dataclass(frozen=True)
class OpenSearchLogin:
    """Which cluster, as whom.

    Args:
        hosts: URLs of nodes, or of what stands before them.
        user, password: for basic authentication; the password itself, "env:NAME" or "file:PATH".
        headers: further headers, such as {"Authorization": "env:API_KEY"}.
        ca: path of the certificates that TLS trusts; None = those of the machine.
        allow_insecure: whether certificates are not looked at.
        timeout_s: how long an answer may take, seconds.
    """

    hosts: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    ca: str | None = None
    allow_insecure: bool = False
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        """The hosts, for people."""
        return ", ".join(self.hosts)

    def open(self, *, connections: int = 1, first: int = 0) -> OpenSearchServer:
        """Return a way to ask the cluster; nothing is asked yet.

        Args:
            connections: how many threads may ask at once.
            first: number of the host to begin with.

        Raises:
            DefinitionError: urllib3 is not installed, or a secret or certificate cannot be read.
        """
        return OpenSearchServer(self, connections, first)

    def all_headers(self) -> dict[str, str]:
        """Return the headers of every request. Raises DefinitionError where a secret cannot be read."""
        made = {name: secret(value, f"header {name}") for name, value in self.headers.items()}
        if self.user is not None:
            login = f"{self.user}:{secret(self.password or '', 'password')}"
            made["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        return made


class OpenSearchServer:
    """Asks the nodes of one cluster; a node that does not answer is left for the next one. May be used by several threads."""

    def __init__(self, login: OpenSearchLogin, connections: int, first: int) -> None:
        self._urllib3 = required("urllib3", "a sink of OpenSearch", "opensearch")
        self.login = login
        tls: dict[str, Any] = {"ca_certs": login.ca} if login.ca else {}
        if login.allow_insecure:
            tls = {"cert_reqs": "CERT_NONE"}
            self._urllib3.disable_warnings(self._urllib3.exceptions.InsecureRequestWarning)
        timeout = self._urllib3.Timeout(connect=min(5.0, login.timeout_s), read=login.timeout_s)
        self._headers = login.all_headers()
        self._pool = self._urllib3.PoolManager(maxsize=connections, timeout=timeout, retries=False, **tls)
        self._first = first % len(login.hosts)

    def ask(self, method: str, path: str, body: bytes | memoryview | None = None, kind: str = JSON_TEXT) -> Answer:
        """Send a request and return the answer, whatever its status.

        Raises:
            TransientError: no host answers.
            DefinitionError: the certificates do not fit.
        """
        headers = self._headers if body is None else {**self._headers, "Content-Type": kind}
        failures = []
        hosts = self.login.hosts
        for number in range(len(hosts)):
            place = (self._first + number) % len(hosts)
            try:
                answer = self._pool.request(method, hosts[place].rstrip("/") + path, body=body, headers=headers)
            except self._urllib3.exceptions.SSLError as error:
                raise DefinitionError(
                    f"the certificate of {hosts[place]} is not trusted: {error}",
                    next='write ca="/path/of/ca.pem", or an address that the certificate names',
                ) from error
            except self._urllib3.exceptions.HTTPError as error:
                failures.append(f"{hosts[place]}: {type(error).__name__}")
                continue
            self._first = place
            return Answer(answer.status, answer.data)
        raise TransientError(
            f"no OpenSearch answers: {'; '.join(failures)}",
            next="check the hosts, and that a node runs; a restart goes on",
        )

    def json(self, method: str, path: str) -> Any:
        """Return the JSON of an answer; None where the path is not there.

        Raises:
            TransientError: no host answers, or it is busy.
            DefinitionError: it refuses.
        """
        answer = self.ask(method, path)
        if answer.status == 404:
            return None
        self.refuse(answer, f"{method} {path}")
        try:
            return msgspec.json.decode(answer.data)
        except msgspec.MsgspecError:
            raise DefinitionError(
                f"what answers at {self.login.name} is no OpenSearch: {answer.reason}",
                next="check hosts=, and what stands before the cluster",
            ) from None

    def refuse(self, answer: Answer, doing: str) -> None:
        """Raise for an answer that says no.

        Raises:
            DefinitionError: of credentials or rights, or the request cannot be.
            TransientError: it is busy.
        """
        if answer.status < 300:
            return
        what = f"OpenSearch at {self.login.name}, {doing}: {answer.reason}"
        if answer.status in (401, 403):
            raise DefinitionError(what, next="check user, password and the rights of that user on the index")
        if answer.status == 429 or answer.status >= 500:
            raise TransientError(what, next="see that the cluster is healthy: GET /_cluster/health; it is repeated")
        raise DefinitionError(what, next="see what the server says, and compare the sink's arguments with it")

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()
