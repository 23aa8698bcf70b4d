"""KafkaSecurity says the same to both clients, checks what belongs together, and shows no secret."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kafka.login import login, tls_context
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError
from support.scripted_http import Asked, ScriptedHttp


def test_scram_over_tls(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----\n")
    s = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username='a"b',
        password='p\\q"r',
        ca=str(tmp_path / "ca"),
        certificate=str(tmp_path / "cert"),
        key=str(tmp_path / "key"),
        check_hostname=False,
    )
    confluent = s.confluent()
    assert confluent["security.protocol"] == "SASL_SSL"
    assert (confluent["sasl.username"], confluent["sasl.password"]) == ('a"b', 'p\\q"r')
    assert confluent["ssl.ca.pem"] == "-----BEGIN ca-----\n"
    assert confluent["ssl.key.pem"] == "-----BEGIN key-----\n"
    assert confluent["ssl.endpoint.identification.algorithm"] == "none"


def test_oauth() -> None:
    s = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        token_url="https://id.example/token",
        client_id="job",
        client_secret="hush",
        scope="kafka",
    )
    assert s.confluent()["sasl.oauthbearer.token.endpoint.url"] == "https://id.example/token"
    assert s.confluent()["sasl.oauthbearer.client.secret"] == "hush"


def test_secrets_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PW", "from env")
    (tmp_path / "pw").write_text("from file\n")
    assert secret("env:KAFKA_PW", "x") == "from env"
    assert secret(f"file:{tmp_path}/pw", "x") == "from file"
    assert secret("a:b", "x") == "a:b"
    with pytest.raises(DefinitionError, match="variable NOT_SET is not set"):
        secret("env:NOT_SET", "password")
    with pytest.raises(DefinitionError, match="cannot read /none"):
        secret("file:/none", "password")


def test_no_secret_is_shown() -> None:
    s = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="u", password="hush")
    who = login(s)
    assert who.password == "hush"
    for shown in (repr(s), repr(s.confluent()), str(s.confluent()), f"{s.confluent()}", repr(who)):
        assert "hush" not in shown
    assert pickle.loads(pickle.dumps(who)) == who
    assert pickle.loads(pickle.dumps(s)) == s


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"protocol": "TLS"}, "'TLS' is not known"),
        ({"protocol": "SASL_SSL", "mechanism": "SCRAM"}, "'SCRAM' is not known"),
        ({"protocol": "SASL_SSL"}, "needs a mechanism"),
        ({"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}, "needs password"),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, "needs token_url, client_id, client_secret"),
        ({"username": "u", "password": "p"}, "mean nothing with protocol PLAINTEXT"),
        ({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": "p", "ca": "x"}, "ca mean"),
        ({"protocol": "SSL", "certificate": "x"}, "both a certificate and a key"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as caught:
        KafkaSecurity(**given)
    assert caught.value.next


def test_a_missing_certificate_file_is_named() -> None:
    with pytest.raises(DefinitionError, match="Kafka ca: cannot read /none"):
        KafkaSecurity(protocol="SSL", ca="/none").confluent()


def test_a_login_has_the_content_of_files_and_not_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors on other machines have neither the files nor the environment of the driver."""
    monkeypatch.setenv("KEY_PW", "env:literally")
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"pem of {name}")
    s = KafkaSecurity(
        protocol="SSL",
        ca=f"{tmp_path}/ca",
        certificate=f"{tmp_path}/cert",
        key=f"{tmp_path}/key",
        key_password="env:KEY_PW",
    )
    who = login(s)
    assert (who.ca, who.certificate, who.key) == ("pem of ca", "pem of cert", "pem of key")
    assert who.key_password == "env:literally"
    with pytest.raises(DefinitionError, match="certificates cannot be used"):
        tls_context(who)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_kerberos_is_refused_with_the_reason(protocol: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Kerberos \(GSSAPI\) cannot be used .* built without it") as caught:
        KafkaSecurity(protocol=protocol, mechanism="GSSAPI")  # type: ignore[arg-type]
    assert "SCRAM-SHA-512" in caught.value.next


def test_the_installed_client_is_built_without_kerberos() -> None:
    """The reason why it is refused; with a client that has it, it could be tried."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    with pytest.raises(KafkaException, match="No provider for SASL mechanism GSSAPI"):
        AdminClient({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})


def test_a_token_of_a_provider_is_fetched_once_for_many_connections() -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        return 200, b'{"access_token": "t", "expires_in": 600}'

    with ScriptedHttp(answer) as server:
        security = KafkaSecurity(
            protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token_url=f"{server.url}/token", client_id="app", client_secret="s3cret", scope="kafka"
        )  # fmt: skip
        provider = security.kafka_python()["sasl_oauth_token_provider"]
        assert [provider.token(), security.kafka_python()["sasl_oauth_token_provider"].token()] == ["t", "t"]
        (asked,) = server.asked
    assert asked.body == b"grant_type=client_credentials&scope=kafka"
    assert base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")) == b"app:s3cret"
