"""Commands that ask a job over TLS, and what the log of operations says of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.control.operations_log import OperationsLog
from poundlock.control.registry import Registry, registered
from poundlock.rest.access.access import Access
from poundlock.rest.access.certificate import Certificate
from poundlock.rest.observed import Observed
from poundlock.rest.server import RestServer, take_port
from support.certificates import Pair, self_signed
from support.rest_job import ID, observed

OWN = "the-token-of-the-process"


@dataclass
class Secured:
    job: Observed
    pair: Pair
    log: Path
    ended: threading.Event

    def checkpoints(self) -> None:
        while not self.ended.is_set():
            if (trigger := self.job.requests.take()) is not None:
                trigger.complete(17)
            self.ended.wait(0.01)


@pytest.fixture
def secured(own_folder: Path, tmp_path: Path) -> Iterator[Secured]:
    """A job of this user that is served with a certificate for a name of the network."""
    pair = self_signed(tmp_path / "tls", "jobs.example")
    log = tmp_path / "operations.log"
    server = RestServer(
        take_port("127.0.0.1", 0),
        OWN,
        Access(certificate=Certificate(certificate=pair.certificate, key=pair.key)),
        OperationsLog(path=log, job_id=ID, job="orders", say=lambda line: None),
    )
    entry = registered(
        job_id=ID, name="orders", checkpoint_dir="c", log=tmp_path / "log", job_file="job.py", arguments=[]
    )
    certificate = str(pair.certificate)
    entry = replace(entry, rest=server.address, rest_certificate=certificate, state="RUNNING")
    Registry(own_folder / "state").register(entry, OWN)
    made = Secured(observed(tmp_path / "ledger")[0], pair, log, threading.Event())
    server.start(made.job)
    thread = threading.Thread(target=made.checkpoints)
    thread.start()
    yield made
    made.ended.set()
    thread.join()
    server.close()


def test_a_job_is_asked_over_tls_and_the_line_says_that_its_user_did(
    secured: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "orders"]) == 0
    out = capsys.readouterr().out
    assert "  REST        https://127.0.0.1:" in out
    assert "progress    RUNNING" in out, "as the job itself says"
    assert main(["checkpoint", "orders"]) == 0
    assert f"Checkpoint 17 for job {ID} completed." in capsys.readouterr().out
    lines = [json.loads(line) for line in secured.log.read_text().splitlines()]
    assert [(line["who"], line["operation"], line["outcome"]) for line in lines] == [
        ("owner", "checkpoint", "accepted"),
        ("owner", "checkpoint", "completed"),
    ]


def test_authorities_of_ones_own_have_to_have_signed_it(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = f"security.ssl.rest.ca-file={secured.pair.certificate}"
    assert main(["checkpoint", "orders", "-D", right]) == 0
    other = self_signed(tmp_path / "other")
    assert main(["checkpoint", "orders", "-D", f"security.ssl.rest.ca-file={other.certificate}"]) == 2
    assert "has a wrong certificate" in capsys.readouterr().err
