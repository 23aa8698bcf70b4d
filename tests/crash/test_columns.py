"""A job of all operators that keep state by columns dies again and again, and gives what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import random
import runpy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from poundlock import Job
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.job_process import JobProcess
from support.finished import lines_by_sink
from support.lives import Lives, failpoint_setting, files_found, folders_of, slow_commits
from support.torture import tortured
from support.undisturbed import difference, undisturbed

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/columns.py"
STEPS = (
    "sessions", "sliding", "cumulative", "again", "own", "counted", "slid", "emptied", "first", "last", "highest",
    "added", "greatest", "near", "paired", "groups", "framed", "spanned", "running", "placed", "versioned",
    "ranked", "awaited", "unpaired", "regrouped", "newest",
)  # fmt: skip
SINKS = (*STEPS, "sessions-late", "sliding-late", "near-late")
BASE = 1_545_184_220_000
AHEAD = 4


class Input:
    """Files that go on by some seconds each; some rows are late, a few of them beyond what is allowed.

    Args:
        folder: made here.
        seed: the same one gives the same files.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._made = folder, random.Random(seed)
        self.files = 0
        self.values: dict[str, list[int]] = {}
        folder.mkdir()

    def write(self, files: int = 1, rows: int = 120) -> None:
        """Write some files more, each whole at once."""
        for number in range(self.files, self.files + files):
            lines = "".join(f"{json.dumps(self._row(1_000 * number + i, number))}\n" for i in range(rows))
            hidden = self._folder / f".{number:05d}.jsonl"
            hidden.write_text(lines)
            hidden.rename(self._folder / f"{number:05d}.jsonl")
        self.files += files

    def _row(self, serial: int, number: int) -> dict[str, object]:
        made = self._made
        behind = made.choice([0, 0, 0, 1_000, 4_000, 9_000, 14_000, 40_000])
        key, value = f"k{made.randrange(17)}", made.randrange(1, 30)
        self.values.setdefault(key, []).append(value)
        return {"k": key, "id": serial, "at": BASE + 5_000 * number + made.randrange(5_000) - behind, "v": value}

    def assert_counted(self, seen: Mapping[str, Counter[str]]) -> None:
        """Assert of what an undisturbed run gave that no row is missing, by the steps of which that is plain to see."""
        found = {name: [json.loads(line) for line in lines.elements()] for name, lines in seen.items()}
        rows = {key: len(values) for key, values in self.values.items()}
        assert Counter(row["k"] for row in found["added"]) == rows
        for key, values in self.values.items():
            assert max(row["v"] for row in found["added"] if row["k"] == key) == sum(values)
        assert sum(row["n"] for row in found["sessions"]) + len(found["sessions-late"]) == sum(rows.values())
        assert Counter(row["k"] for row in found["counted"]) == {key: n // 7 for key, n in rows.items()}
        for name in ("sessions", "sliding", "cumulative"):
            for row in found[name]:
                assert row["ids"] == sorted(row["ids"]), "an id is greater than those that were read before"
                assert [row["head"], row["tail"], row["n"]] == [row["ids"][0], row["ids"][-1], len(row["ids"])]
        assert Counter(row["k"] for row in found["slid"]) == {key: n // 6 for key, n in rows.items()}
        assert {row["n"] for row in found["slid"]} == {6, 9}
        totals = {(row["k"], row["total"]) for row in found["groups"] if row["row_kind"] in ("+I", "+U")}
        assert {(key, sum(values)) for key, values in self.values.items()} <= totals
        changes = Counter(row["row_kind"] for row in found["newest"])
        assert changes["-D"] > 0, "a row that was the newest is so no more"
        assert changes["+I"] - changes["-D"] == sum(rows.values()), "each row once"
        places = Counter(row["row_kind"] for row in found["placed"])
        assert places["+I"] == sum(rows.values()), "each row is numbered once"
        assert places["-U"] == places["+U"] > 0, "and moves others"
        assert len(found["versioned"]) == sum(rows.values()), "late rows are joined too"
        assert all(row["version"] is not None for row in found["versioned"])
        for name in ("framed", "spanned", "running"):
            assert 0 < len(found[name]) <= sum(rows.values())
        largest = sorted(((-sum(values), key) for key, values in self.values.items()))[1:5]
        assert final_table(found["ranked"]) == Counter((key, -total, n) for n, (total, key) in enumerate(largest, 2))
        awaited = {row["id"] for row in found["awaited"] if row.get("id") is not None}
        assert len(awaited) == sum(rows.values()), "each row, late or not, comes out"
        for row in found["unpaired"]:
            assert row.get("id") is None or row.get("other") is None or (row["v"] % 5 == row["value"] % 3)
        for name in ("sliding", "again", "emptied"):  # windows with an allowed lateness
            fired = Counter((row["k"], row["window_start"]) for row in found[name])
            assert max(fired.values()) > 1, "a late row makes its window fire again"


def final_table(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Return the places that changes of them come to, in whatever order those stand."""
    table: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        table[row["k"], row["total"], row["place"]] += 1 if row["row_kind"] in ("+I", "+U") else -1
    assert min(table.values()) >= 0
    return +table


class Calm(NamedTuple):
    """An input, and what an undisturbed run gives of it."""

    given: Path
    seed: int
    wanted: Mapping[str, Counter[str]]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Ten files, for the tests that kill the job a few times."""
    folder, seed = tmp_path_factory.mktemp("calm"), random.randrange(1 << 30)
    given = Input(folder / "in", seed)
    given.write(10)
    wanted = undisturbed(JOB, folder / "undisturbed", folder / "in", SINKS)
    given.assert_counted(wanted)
    return Calm(folder / "in", seed, wanted)


def test_every_step_goes_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in folders_of(tmp_path, tmp_path / "in").items():
        monkeypatch.setenv(name, value)
    job = runpy.run_path(str(JOB))["job"]
    assert isinstance(job, Job)
    lines = [line.strip() for line in job.explain().splitlines()]
    assert [line.partition(":")[0] for line in lines if ", by columns <- " in line] == list(STEPS)
    assert not [line for line in lines if "record by record" in line]


# Before the decision a process dies that has written half of its state, or all of it; behind it one that has the next begun.
SOME = (Failpoint.STATE_WRITING, Failpoint.SINK_PREPARED, Failpoint.DECISION_RECORDED, Failpoint.CHECKPOINT_DONE)


@pytest.mark.parametrize(
    "points", [pytest.param(SOME, id="some"), pytest.param(tuple(Failpoint), id="every", marks=pytest.mark.torture)]
)
def test_killed_at_steps_of_a_checkpoint(tmp_path: Path, calm: Calm, points: Sequence[Failpoint]) -> None:
    print(f"seed {calm.seed}")
    deaths = failpoint_setting("kill", tmp_path / "hit", times=2, points=points)
    with Lives(JOB, environment=folders_of(tmp_path, calm.given), folder=tmp_path) as lives:
        lives.run(POUNDLOCK_FAILPOINTS=deaths)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == {point.value for point in points}
    assert not difference(lines_by_sink(tmp_path / "out"), calm.wanted), f"seed {calm.seed}"


@pytest.mark.torture
def test_killed_at_random(tmp_path: Path) -> None:
    killed_at_random(tmp_path, {}, lambda life: {})


# --- while a checkpoint is committed and the next one runs -----------------------------------------------------------


def two_in_flight(folder: Path) -> int | None:
    """Return the number of the newest checkpoint if it is decided and not committed, and tasks of the next have written state and output."""
    ledger = Ledger(LocalStorage(str(folder / "checkpoints")))
    newest = ledger.newest()
    if newest is None or newest.checkpoint < 1 or ledger.is_committed(newest.number):
        return None
    after = newest.checkpoint + 1
    state = any((folder / "checkpoints").rglob(f"{after:012d}-*-g*"))
    return newest.checkpoint if state and any((folder / "out").rglob(f".*-{after}.inprogress.*")) else None


def test_killed_with_two_checkpoints_in_flight(tmp_path: Path, calm: Calm) -> None:
    """The driver dies while it commits one checkpoint, and the tasks of the next have written their state on top of that one's."""
    print(f"seed {calm.seed}")
    before: int | None = None
    with Lives(JOB, environment=folders_of(tmp_path, calm.given), folder=tmp_path) as lives:
        for number in range(2):
            # However many commits a checkpoint has (one for each sink and task that gave rows), some among them are slow.
            slow = slow_commits(tmp_path / f"slow{number}", 12, count=30, step=12)
            job = lives.start(CRASH_EACH="1", POUNDLOCK_FAILPOINTS=slow)
            lives.until(lambda before=before: two_in_flight(tmp_path) not in (None, before), job)
            assert job.kill()
            before = two_in_flight(tmp_path)
            assert before is not None
        assert lives.run(CRASH_EACH="1") == [0]
    assert not difference(lines_by_sink(tmp_path / "out"), calm.wanted), f"seed {calm.seed}"


@pytest.mark.torture
def test_killed_at_random_with_slow_commits(tmp_path: Path) -> None:
    died: set[int] = set()

    def slow(life: int) -> Mapping[str, str]:
        died.update(filter(None, [two_in_flight(tmp_path)]))  # as the life before left it
        # Whatever the number of tasks, there is one among the commits of most checkpoints behind a life's first.
        return {"POUNDLOCK_FAILPOINTS": slow_commits(tmp_path / f"slow{life}", 24, count=40, step=24)}

    # A slow commit takes 10 s: a kill within them finds what the next run has written, however slow the machine is.
    killed_at_random(tmp_path, {"CRASH_EACH": "1"}, slow, spread_s=10.0)
    print(f"two checkpoints in flight at {len(died)} deaths")
    assert died


def killed_at_random(
    folder: Path, more: Mapping[str, str], of_life: Callable[[int], Mapping[str, str]], *, spread_s: float = 2.0
) -> None:
    """Kill driver, JVM and workers while files come, each life with another number of tasks; then let the job end, and hold what it gave beside an undisturbed run.

    Args:
        more: environment of every life.
        of_life: environment of a life, by its number.
        spread_s: kills that count from a checkpoint come within this behind it.
    """
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} gives the same input")
    given, ledger = Input(folder / "in", seed), Ledger(LocalStorage(str(folder / "checkpoints")))

    def produce() -> None:
        """Keep a few files ahead: each is a checkpoint, and the undisturbed run has to take them all once more."""
        newest = ledger.newest()
        if given.files < AHEAD + (0 if newest is None else newest.checkpoint):
            given.write()

    numbers, tasks = count(), random.Random(f"tasks {seed}")

    def start() -> JobProcess:
        return lives.start(CRASH_TASKS=str(tasks.randint(1, 4)), **of_life(next(numbers)))

    environment = {**folders_of(folder, folder / "in"), "CRASH_WATCH": "1", **more}
    with Lives(JOB, environment=environment, folder=folder, patience_s=1_800) as lives:
        kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "25"))
        job = tortured(start, produce, kills, spread_s=spread_s)
        job = lives.until(lambda: files_found(folder / "checkpoints", "rows") == given.files, job)
        assert lives.stop(job) == 0
        lives.run(CRASH_WATCH="0")  # reads what is left, and ends
    wanted = undisturbed(JOB, folder / "undisturbed", folder / "in", SINKS)
    given.assert_counted(wanted)
    assert not difference(lines_by_sink(folder / "out"), wanted), f"seed {seed}"
