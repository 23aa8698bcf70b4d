"""Files of a checkpoint folder that are damaged: commands and REST say what is wrong in words, or show the rest; nothing breaks down."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from poundlock.cli.job_lookup import folder_channel
from poundlock.cli.main import main
from poundlock.control.registry import Registry
from poundlock.dashboard.app import make_dashboard
from poundlock.dashboard.known_jobs import KnownJobs
from poundlock.rest.access.access import Admission
from support.rubbish import DAMAGES, JobFolders, damaged, in_values, job_folders

pytestmark = pytest.mark.slow

TOKEN = "t" * 16
SEED = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or 20)
Damage = tuple[Path, str, Callable[[Path], None]]


@pytest.fixture(scope="module")
def folders() -> Iterator[JobFolders]:
    with job_folders() as made:
        yield made


@pytest.fixture(autouse=True)
def state(bare_folder: Path, monkeypatch: pytest.MonkeyPatch, folders: JobFolders) -> None:
    """Jobs are listed, and logs written, where any user may."""
    place = folders.elsewhere / "state"
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(place))
    monkeypatch.chdir(folders.elsewhere)


def commands(folders: JobFolders, folder: Path) -> Iterator[Sequence[str]]:
    """Yield what only looks at a job."""
    yield ("list", "--root", str(folders.root))
    yield ("list", "-a", str(folder))
    for command in ("info", "logs", "checkpoints", "ledger", "audit", "fsck", "files"):
        yield (command, str(folder))
    yield ("ledger", str(folder), "-v", "--json")
    if folder == folders.folders[0]:
        yield ("state", str(folder))
    else:
        yield ("files", "--sealed", str(folder))
        yield ("files", "--sealed", str(folder), "--json")


def paths(client: TestClient, job: str) -> Iterator[str]:
    """Yield what can be asked for of a job, by the description of REST."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        if "get" in methods:
            known = path.replace("{jid}", job).replace("{number}", "3").replace("{trigger_id}", "0" * 32)
            yield known.replace("{operator}", "counts").replace("{key}", "key-1")


def client_of(folders: JobFolders) -> TestClient:
    known = KnownJobs(Registry(folders.elsewhere / "none"), [str(folders.root)], folder_channel, folder_channel)
    app = make_dashboard(known, Admission.of_token(TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return TestClient(app, headers=headers, raise_server_exceptions=False)


def wrong_of_commands(folders: JobFolders, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what commands say that no command should."""
    wrong = []
    for command in commands(folders, folder):
        code = main(command)
        out, err = capsys.readouterr()
        said = err.splitlines()
        in_words = not said or (said[0].startswith("error: ") and said[1].startswith("Next: "))
        if "Traceback" in out + err or "unexpected" in err or not in_words:
            wrong.append(f"{' '.join(command)}: {err}")
        elif code and not said and command[0] not in ("audit", "fsck"):
            wrong.append(f"{' '.join(command)} ends with {code} and says nothing")
    return wrong


def wrong_of_rest(folders: JobFolders, asked: Sequence[str]) -> list[str]:
    """Return what REST answers that it should not."""
    wrong, client = [], client_of(folders)
    for path in asked:
        answer = client.get(path)
        if answer.status_code == 503:  # the folder cannot be read: why, and what to do
            what, next = answer.json()["errors"]
            if not what or not next or "Traceback" in what:
                wrong.append(f"{path}: {answer.text}")
        elif answer.status_code >= 500:
            wrong.append(f"{path}: {answer.status_code} {answer.text}")
    return wrong


def all_damages(folders: JobFolders) -> list[Damage]:
    return [(path, name, damage) for path in folders.files() for name, damage in DAMAGES.items()]


def values_damaged(folders: JobFolders) -> list[Damage]:
    return [(path, name, damage) for path in folders.files() for name, damage in in_values(path)]


def some(damages: Sequence[Damage], count: int) -> Sequence[Damage]:
    return random.Random(SEED).sample(damages, min(count, len(damages)))


def try_all(damages: Sequence[Damage], folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, client = [], client_of(folders)
    asked = {folder: list(paths(client, folders.id_of(folder))) for folder in folders.folders}
    for path, name, damage in damages:
        folder = folders.of(path)
        with damaged(path, damage):
            found = [*wrong_of_commands(folders, folder, capsys), *wrong_of_rest(folders, asked[folder])]
        wrong += [f"{path.relative_to(folders.root.parent)}, {name}: {each}" for each in found]
    assert not wrong, f"seed {SEED}, {len(wrong)}:\n" + "\n".join(wrong[:40])


def test_what_is_whole_is_shown(folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    """The control: nothing is refused where nothing is damaged, so that the others say something of damages."""
    assert len(folders.files()) > 12
    client = client_of(folders)
    for folder in folders.folders:
        for command in commands(folders, folder):
            if command[0] != "logs":
                assert main(command) == 0, (command, capsys.readouterr())
        asked = list(paths(client, folders.id_of(folder)))
        assert len(asked) > 20
        answers = {path: client.get(path).status_code for path in asked}
        assert set(answers.values()) <= {200, 404}, answers


def test_damaged_files(folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    try_all(some(all_damages(folders), 6), folders, capsys)


def test_values_of_another_kind(folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    try_all(some(values_damaged(folders), 6), folders, capsys)


@pytest.mark.torture
def test_all_damaged_files(folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    try_all(all_damages(folders), folders, capsys)


@pytest.mark.torture
def test_many_values_of_another_kind(folders: JobFolders, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    print(f"POUNDLOCK_TORTURE_SEED={SEED}")
    try_all(some(values_damaged(folders), int(os.environ.get("POUNDLOCK_TORTURE_KILLS") or 400)), folders, capsys)
    print(f"{time.monotonic() - began:.0f} s")
