"""The clients of the Kafka sink and source with TLS, certificates of clients and every kind of login, against real brokers.

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
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from poundlock import DefinitionError, Job, KafkaSecurity, KafkaSink, KafkaSource, TerminalError, TransientError
from poundlock.checkpoint.participant import Committed, WriterContext
from poundlock.config import load_settings
from poundlock.connectors.base import ReaderContext, Split
from poundlock.driver.driver import run
from poundlock.formats.chunk import Batch
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record

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
        "ssl.client.auth": "requested",
        "listener.name.plaintext.ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";',
    }
    with EmbeddedKafka(properties=properties, client_settings=security.confluent()) as broker:
        yield broker


def write(broker: EmbeddedKafka, security: KafkaSecurity, topic: str) -> None:
    broker.create_topic(topic)
    sink = KafkaSink(broker.bootstrap_servers, topic, security=security)
    sink.preflight()
    context = WriterContext(
        job_id="ab" * 16, sink="out", epoch=1, checkpoint=0, subtask=0, attempt="a", directive={}, reject=print,
        started_ms=0,
    )  # fmt: skip
    writer = sink.open_writer(context)
    writer.write(Batch(pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})))
    (payload,) = writer.prepare()
    assert isinstance(sink.commit(payload), Committed)
    assert sorted(r.value or b"" for r in broker.read(topic)) == [b"a", b"b"]


def read(broker: EmbeddedKafka, security: KafkaSecurity, topic: str, folder: Path) -> list[bytes]:
    """Return the values of a topic, planned and read as a job does it."""
    bound = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topic, security=security).bind(
        job="j", name="n"
    )
    bound.preflight()
    enumerator = bound.enumerator(LocalStorage(str(folder)))
    start = enumerator.initial()
    splits = enumerator.splits(start, enumerator.latest(start))
    enumerator.close()
    reader = bound.reader(ReaderContext(reject=print, columns=["value"]))
    return sorted(chunk.row(i) for split in splits for chunk in reader.read(split) for i in range(len(chunk)))  # type: ignore[union-attr]


@pytest.mark.parametrize("certified", [True, False])
def test_tokens_with_a_certificate_and_without(
    broker: EmbeddedKafka, security: KafkaSecurity, tmp_path: Path, certified: bool
) -> None:
    who = security if certified else replace(security, certificate=None, key=None)
    write(broker, who, f"out-{certified}")
    assert read(broker, who, f"out-{certified}", tmp_path) == [b"a", b"b"]


def served(certificates: Path, protocol: str, **more: object) -> dict[str, object]:
    """Return the settings of a broker that has a certificate."""
    both = (certificates / "server.key").read_text() + (certificates / "server.pem").read_text()
    (certificates / "server.both.pem").write_text(both)
    return {
        "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / "server.both.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.pem",
        **more,
    }


@pytest.fixture(scope="module")
def guarded_broker(certificates: Path) -> Iterator[tuple[EmbeddedKafka, KafkaSecurity]]:
    """A broker that takes passwords over TLS, and wants a login again every few seconds."""
    admin = KafkaSecurity(
        protocol="SASL_SSL", mechanism="PLAIN", username="admin", password="a", ca=str(certificates / "ca.pem")
    )
    module = "org.apache.kafka.common.security"
    listener = "listener.name.plaintext"
    properties = served(
        certificates, "SASL_SSL",
        **{
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "connections.max.reauth.ms": 4000,
            f"{listener}.plain.sasl.jaas.config": f'{module}.plain.PlainLoginModule required username="admin" password="a" user_admin="a";',
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        },
    )  # fmt: skip
    with EmbeddedKafka(properties=properties, client_settings=admin.confluent()) as broker:
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion("etl", ScramCredentialInfo(kind, 4096), b'p\xc3\xa4ss="1",2')
            for done in broker.admin.alter_user_scram_credentials([made]).values():
                done.result(30)
        yield broker, admin


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(
    guarded_broker: tuple[EmbeddedKafka, KafkaSecurity], mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, admin = guarded_broker
    monkeypatch.setenv("ETL_PW", 'päss="1",2')
    who = admin
    if mechanism != "PLAIN":
        who = replace(admin, mechanism=mechanism, username="etl", password="env:ETL_PW")
    write(broker, who, f"out-{mechanism}")
    assert read(broker, who, f"out-{mechanism}", tmp_path) == [b"a", b"b"]


def test_a_login_that_has_run_out_is_made_again(
    guarded_broker: tuple[EmbeddedKafka, KafkaSecurity], tmp_path: Path
) -> None:
    broker, admin = guarded_broker
    broker.create_topic("long")
    broker.produce("long", ["a"])
    assert read(broker, admin, "long", tmp_path) == [b"a"]
    time.sleep(4.5)
    assert read(broker, admin, "long", tmp_path) == [b"a"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"password": "wrong"}, "refuses this user: Authentication failed"),
        ({"mechanism": "SCRAM-SHA-512", "username": "nobody"}, "refuses this user"),
        ({"mechanism": "OAUTHBEARER", "username": None, "password": None, "token_url": "http://127.0.0.1:1/t",
          "client_id": "a", "client_secret": "b"}, "does not take the SASL mechanism OAUTHBEARER, it takes "),
        ({"ca": "other-ca.pem"}, "no TLS connection to Kafka at .*certificate verify failed"),
    ],
)  # fmt: skip
def test_a_task_that_is_not_let_in_says_why(
    guarded_broker: tuple[EmbeddedKafka, KafkaSecurity], certificates: Path, changed: dict[str, str], said: str
) -> None:
    broker, admin = guarded_broker
    if "ca" in changed:
        changed = {"ca": str(certificates / changed["ca"])}
    who = replace(admin, **changed)  # type: ignore[arg-type]
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics="out", security=who)
    split = Split("a", {"topic": "out", "partition": 0, "from": 0, "to": 1})
    with pytest.raises(TerminalError, match=said) as caught:
        list(source.reader(ReaderContext(reject=print)).read(split))
    assert "wrong" not in str(caught.value)
    assert "KafkaSecurity(…)" in caught.value.next


def test_a_password_sent_to_a_port_without_tls_is_not_waited_for(
    guarded_broker: tuple[EmbeddedKafka, KafkaSecurity],
) -> None:
    broker, _ = guarded_broker
    source = KafkaSource(
        bootstrap_servers=broker.bootstrap_servers, topics="out", options={"kafkaConsumer.pollTimeoutMs": 500}
    )
    split = Split("a", {"topic": "out", "partition": 0, "from": 0, "to": 1})
    with pytest.raises(TransientError, match=r"no Kafka server answers at .*(TLS|closed the connection)"):
        list(source.reader(ReaderContext(reject=print)).read(split))


@pytest.fixture(scope="module")
def certified_broker(certificates: Path) -> Iterator[tuple[EmbeddedKafka, KafkaSecurity]]:
    """A broker that knows its clients by their certificates alone."""
    who = KafkaSecurity(
        protocol="SSL", ca=str(certificates / "ca.pem"), certificate=str(certificates / "client.pem"),
        key=str(certificates / "client.key"),
    )  # fmt: skip
    properties = served(
        certificates, "SSL", **{"ssl.client.auth": "required", "listener.name.plaintext.ssl.client.auth": "required"}
    )
    # The broker shows its own certificate when it calls itself; it was made for a server, which is enough for that.
    with EmbeddedKafka(properties=properties, client_settings=who.confluent()) as broker:
        yield broker, who


def test_certificates_alone(
    certified_broker: tuple[EmbeddedKafka, KafkaSecurity], certificates: Path, tmp_path: Path
) -> None:
    broker, who = certified_broker
    write(broker, who, "out")
    assert read(broker, who, "out", tmp_path) == [b"a", b"b"]
    encrypted = certificates / "client.encrypted.key"
    openssl(certificates, "pkcs8", "-topk8", "-in", "client.key", "-out", encrypted.name, "-passout", "pass:hush")
    hidden = replace(who, key=str(encrypted), key_password="hush")
    write(broker, hidden, "out-encrypted")
    assert read(broker, hidden, "out-encrypted", tmp_path / "encrypted") == [b"a", b"b"]
    for name in (None, "stranger"):
        files = {kind: name and str(certificates / f"{name}.{kind}") for kind in ("pem", "key")}
        unknown = replace(who, certificate=files["pem"], key=files["key"])
        source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics="out", security=unknown)
        split = Split("a", {"topic": "out", "partition": 0, "from": 0, "to": 1})
        with pytest.raises(TerminalError, match="no TLS connection to Kafka at"):
            list(source.reader(ReaderContext(reject=print)).read(split))
        with pytest.raises(DefinitionError, match="no TLS connection to Kafka at") as refused:
            KafkaSink(broker.bootstrap_servers, "out", security=unknown).preflight()
        assert "KafkaSecurity(…)" in str(refused.value.next)


def test_encryption_alone(certificates: Path, tmp_path: Path) -> None:
    """A broker that asks its clients for nothing: they know it by its certificate."""
    who = KafkaSecurity(protocol="SSL", ca=str(certificates / "ca.pem"))
    with EmbeddedKafka(properties=served(certificates, "SSL"), client_settings=who.confluent()) as broker:
        write(broker, who, "out")
        assert read(broker, who, "out", tmp_path) == [b"a", b"b"]


@pytest.mark.engine
def test_a_whole_job(
    guarded_broker: tuple[EmbeddedKafka, KafkaSecurity], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver, tasks and JVM are as in any job; its logins run out every few seconds."""
    broker, admin = guarded_broker
    monkeypatch.setenv("ETL_PW", 'päss="1",2')
    who = replace(admin, mechanism="SCRAM-SHA-512", username="etl", password="env:ETL_PW")
    broker.create_topic("job-in", 2)
    broker.create_topic("job-out", 2)
    broker.produce("job-in", [Record(b"%d" % n, partition=n % 2) for n in range(500)])
    job = Job("guarded", checkpoint_interval="0 s", on_error="fail")
    source = KafkaSource(
        bootstrap_servers=broker.bootstrap_servers, topics="job-in", security=who, end="latest",
        max_records_per_checkpoint=100,
    )  # fmt: skip
    job.from_source(source, name="in").sink_to(KafkaSink(broker.bootstrap_servers, "job-out", security=who), name="out")
    settings = load_settings([f"state_dir={tmp_path}/state", "master=local[2]", "driver_memory=1g"])
    assert run(job, settings=settings).state == "FINISHED"
    assert sorted(int(r.value or b"") for r in broker.read("job-out")) == list(range(500))
    checkpoint = next((tmp_path / "state").rglob("ledger")).parent
    for path in checkpoint.rglob("*"):
        assert not path.is_file() or "päss".encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("another CA", "broker certificate could not be verified"),
        ("another secret", "refuses this user"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_look_at(
    broker: EmbeddedKafka, security: KafkaSecurity, certificates: Path, wrong: str, said: str
) -> None:
    changed = {
        "another CA": {"ca": str(certificates / "other-ca.pem")},
        "another secret": {"client_secret": "wrong"},
    }[wrong]  # fmt: skip
    with pytest.raises(DefinitionError) as refused:
        KafkaSink(broker.bootstrap_servers, "out", security=replace(security, **changed)).preflight()  # type: ignore[arg-type]
    assert said in refused.value.what
    assert "KafkaSecurity(…)" in str(refused.value.next)
