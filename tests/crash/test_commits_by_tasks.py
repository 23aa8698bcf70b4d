"""The tasks that verify, commit, abort and sweep very many files die at a call, or their driver does; nothing is lost, doubled or left behind."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from support.lives import Lives

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/commits_in_tasks.py"
FEW = 2  # checkpoints, of which each file of a job that leaves them pending has a segment
ROWS = 12  # of a checkpoint: two tasks write one to each of six files
KILLED = -9
VERIFY, COMMIT, ABORT, REMOVE = "verify_piece", "commit_piece", "abort_piece", "remove_piece"
REPEATS, DOES_NOT = ("--master", "local[2,4]"), ("--master", "local[2,1]")
"""Whether Spark repeats a task whose worker died; where it does not, the driver does all of it."""

SHAPES = [("moves", False), ("moves", True), ("uploads", False)]
Kill = tuple[str, int, int, str]
"""(piece, its how manieth run in a life from 0, the how manieth call from 1, "driver" or "worker")"""


class InTasks:
    """The job, and what its lives left in a folder."""

    def __init__(self, folder: Path, store: str, pending: bool, checkpoints: int) -> None:
        self.folder, self.expected = folder, Counter(f"{n:06d}" for n in range(ROWS * checkpoints))
        self.number = 0  # of the life
        environment = {
            "CRASH_OUT": str(folder / "out"),
            "CRASH_CHECKPOINTS": str(folder / "checkpoints"),
            "CRASH_STORE": store,
            "CRASH_PENDING": "1" if pending else "",
            "CRASH_COUNT": str(checkpoints),
        }
        self.lives = Lives(JOB, environment=environment, folder=folder)

    def live(self, master: tuple[str, str], *kills: Kill, fails_at: Sequence[int] = ()) -> int:
        """Live with these kills; return the exit code.

        Args:
            fails_at: which checkpoints of the life, from 1, fail once they are verified: what they wrote is aborted.
        """
        self.number += 1
        self.marks.mkdir()
        # A point that raises is not counted by those that come behind it.
        times = [number - before for before, number in enumerate(fails_at)]
        raises = ",".join(f"{Failpoint.PREPARE_VERIFIED.value}:raise@{number}" for number in times)
        marks, plan = str(self.marks), json.dumps(kills)
        return self.lives.end(
            self.lives.start(*master, CRASH_MARKS=marks, CRASH_KILLS=plan, POUNDLOCK_FAILPOINTS=raises)
        )

    @property
    def marks(self) -> Path:
        return self.folder / f"life-{self.number}"

    def calls(self, piece: str, run: int = 0) -> int:
        """Return how many calls tasks made in a run of the last life."""
        path = self.marks / f"calls-{piece}-{run}"
        return path.stat().st_size if path.exists() else 0

    def killed(self) -> set[str]:
        """Return what was killed in the last life."""
        return {path.name.removeprefix("killed-") for path in self.marks.glob("killed-*")}

    def assert_exact(self) -> None:
        """Assert that each row is in one finished file, and nothing else is there."""
        assert self.lives.left_behind() == []
        out = self.folder / "out"
        paths = [path for path in out.rglob("*") if path.is_file()]
        assert [str(path) for path in paths if path.name.startswith(".")] == []
        uploads = Path(f"{out}.uploads")
        assert not uploads.exists() or os.listdir(uploads) == []
        rows = Counter(json.loads(line)["row"] for path in paths for line in path.read_bytes().splitlines())
        assert rows == self.expected


def calls_of(root: Path, shape: tuple[str, bool]) -> dict[str, int]:
    """Return how many calls tasks make for each piece in a job that nobody kills; its second checkpoint fails."""
    root.mkdir()
    job = InTasks(root, *shape, checkpoints=FEW)
    with job.lives:
        assert job.live(REPEATS, fails_at=[2]) == 0
        job.assert_exact()
        calls = {piece: job.calls(piece) for piece in (VERIFY, COMMIT, ABORT)}
    assert min(calls.values()) >= ROWS, calls
    return {**calls, REMOVE: calls[ABORT]}


def test_workers_and_drivers_die_at_calls_of_tasks(tmp_path: Path) -> None:
    """Where tasks verify, commit, abort and sweep, in turn."""
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} kills at the same calls")
    chance = random.Random(seed)
    job = InTasks(tmp_path, *chance.choice([SHAPES[0], SHAPES[2]]), checkpoints=3)

    def kill(piece: str, victim: str, run: int = 0) -> Kill:
        return piece, run, chance.randint(1, ROWS), victim

    with job.lives:
        first = [kill(VERIFY, "worker"), kill(COMMIT, "worker"), kill(ABORT, "driver")]
        assert job.live(REPEATS, *first, fails_at=[2]) == KILLED
        assert job.killed() == {"worker-verify_piece-0", "worker-commit_piece-0", "driver-abort_piece-0"}
        assert job.live(DOES_NOT, kill(VERIFY, "worker"), kill(COMMIT, "driver")) == KILLED
        assert job.killed() == {"worker-verify_piece-0", "driver-commit_piece-0"}
        assert job.live(REPEATS, kill(VERIFY, "driver")) == KILLED
        assert job.live(DOES_NOT, kill(REMOVE, "worker"), kill(COMMIT, "worker")) == 0
        assert job.killed() == {"worker-remove_piece-0", "worker-commit_piece-0"}
        job.assert_exact()


@pytest.fixture(params=SHAPES, ids=lambda shape: f"{shape[0]}-{'pending' if shape[1] else 'each'}")
def shape(request: pytest.FixtureRequest) -> tuple[str, bool]:
    kind, pending = request.param
    return kind, pending


@pytest.mark.torture
@pytest.mark.parametrize("master", [REPEATS, DOES_NOT], ids=lambda master: master[1])
def test_workers_die_at_every_call(tmp_path: Path, shape: tuple[str, bool], master: tuple[str, str]) -> None:
    """One life, each of whose checkpoints is hit at another call; every second one fails, and is aborted under kills too."""
    calls = calls_of(tmp_path / "whole", shape)
    most = max(calls[piece] for piece in (VERIFY, COMMIT, ABORT)) if not shape[1] else calls[VERIFY]
    (tmp_path / "job").mkdir()
    job = InTasks(tmp_path / "job", *shape, checkpoints=most + 1)
    kills = [(piece, run, run % calls[piece] + 1, "worker") for piece in (COMMIT, ABORT) for run in range(most)]
    kills += [(VERIFY, run, run // 2 % calls[VERIFY] + 1, "worker") for run in range(2 * most)]
    with job.lives:
        assert job.live(master, *kills, fails_at=range(1, 2 * most, 2)) == 0
        runs = {VERIFY: 2 * most, ABORT: most, COMMIT: 1 if shape[1] else most}
        assert job.killed() == {f"worker-{piece}-{run}" for piece in runs for run in range(runs[piece])}
        job.assert_exact()


@pytest.mark.torture
def test_drivers_die_at_every_call(tmp_path: Path, shape: tuple[str, bool]) -> None:
    """At the n-th of each piece, one life after the other; a worker dies just before a sweep's driver."""
    calls = calls_of(tmp_path / "whole", shape)
    if shape[1]:
        del calls[COMMIT]  # all of it is at the end, see below
    (tmp_path / "job").mkdir()
    job = InTasks(tmp_path / "job", *shape, checkpoints=max(calls.values()) + 2)

    def dies(piece: str, n: int, *before: Kill, fails_at: Sequence[int] = ()) -> bool:
        """Live until the driver dies at a call of a piece; return whether it did, or there is no such call."""
        most = calls.get(piece, 0)
        return n > most or job.live(REPEATS, *before, (piece, 0, n, "driver"), fails_at=fails_at) == KILLED

    with job.lives:
        for n in range(1, max(calls.values()) + 1):
            assert dies(VERIFY, n), n
            assert dies(REMOVE, n, (REMOVE, 0, n - 1, "worker")), n
            assert dies(ABORT, n, fails_at=[1]), n
            assert dies(COMMIT, n), n
        assert job.live(REPEATS) == 0
        job.assert_exact()


@pytest.mark.torture
def test_drivers_die_at_every_call_of_the_commits_at_the_end(tmp_path: Path) -> None:
    """Where each file is made of several segments, which are joined and removed."""
    shape = ("moves", True)
    for n in range(1, calls_of(tmp_path / "whole", shape)[COMMIT] + 1):
        (tmp_path / str(n)).mkdir()
        job = InTasks(tmp_path / str(n), *shape, checkpoints=FEW)
        with job.lives:
            assert job.live(REPEATS, (COMMIT, 0, n // 2, "worker"), (COMMIT, 0, n, "driver")) == KILLED
            assert job.live(REPEATS) == 0
            job.assert_exact()
