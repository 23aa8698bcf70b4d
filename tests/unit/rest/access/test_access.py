"""What the settings allow: nothing beyond the loopback by an oversight, and no setting without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.config import load_settings
from poundlock.errors import DefinitionError
from poundlock.rest.access.access import Access, is_loopback
from support.certificates import Pair, self_signed


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return self_signed(tmp_path_factory.mktemp("tls"))


def tls(pair: Pair) -> list[str]:
    return [
        "security.ssl.rest.enabled=true",
        f"security.ssl.rest.certificate-file={pair.certificate}",
        f"security.ssl.rest.key-file={pair.key}",
    ]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_on_the_loopback_nothing_has_to_be_set(address: str) -> None:
    assert is_loopback(address)
    assert Access.of(load_settings(), address) == Access()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "fe80::1%eth0", "10.0.0.1"])
def test_beyond_it_there_is_tls_or_a_switch_that_says_there_is_none(address: str, pair: Pair) -> None:
    assert not is_loopback(address)
    beyond = [f"rest.bind-address={address}"]
    with pytest.raises(DefinitionError, match="is beyond the loopback, and without TLS") as refused:
        Access.of(load_settings(beyond), address)
    assert "security.ssl.rest.enabled=true" in refused.value.next
    assert "rest.insecure=true" in refused.value.next
    assert Access.of(load_settings([*beyond, "rest.insecure=true"]), address).certificate is None
    made = Access.of(load_settings([*beyond, *tls(pair)]), address)
    assert made.certificate is not None
    assert made.certificate.key == pair.key


def test_what_has_no_effect_is_refused(pair: Pair, tmp_path: Path) -> None:
    for options, address, what in (
        (["rest.insecure=true"], "127.0.0.1", "rest.insecure=true has no effect: REST listens on 127.0.0.1 only"),
        (["rest.insecure=true", *tls(pair)], "0.0.0.0", "rest.insecure=true has no effect: security.ssl.rest.enabled"),
        (["rest.allowed-hosts=a.example", *tls(pair)], "0.0.0.0", "rest.allowed-hosts has no effect"),
        (tls(pair)[1:], "127.0.0.1", "security.ssl.rest.certificate-file has no effect without TLS"),
        (tls(pair)[2:], "127.0.0.1", "security.ssl.rest.key-file has no effect without TLS"),
        (["security.ssl.rest.key-password=hush"], "127.0.0.1", "security.ssl.rest.key-password has no effect"),
        (tls(pair)[:1], "127.0.0.1", "needs security.ssl.rest.certificate-file, security.ssl.rest.key-file"),
        (tls(pair)[:2], "127.0.0.1", "enabled=true needs security.ssl.rest.key-file"),
        ([f"rest.token-file={tmp_path / 'none'}"], "127.0.0.1", "the REST token of rest.token-file cannot be read"),
    ):
        with pytest.raises(DefinitionError, match=what):
            Access.of(load_settings(options), address)


def test_names_of_hosts_are_taken_as_they_are_asked() -> None:
    settings = load_settings(["rest.allowed-hosts=Jobs.example, b.example"])
    assert Access.of(settings, "127.0.0.1").hosts == {"jobs.example", "b.example"}


@pytest.mark.parametrize("key", ["security.ssl.rest.keystore", "security.ssl.rest.truststore-password"])
def test_stores_of_javas_are_refused_with_what_to_do(key: str) -> None:
    with pytest.raises(DefinitionError, match="there is no setting") as refused:
        load_settings([f"{key}=x"])
    assert "openssl pkcs12" in refused.value.next


def test_the_password_of_a_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POUNDLOCK_SECURITY_SSL_REST_KEY_PASSWORD", "hush-hush")
    settings = load_settings()
    assert settings.security_ssl_rest_key_password == "hush-hush"
    assert "hush-hush" in settings.secrets()
    assert "hush-hush" not in f"{settings!r} {settings.shown()}"
