"""Tokens of an OpenID Connect provider for a client that has a secret (the client credentials grant of RFC 6749, 4.4), of brokers and of registries."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

_USED = 0.8  # of a token's time; then the next one is fetched, before the first expires
_LIFETIME_S = 60.0  # of a token whose provider does not say
_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Who asks for tokens, and where.

    Args:
        timeout_s: how long the provider has for an answer.
        context: which certificates are trusted; None: those of the system.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    timeout_s: float = 10.0
    context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def fetch(self) -> tuple[str, float]:
        """Return a new token and how long it is good, s.

        Raises:
            OSError: the provider does not answer, or refuses (`urllib.error.HTTPError`).
            ValueError: what it answers is no token.
        """
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        client = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode(form).encode(),
            headers={"Authorization": f"Basic {client}", "Content-Type": "application/x-www-form-urlencoded"},
        )
        with urllib.request.urlopen(request, timeout=self.timeout_s, context=self.context) as answer:
            given = json.loads(answer.read(_ANSWER_BYTES))
        if not isinstance(given, dict) or not isinstance(given.get("access_token"), str):
            raise ValueError("the answer has no access_token")
        return given["access_token"], float(given.get("expires_in") or _LIFETIME_S)


class HeldToken:
    """A token that is fetched when one is needed, and again before it expires. Any thread may ask.

    Args:
        fetch: returns a new token and how long it is good, s.
        clock: seconds that only go on.
    """

    def __init__(self, fetch: Callable[[], tuple[str, float]], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._held: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return a token that is good for a while. Raises what fetching raises."""
        with self._lock:
            asked = self._clock()
            if self._held is None or asked > self._held[0]:
                token, lifetime_s = self._fetch()
                self._held = (asked + _USED * lifetime_s, token)
            return self._held[1]

    def drop(self, token: str) -> None:
        """Have the next question fetch a new token, where this one is the one that is held."""
        with self._lock:
            if self._held is not None and self._held[1] == token:
                self._held = None
