"""Bearer tokens of a provider: fetched when one is needed, again before they expire, and again where the registry takes one no more."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from poundlock import SchemaRegistry
from poundlock.connectors.kafka.client_credentials import HeldToken
from poundlock.connectors.kafka.schemas.client import RegistryClient
from poundlock.errors import DefinitionError, TerminalError, TransientError
from support.scripted_http import Asked, ScriptedHttp


class Provider:
    """Gives tokens t1, t2 and so on, and is the registry that takes them, but for those that are revoked."""

    def __init__(self) -> None:
        self.given, self.lifetime_s = 0, 300.0
        self.revoked: set[str] = set()
        self.refusal: tuple[int, bytes] | None = None
        self.shown: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.logins: list[str] = []
        self.headers: list[dict[str, str]] = []

    def answer(self, asked: Asked) -> tuple[int, bytes]:
        if asked.path == "/token":
            self.forms.append(parse_qs(asked.body.decode()))
            self.logins.append(base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode())
            if self.refusal is not None:
                return self.refusal
            self.given += 1
            return 200, json.dumps({"access_token": f"t{self.given}", "expires_in": self.lifetime_s}).encode()
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        self.shown.append(token)
        self.headers.append(asked.headers)
        if token in self.revoked:
            return 401, b'{"error_code": 401, "message": "who are you"}'
        return 200, b'{"schema": "\\"string\\""}'


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def server(provider: Provider) -> Iterator[ScriptedHttp]:
    with ScriptedHttp(provider.answer) as server:
        yield server


def registry(server: ScriptedHttp, **more: str) -> SchemaRegistry:
    given = {"token_url": f"{server.url}/token", "client_id": "etl", "client_secret": "open sesame", **more}
    return SchemaRegistry(server.url, **given)  # type: ignore[arg-type]


def test_a_token_is_fetched_once_and_shown(server: ScriptedHttp, provider: Provider) -> None:
    where = registry(server, scope="schemas", logical_cluster="lsrc-1", identity_pool="pool-1")
    client = RegistryClient(where)
    assert [client.schema(number).text for number in (1, 2)] == ['"string"', '"string"']
    assert provider.shown == ["t1", "t1"]
    assert provider.forms == [{"grant_type": ["client_credentials"], "scope": ["schemas"]}]
    assert provider.logins == ["etl:open sesame"]
    assert provider.headers[0]["target-sr-cluster"] == "lsrc-1"
    assert provider.headers[0]["confluent-identity-pool-id"] == "pool-1"
    assert "sesame" not in repr(where)


def test_the_next_token_is_fetched_before_the_last_one_expires() -> None:
    now, given = [100.0], iter([("a", 10.0), ("b", 10.0)])
    held = HeldToken(lambda: next(given), lambda: now[0])
    tokens = []
    for now[0] in (100.0, 107.9, 108.1, 109.0):
        tokens.append(held.token())
    assert tokens == ["a", "a", "b", "b"]


def test_an_expired_token_is_not_shown(server: ScriptedHttp, provider: Provider) -> None:
    provider.lifetime_s = 1e-9
    client = RegistryClient(registry(server))
    client.schema(1)
    client.schema(2)
    assert provider.shown == ["t1", "t2"]


def test_a_token_that_was_taken_and_is_not_any_more_is_given_up_once(server: ScriptedHttp, provider: Provider) -> None:
    client = RegistryClient(registry(server))
    client.schema(1)
    provider.revoked |= {"t1"}
    with pytest.raises(TransientError, match="took before"):
        client.schema(2)
    assert client.schema(2).text == '"string"'
    provider.revoked |= {"t2", "t3"}
    with pytest.raises(TransientError, match="took before"):
        client.schema(3)
    with pytest.raises(TerminalError, match="refuses this user"):
        client.schema(3)
    assert provider.shown == ["t1", "t1", "t2", "t2", "t3"]


def test_a_given_token_that_is_refused_is_a_wrong_login(server: ScriptedHttp, provider: Provider) -> None:
    client = RegistryClient(SchemaRegistry(server.url, token="mine"))
    client.schema(1)
    provider.revoked |= {"mine"}
    with pytest.raises(TerminalError, match="refuses this user"):
        client.schema(2)


def test_what_the_provider_answers_is_an_error_of_its_kind(server: ScriptedHttp, provider: Provider) -> None:
    client = RegistryClient(registry(server))
    provider.refusal = (401, b'{"error": "invalid_client", "error_description": "no such client"}')
    with pytest.raises(TerminalError, match="refuses this client: 401 invalid_client: no such client"):
        client.schema(1)
    provider.refusal = (503, b"later")
    with pytest.raises(TransientError, match="answers 503"):
        client.schema(1)
    provider.refusal = (200, b'{"token": "?"}')
    with pytest.raises(TerminalError, match="no access_token"):
        client.schema(1)
    provider.refusal = (0, b"")
    with pytest.raises(TransientError, match="does not answer"):
        client.schema(1)
    provider.refusal = None
    assert client.schema(1).text == '"string"'


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"client_id": "a"}, "client_id means nothing without token_url"),
        ({"token_url": "http://t", "client_id": "a"}, "token_url needs client_secret"),
        ({"token_url": "t", "client_id": "a", "client_secret": "b"}, "no address that gives tokens"),
        ({"token_url": "http://t", "client_id": "a", "client_secret": "b", "token": "c"}, "are two logins"),
        ({"logical_cluster": "a"}, "logical_cluster means nothing without a token"),
        ({"token_url": "http://t", "client_id": "a", "client_secret": "b", "ca": "c"}, "without TLS"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, str], what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        SchemaRegistry("http://localhost:8081", **given)  # type: ignore[arg-type]
