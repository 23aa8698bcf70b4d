"""How a registry is asked: logins, TLS, what is asked once, and what each answer becomes. A stand-in answers; tests/services asks a real one."""

from __future__ import annotations

import base64
import json
import pickle
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from poundlock import AvroConfluent, KafkaSink, KafkaSource, ProtobufConfluent, SchemaRegistry
from poundlock.connectors.kafka.schemas.client import NotRegistered, RegistryClient, client_of
from poundlock.errors import DefinitionError, TerminalError, TransientError
from support.certificates import self_signed

TEXT = '"string"'


class StandIn:
    """Answers with what `answers` has by path, and keeps what it was asked."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                stand_in.asked.append((self.command, path, dict(self.headers)))
                status, body = stand_in.answers.get(
                    f"{self.command} {path}", (404, {"error_code": 40403, "message": "none"})
                )
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "http" if certificate is None else "https"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    made.answers["GET /schemas/ids/1"] = (200, {"schema": TEXT})
    yield made
    made.close()


def test_a_login_by_name_or_token_is_sent_and_shown_nowhere(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "open sesame")
    by_name = SchemaRegistry(stand_in.url, username="etl", password="env:SECRET")
    assert RegistryClient(by_name).schema(1).text == TEXT
    by_token = SchemaRegistry(stand_in.url, token="env:SECRET")
    RegistryClient(by_token).schema(1)
    sent = [headers["Authorization"] for _, _, headers in stand_in.asked]
    assert sent == [f"Basic {base64.b64encode(b'etl:open sesame').decode()}", "Bearer open sesame"]
    assert "SECRET" not in repr(by_name) + repr(by_token)


def test_tls_trusts_the_certificate_that_is_given(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    made = StandIn((pair.certificate, pair.key))
    made.answers["GET /schemas/ids/1"] = (200, {"schema": TEXT})
    try:
        assert RegistryClient(SchemaRegistry(made.url, ca=str(pair.certificate))).schema(1).text == TEXT
        with pytest.raises(TransientError, match="does not answer"):
            RegistryClient(SchemaRegistry(made.url)).schema(1)
    finally:
        made.close()


def test_a_number_is_asked_for_once(stand_in: StandIn) -> None:
    client = RegistryClient(SchemaRegistry(stand_in.url))
    assert client.schema(1) is client.schema(1)
    assert len(stand_in.asked) == 1


def test_a_schema_is_looked_up_before_it_is_registered(stand_in: StandIn) -> None:
    stand_in.answers["POST /subjects/t-value"] = (404, {"error_code": 40401, "message": "no subject"})
    stand_in.answers["POST /subjects/t-value/versions"] = (200, {"id": 7})
    client = RegistryClient(SchemaRegistry(stand_in.url))
    assert client.id_of("t-value", "AVRO", TEXT, (), register=True) == 7
    assert client.id_of("t-value", "AVRO", TEXT, (), register=True) == 7
    assert [path for _, path, _ in stand_in.asked] == ["/subjects/t-value", "/subjects/t-value/versions"]
    with pytest.raises(TerminalError, match="auto_register is off"):
        client.id_of("t-value", "AVRO", '"long"', (), register=False)


def test_each_answer_is_an_error_of_its_kind(stand_in: StandIn) -> None:
    client = RegistryClient(SchemaRegistry(stand_in.url))
    with pytest.raises(NotRegistered):
        client.schema(2)
    stand_in.answers["GET /schemas/ids/3"] = (401, {"error_code": 401, "message": "who are you"})
    with pytest.raises(TerminalError, match="refuses this user"):
        client.schema(3)
    stand_in.answers["POST /subjects/t-value/versions"] = (409, {"error_code": 409, "message": "incompatible"})
    with pytest.raises(TerminalError, match="not compatible with what is there"):
        client.id_of("t-value", "AVRO", TEXT, (), register=True)
    stand_in.answers["POST /subjects/u-value/versions"] = (422, {"error_code": 42201, "message": "invalid"})
    with pytest.raises(TerminalError, match="refuses the registration"):
        client.id_of("u-value", "AVRO", TEXT, (), register=True)


def test_versions_that_were_answered_once_are_there_when_the_registry_is_away(stand_in: StandIn) -> None:
    stand_in.answers["GET /subjects/t-value/versions"] = (200, [1])
    stand_in.answers["GET /subjects/t-value/versions/1"] = (
        200,
        {"subject": "t-value", "version": 1, "id": 1, "schema": TEXT},
    )
    client = RegistryClient(SchemaRegistry(stand_in.url, timeout="1 s"))
    assert [each.id for each in client.versions("t-value")] == [1]
    assert client.versions("other-value") == []
    stand_in.answers["GET /subjects/t-value/versions"] = (503, {"error_code": 50301, "message": "later"})
    assert [each.id for each in client.versions("t-value")] == [1]


def test_what_a_sink_asks_is_there_when_the_registry_is_away_also_in_other_processes(stand_in: StandIn) -> None:
    answer = {"subject": "t-value", "version": 3, "id": 7, "schema": TEXT}
    stand_in.answers["GET /subjects/t-value/versions/latest"] = (200, answer)
    stand_in.answers["POST /subjects/u-value"] = (200, answer | {"subject": "u-value"})
    where = SchemaRegistry(stand_in.url, timeout="1 s")
    sink = KafkaSink("localhost:9", "t", format=AvroConfluent(where, use_latest=True))
    assert sink.bind(job_id="j", sink="s").answers == {}, "nothing is asked for it"
    driver = client_of(where)
    assert driver.latest_or_known("t-value").id == 7
    assert driver.id_of("u-value", "AVRO", TEXT, (), register=False) == 7
    bound = pickle.loads(pickle.dumps(sink.bind(job_id="j", sink="s")))
    stand_in.answers["GET /subjects/t-value/versions/latest"] = (503, {"error_code": 50301, "message": "later"})
    del stand_in.answers["POST /subjects/u-value"]
    assert driver.latest_or_known("t-value").id == 7
    with pytest.raises(TransientError):
        driver.latest("t-value")
    task = RegistryClient(where)
    with pytest.raises(TransientError):
        task.latest_or_known("t-value")
    task.learn(bound.answers[where])
    assert (task.latest_or_known("t-value").id, task.id_of("u-value", "AVRO", TEXT, (), register=False)) == (7, 7)
    stand_in.answers["GET /subjects/t-value/versions/latest"] = (200, answer | {"version": 4, "id": 9})
    assert task.latest_or_known("t-value").id == 9


REGISTRY = SchemaRegistry("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: SchemaRegistry("localhost:8081"), "no address of a registry"),
        (lambda: SchemaRegistry("http://a:b@localhost:8081"), "has a login in it"),
        (lambda: SchemaRegistry("http://localhost:8081", username="a"), "both username and password"),
        (lambda: SchemaRegistry("http://localhost:8081", ca="ca.pem"), "without TLS"),
        (lambda: AvroConfluent(REGISTRY, schema="no"), "the Avro schema cannot be read"),
        (lambda: AvroConfluent(REGISTRY, schema="string", columns="id int"), "say the same"),
        (lambda: AvroConfluent(REGISTRY, schema="string", use_latest=True), "use_latest=True has no effect"),
        (lambda: AvroConfluent(REGISTRY, subject="s", subject_name_strategy="record"), "has no effect"),
        (lambda: AvroConfluent(REGISTRY, use_latest=True, subject_name_strategy="record"), "cannot know a record's name"),
        (lambda: ProtobufConfluent(REGISTRY, schema="message {"), "does not compile"),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", format=AvroConfluent(REGISTRY)), "which columns to read"),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", format=AvroConfluent(REGISTRY, schema="string", auto_register=False)), "a source registers nothing"),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", key_format=AvroConfluent(REGISTRY, schema="string")), 'means nothing to format "raw"'),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", key_prefix="k_"), "there is no key_format"),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", format=AvroConfluent(REGISTRY, columns="id int"), key_format=AvroConfluent(REGISTRY, columns="id int")), "both have a column 'id'"),
        (lambda: KafkaSource(bootstrap_servers="a:1", topics="t", format=AvroConfluent(REGISTRY, columns="id int"), format_options={"confluent": True}), "format_options mean nothing"),
        (lambda: KafkaSink("a:1", "t", format=AvroConfluent(REGISTRY, on_incompatible="bad_record")), "a sink reads nothing"),
        (lambda: KafkaSink("a:1", "t", format="json", key=["id"]), "is not one column"),
        (lambda: KafkaSink("a:1", "t", format="json", key_format=AvroConfluent(REGISTRY)), "key_format means nothing without key"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_written_down(make: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as caught:
        make()
    assert caught.value.next
