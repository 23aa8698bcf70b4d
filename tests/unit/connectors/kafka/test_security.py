"""KafkaSecurity says the same to both clients, checks what belongs together, and shows no secret."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kafka.security import KafkaSecurity, secret
from poundlock.errors import DefinitionError


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
    spark, confluent = s.spark(), s.confluent()
    assert spark["kafka.security.protocol"] == confluent["security.protocol"] == "SASL_SSL"
    assert spark["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password="p\\\\q\\"r";'
    )
    assert (confluent["sasl.username"], confluent["sasl.password"]) == ('a"b', 'p\\q"r')
    assert spark["kafka.ssl.truststore.certificates"] == confluent["ssl.ca.pem"] == "-----BEGIN ca-----\n"
    assert spark["kafka.ssl.keystore.key"] == confluent["ssl.key.pem"] == "-----BEGIN key-----\n"
    assert spark["kafka.ssl.endpoint.identification.algorithm"] == ""
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
    assert s.spark()["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://id.example/token"
    assert 'clientId="job" clientSecret="hush" scope="kafka"' in s.spark()["kafka.sasl.jaas.config"]
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
    for shown in (repr(s), repr(s.spark()), str(s.confluent()), f"{s.spark()}"):
        assert "hush" not in shown
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
        KafkaSecurity(protocol="SSL", ca="/none").spark()
