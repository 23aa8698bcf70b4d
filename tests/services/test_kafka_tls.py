"""The Kafka sink's two clients with TLS both ways and tokens of an OpenID Connect provider, against a real broker.

Certificates are made by openssl for this run. The provider here answers with tokens that nobody signed, which a broker takes
unless it is given a key to check them by.
"""

from __future__ import annotations

import base64
import http.server
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from poundlock import DefinitionError, KafkaSecurity, KafkaSink
from poundlock.checkpoint.participant import Committed, WriterContext
from poundlock.formats.chunk import Batch
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.services

_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a CA and what it signed: `server`, for 127.0.0.1, and `client`; and `stranger`, of another CA."""
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    for name in ("ca", "other-ca"):
        openssl(folder, *new, "-x509", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
        openssl(folder, *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        extensions = ["-extfile", f"{'server' if name == 'server' else 'client'}.ext"]
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                "-CAcreateserial", "-out", f"{name}.pem", *extensions)  # fmt: skip
    return folder


class Provider(http.server.BaseHTTPRequestHandler):
    """Gives a token to the client that knows the secret."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        login = base64.b64decode(self.headers.get("Authorization", "Basic ").split()[-1]).decode()
        known = login == "app:s3cret"
        now = int(time.time())
        parts = [{"alg": "none"}, {"sub": "app", "scope": "kafka", "iat": now, "exp": now + 600}]
        coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        answer = {"access_token": ".".join(coded) + ".", "token_type": "Bearer", "expires_in": 600}
        body = json.dumps(answer if known else {"error": "invalid_client"}).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def security(certificates: Path) -> Iterator[KafkaSecurity]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield KafkaSecurity(
            protocol="SASL_SSL",
            mechanism="OAUTHBEARER",
            token_url=f"http://127.0.0.1:{server.server_port}/token",
            client_id="app",
            client_secret="s3cret",
            scope="kafka",
            ca=str(certificates / "ca.pem"),
            certificate=str(certificates / "client.pem"),
            key=str(certificates / "client.key"),
        )
        server.shutdown()


@pytest.fixture(scope="module")
def broker(certificates: Path, security: KafkaSecurity) -> Iterator[EmbeddedKafka]:
    both = (certificates / "server.key").read_text() + (certificates / "server.pem").read_text()
    (certificates / "server.both.pem").write_text(both)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / "server.both.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.pem",
        "ssl.client.auth": "required",
        "listener.name.plaintext.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";',
    }
    with EmbeddedKafka(properties=properties, client_settings=security.confluent()) as broker:
        yield broker


def test_a_transaction_is_written_and_committed(broker: EmbeddedKafka, security: KafkaSecurity) -> None:
    broker.create_topic("out")
    sink = KafkaSink(broker.bootstrap_servers, "out", security=security)
    sink.preflight()
    context = WriterContext(
        job_id="ab" * 16, sink="out", epoch=1, checkpoint=0, subtask=0, attempt="a", directive={}, reject=print,
        started_ms=0,
    )  # fmt: skip
    writer = sink.open_writer(context)
    writer.write(Batch(pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})))
    (payload,) = writer.prepare()
    assert isinstance(sink.commit(payload), Committed)
    assert sorted(r.value or b"" for r in broker.read("out")) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("a stranger's certificate", "no TLS connection to Kafka at"),
        ("no certificate", "no TLS connection to Kafka at"),
        ("another CA", "broker certificate could not be verified"),
        ("another secret", "refuses this user"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_look_at(
    broker: EmbeddedKafka, security: KafkaSecurity, certificates: Path, wrong: str, said: str
) -> None:
    changed = {
        "a stranger's certificate": {
            "certificate": str(certificates / "stranger.pem"), "key": str(certificates / "stranger.key")
        },
        "no certificate": {"certificate": None, "key": None},
        "another CA": {"ca": str(certificates / "other-ca.pem")},
        "another secret": {"client_secret": "wrong"},
    }[wrong]  # fmt: skip
    with pytest.raises(DefinitionError) as refused:
        KafkaSink(broker.bootstrap_servers, "out", security=replace(security, **changed)).preflight()  # type: ignore[arg-type]
    assert said in refused.value.what
    assert "KafkaSecurity(…)" in str(refused.value.next)
