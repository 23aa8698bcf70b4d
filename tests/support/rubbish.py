"""Checkpoint folders of jobs in which a file is damaged: cut off, empty, of something else, not to be read, or with a value of another kind in it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poundlock.checkpoint.identity import read_identity
from poundlock.config import load_settings
from poundlock.control.control_server import ControlServer
from poundlock.control.registry import JobEnd, registered
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.storage import LocalStorage
from support.counting_job import CountingJob
from support.forked_lives import live
from support.in_process import PATCHES, InProcess
from support.sealing_lives import SealingJob

__all__ = ["DAMAGES", "JobFolders", "in_values", "job_folders"]

_NOBODY = 65534


@dataclass(frozen=True)
class JobFolders:
    """Two jobs that have ended, one that keeps state and one that seals buckets.

    Args:
        root: what their checkpoint folders are in.
        elsewhere: input, output and buckets.
    """

    root: Path
    elsewhere: Path

    @property
    def folders(self) -> Sequence[Path]:
        """The checkpoint folders."""
        return [self.root / "counting", self.root / "sealing"]

    def of(self, path: Path) -> Path:
        """Return the checkpoint folder of the job that has written a file."""
        return self.folders[0] if self.folders[0] in path.parents else self.folders[1]

    @staticmethod
    def id_of(folder: Path) -> str:
        """Return the id of a job."""
        return str(json.loads((folder / "job.json").read_text())["job_id"])

    def files(self) -> list[Path]:
        """Return one file of each kind that poundlock has written: of those with numbers in their names the newest."""
        found: dict[str, Path] = {}
        lake = self.elsewhere / "lake"
        marks = [path for path in lake.rglob("_*") if path.is_file()]
        for path in sorted(
            [*(path for folder in self.folders for path in folder.rglob("*") if path.is_file()), *marks]
        ):
            job = next((folder.name for folder in self.folders if folder in path.parents), "lake")
            place = path.parent.name if job != "lake" else ""
            kind = "".join(letter for letter in path.name if not letter.isdigit())
            found[f"{job}/{place}/{kind if len(path.name) < 40 else ''}"] = path
        return list(found.values())


@contextmanager
def job_folders() -> Iterator[JobFolders]:
    """Yield the folders, in a place that every user may look into."""
    place = Path(tempfile.mkdtemp(prefix="poundlock-rubbish-"))
    place.chmod(0o755)
    try:
        folders = JobFolders(place / "root", place / "elsewhere")
        assert live(_make, folders) == 0
        yield folders
    finally:
        shutil.rmtree(place)


def _make(folders: JobFolders) -> None:
    for module, name, other in PATCHES:
        setattr(module, name, other)
    counting = CountingJob(folders.elsewhere / "counting", str(folders.root / "counting"))
    sealing = SealingJob(
        folders.elsewhere / "sealing", str(folders.elsewhere / "lake"), "reopen", "1 KB", "json", {}, 20
    )
    sealing.prepare()
    counting.prepare()
    both: tuple[CountingJob | SealingJob, ...] = (counting, sealing)
    for each, folder in zip(both, folders.folders, strict=True):
        job = each.job()
        job.checkpoint_dir = str(folder)
        os.chdir(each.root)
        progress = run(job, settings=load_settings([f"state_dir={each.root}/.state"]), session=InProcess())
        _listed(folder, progress)


def _listed(folder: Path, progress: Progress) -> None:
    """Write what a driver writes for those who look."""
    storage = LocalStorage(str(folder))
    identity = read_identity(storage)
    assert identity is not None
    entry = registered(
        job_id=identity.job_id, name=identity.name, checkpoint_dir=str(folder), log=folder / "log", job_file="job.py",
        arguments=(),
    )  # fmt: skip
    server = ControlServer(storage, entry, StopRequest(), Requests())
    server.start()
    server.end(JobEnd(state="FINISHED", exit_code=0, progress=asdict(progress)))


def _is_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def _may_not_be_read(path: Path) -> None:
    path.chmod(0)


def _content(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "half": _content(lambda data: data[: len(data) // 2]),
    "empty": _content(lambda data: b""),
    "zeros": _content(lambda data: b"\0" * len(data)),
    "no text": _content(lambda data: b"\xff\xfe" + data),
    "deep": _content(lambda data: b"[" * 100_000),
    "list": _content(lambda data: b"[1]"),
    "nothing": _content(lambda data: b"{}"),
    "only a version": _content(lambda data: b'{"v": 1}'),
    "a later version": _content(lambda data: b'{"v": 99}'),
    "folder": _is_a_folder,
    "not allowed": _may_not_be_read,
    "gone": Path.unlink,
}


@contextmanager
def damaged(path: Path, damage: Callable[[Path], None]) -> Iterator[None]:
    """Damage a file for a while. Who may read everything is somebody else meanwhile, so that rights count."""
    before, mode = path.read_bytes(), path.stat().st_mode
    damage(path)
    everything = os.geteuid() == 0
    if everything:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if everything:
            os.seteuid(0)
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        path.write_bytes(before)
        path.chmod(mode)


_OTHERS: tuple[Any, ...] = (None, "x", -1, 1.5, [], {}, [None], {"x": None}, 10**30, True)


def in_values(path: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield damages of a JSON file: at each place in it a value of another kind, or none; with what says which.

    A record of the ledger is then as versions wrote it that had no checksums: with one, each of these is found by that.
    """
    try:
        whole = json.loads(path.read_bytes())
    except ValueError:
        return
    if isinstance(whole, dict):
        whole.pop("crc32", None)
    for place in _places(whole, ()):
        for other in ("gone", *_OTHERS):
            yield f"{'.'.join(map(str, place))}={other!r}", _with(whole, place, other)


def _places(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from _places(inner, (*place, key))


def _with(whole: Any, place: tuple[str | int, ...], other: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        made = json.loads(json.dumps(whole))
        inner = made
        for key in place[:-1]:
            inner = inner[key]
        if other == "gone":
            del inner[place[-1]]
        else:
            inner[place[-1]] = other
        path.write_text(json.dumps(made))

    return write
