"""What the resource manager's page says of an application, asked of a page that answers as it does."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from poundlock.control import yarn
from poundlock.control.driver_status import lost
from poundlock.control.yarn import Application, ask

SITE = "<configuration>{}</configuration>"
PROPERTY = "<property><name>{}</name><value>{}</value></property>"
APPS = {
    "application_1_0001": {"state": "RUNNING", "finalStatus": "UNDEFINED", "diagnostics": ""},
    "application_1_0002": {"state": "FAILED", "finalStatus": "FAILED", "diagnostics": "it  was\nkilled"},
    "application_1_0003": {"finalStatus": "FAILED"},
}


def environment(folder: Path, **said: str) -> Mapping[str, str]:
    properties = "".join(PROPERTY.format(name, value) for name, value in said.items())
    (folder / "yarn-site.xml").write_text(SITE.format(properties))
    return {"HADOOP_CONF_DIR": str(folder)}


@pytest.fixture
def page() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            id = self.path.removeprefix("/ws/v1/cluster/apps/")
            self.send_response(200 if id in APPS else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"app": APPS.get(id)}).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # how soon it sees its end
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_an_application_is_as_the_page_says(tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    env = environment(tmp_path, **{"yarn.resourcemanager.webapp.address": page})
    running = ask("application_1_0001", env)
    assert running is not None
    assert not running.over
    failed = ask("application_1_0002", env)
    assert failed == Application(id="application_1_0002", state="FAILED", why="it was killed")
    assert failed.over
    forgotten = ask("application_1_0009", env)
    assert forgotten is not None
    assert forgotten.over
    assert ask("application_1_0003", env) is None


def test_the_second_of_two_is_asked_where_the_first_is_away(tmp_path: Path, page: str) -> None:
    said = {"yarn.resourcemanager.ha.rm-ids": "a,b", "yarn.resourcemanager.webapp.address.b": page}
    found = ask(
        "application_1_0001", environment(tmp_path, **said, **{"yarn.resourcemanager.webapp.address.a": "127.0.0.1:9"})
    )
    assert found is not None
    assert found.state == "RUNNING"


@pytest.mark.parametrize("error", [http.client.IncompleteRead(b"{"), http.client.BadStatusLine("")])
def test_where_an_answer_is_cut_off_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def cut_off(*given: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(yarn._OPENER, "open", cut_off)
    said = {"yarn.resourcemanager.webapp.address": "127.0.0.1:9"}
    assert ask("application_1_0001", environment(tmp_path, **said)) is None


def test_where_nobody_answers_nothing_is_known(tmp_path: Path) -> None:
    assert ask("application_1_0001", {}) is None
    assert ask("application_1_0001", environment(tmp_path)) is None
    said = {"yarn.resourcemanager.webapp.address": "127.0.0.1:9"}
    assert ask("application_1_0001", environment(tmp_path, **said)) is None
    assert ask("application_1_0001", environment(tmp_path, **{"yarn.resourcemanager.webapp.address": "${x}:1"})) is None


@pytest.mark.parametrize(
    ("why", "what"),
    [
        ("AM Container exited with exitCode: 210 Failing this attempt", "containers is 3.10"),
        ("User application exited with status 70", "lacks a package"),
        ("User application exited with status 5", "another driver has taken over"),
        ("User application exited with status 75", "has had all attempts"),
        ('java.io.IOException: Cannot run program "/no/python": error=2', "containers have no /no/python"),
        ("Application was killed by user", "without a last word of its driver: Application was killed by user"),
        ("exitCode: 137", "without a last word of its driver"),
        ("", "is over (FAILED), without a last word of its driver"),
    ],
)
def test_why_an_application_is_over(why: str, what: str) -> None:
    error = lost(Application(id="application_1_1", state="FAILED", why=why))
    assert what in error.what
    assert error.next
