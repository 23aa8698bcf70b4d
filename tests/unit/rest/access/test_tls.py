"""TLS of a server, as a client sees it: the certificate that a job names, authorities, and a certificate that is replaced."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from poundlock.control.channel import NoAnswer
from poundlock.control.registry import JobEntry, registered
from poundlock.errors import DefinitionError
from poundlock.rest import server as served
from poundlock.rest.access.access import Access
from poundlock.rest.access.certificate import Certificate, trusting
from poundlock.rest.client import HttpChannel
from poundlock.rest.probe import answers
from poundlock.rest.server import RestServer, take_port
from support.certificates import Pair, self_signed
from support.rest_job import ID, observed

OWN = "the-token-of-the-process"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Pair], tuple[RestServer, JobEntry]]]:
    running: list[RestServer] = []

    def begin(pair: Pair) -> tuple[RestServer, JobEntry]:
        access = Access(certificate=Certificate(certificate=pair.certificate, key=pair.key))
        server = RestServer(take_port("127.0.0.1", 0), OWN, access)
        running.append(server)
        server.start(observed(tmp_path / "ledger")[0])
        token = tmp_path / "own.token"
        token.write_text(OWN)
        entry = registered(
            job_id=ID, name="orders", checkpoint_dir="c", log=tmp_path / "log", job_file="job.py", arguments=()
        )
        return server, replace(
            entry, rest=server.address, token_file=str(token), rest_certificate=str(pair.certificate)
        )

    yield begin
    for server in running:
        server.close()


def status(entry: JobEntry, authorities: Path | None = None) -> object:
    channel = HttpChannel.of(entry, authorities=authorities)
    assert channel is not None
    return channel.status()["state"]


def test_the_own_user_needs_no_authority_and_others_give_one(
    start: Callable[[Pair], tuple[RestServer, JobEntry]], tmp_path: Path, pair: Pair
) -> None:
    server, entry = start(pair)
    assert server.url.startswith("https://127.0.0.1:")
    assert status(entry) == "RUNNING"
    assert status(entry, authorities=pair.certificate) == "RUNNING"
    other = self_signed(tmp_path, "localhost")
    for seen, authorities in (
        (replace(entry, rest_certificate=str(other.certificate)), None),
        (entry, other.certificate),
    ):
        with pytest.raises(DefinitionError, match="has a wrong certificate"):
            status(seen, authorities)
    plain = HttpChannel.of(replace(entry, rest_certificate=None))
    assert plain is not None
    with pytest.raises(NoAnswer, match="does not answer"):
        plain.status()


def test_without_tls_nothing_is_answered(start: Callable[[Pair], tuple[RestServer, JobEntry]], pair: Pair) -> None:
    server, _ = start(pair)
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    connection.request("GET", "/jobs", headers={"Authorization": f"Bearer {OWN}"})
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.getresponse().read()
    context = Certificate(certificate=pair.certificate, key=pair.key).context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_is_replaced_is_served_to_the_next_connection(
    start: Callable[[Pair], tuple[RestServer, JobEntry]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_FOLLOW_S", 3600.0)
    pair = self_signed(tmp_path / "tls")
    server, entry = start(pair)
    assert status(entry) == "RUNNING"
    before = pair.certificate.read_bytes()
    pair.certificate.write_bytes(self_signed(tmp_path / "other").certificate.read_bytes())
    assert server._certificate is not None
    server._certificate.look()
    pair.certificate.write_bytes(before)
    assert status(entry) == "RUNNING", "a certificate without its key leaves the one before"
    server._certificate.look()
    self_signed(tmp_path / "tls")
    with pytest.raises(DefinitionError, match="has a wrong certificate"):
        status(entry)
    server._certificate.look()
    assert status(entry) == "RUNNING"
    assert pair.certificate.read_bytes() != before


def test_the_probe_asks_over_tls(start: Callable[[Pair], tuple[RestServer, JobEntry]], pair: Pair) -> None:
    server, entry = start(pair)
    asked = {
        "POUNDLOCK_REST_PORT": str(server.address[1]),
        "POUNDLOCK_REST_TOKEN_FILE": str(entry.token_file),
        "POUNDLOCK_SECURITY_SSL_REST_ENABLED": "true",
        "POUNDLOCK_SECURITY_SSL_REST_CERTIFICATE_FILE": str(pair.certificate),
    }
    assert answers(asked) is None
    assert "have to say where to ask" in str(answers({**asked, "POUNDLOCK_SECURITY_SSL_REST_CERTIFICATE_FILE": "none"}))
    assert "does not answer" in str(answers({**asked, "POUNDLOCK_SECURITY_SSL_REST_ENABLED": "false"}))


def test_files_that_make_no_certificate_are_refused(tmp_path: Path, pair: Pair) -> None:
    locked = self_signed(tmp_path, "locked", password="hush")
    text = tmp_path / "text"
    text.write_text("no certificate")
    text.chmod(0o600)
    public = tmp_path / "public.key"
    public.write_bytes(pair.key.read_bytes())
    public.chmod(0o644)
    Certificate(certificate=locked.certificate, key=locked.key, password="hush").context()
    for certificate, key, password, what in (
        (pair.certificate, locked.key, "hush", "do not belong together"),
        (locked.certificate, locked.key, None, "are no certificate and key of a server"),
        (locked.certificate, locked.key, "wrong", "are no certificate and key of a server"),
        (text, pair.key, None, "are no certificate and key of a server"),
        (pair.certificate, text, None, "are no certificate and key of a server"),
        (pair.certificate, tmp_path / "none", None, "cannot be read"),
        (tmp_path / "none", pair.key, None, "cannot be read"),
        (pair.certificate, public, None, "other users can read"),
    ):
        with pytest.raises(DefinitionError, match=what):
            Certificate(certificate=certificate, key=key, password=password).context()
    for path, what in ((text, "no certificate or crl"), (tmp_path / "none", "No such file")):
        with pytest.raises(DefinitionError, match=what):
            trusting(path)
