"""A body that nobody reads keeps no connection open: the answer comes at once, and the server closes."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from poundlock.rest.access.guard import LARGEST_BODY
from poundlock.rest.server import RestServer, take_port
from support.rest_job import ID, observed

OWN = "the-token-of-the-process"
PATIENCE_S = 60.0  # an answer takes a moment; a server that waits for the body waits for ever


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    made = RestServer(take_port("127.0.0.1", 0), OWN)
    made.start(observed(tmp_path_factory.mktemp("job") / "ledger")[0])
    yield made
    made.close()


@contextlib.contextmanager
def connected(server: RestServer) -> Iterator[socket.socket]:
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        yield connection


def head(*headers: str, token: str = OWN) -> bytes:
    lines = (f"POST /jobs/{ID}/savepoints HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "Content-Type: application/json", *headers, "", ""]).encode()


def all_of(connection: socket.socket) -> bytes:
    """Return all that the server sends before it closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):  # what was sent and not read, when it closed
        while data := connection.recv(65536):
            received += data
    return received


@pytest.mark.parametrize(
    ("token", "length", "status"),
    [(OWN, 10**12, 413), (OWN, LARGEST_BODY + 1, 413), ("wrong", 10**12, 401), ("wrong", 1, 401)],
)
def test_a_body_that_is_announced_and_not_read_ends_the_connection(
    server: RestServer, token: str, length: int, status: int
) -> None:
    with connected(server) as connection:
        connection.sendall(head(f"Content-Length: {length}", token=token))  # and nothing more
        answer = all_of(connection)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in answer.lower()


def test_a_body_without_an_end_ends_the_connection(server: RestServer) -> None:
    piece = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    with connected(server) as connection:
        connection.sendall(head("Transfer-Encoding: chunked"))
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):  # 40 MB
                connection.sendall(piece)
            pytest.fail("the server goes on reading")
        all_of(connection)


def test_a_connection_goes_on_behind_a_body_that_was_read(server: RestServer) -> None:
    asked = f"GET /jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OWN}\r\n"
    with connected(server) as connection:
        for more in ("", "Connection: close\r\n"):
            connection.sendall(f"{asked}{more}\r\n".encode())
            if not more:
                with http.client.HTTPResponse(connection) as answer:  # head and body may come in pieces
                    answer.begin()
                    assert (answer.status, bool(answer.read())) == (200, True)
        assert all_of(connection).startswith(b"HTTP/1.1 200 ")
