"""What a driver that stands by sees: who lives, who is gone, and that it never takes for dead whom only it has not looked at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from poundlock.checkpoint.epoch import DriverLock, Epoch, EpochTaken
from poundlock.checkpoint.identity import open_identity
from poundlock.control.control_files import put_entry
from poundlock.control.registry import registered
from poundlock.driver.progress import StopRequest, Tracker
from poundlock.driver.standby.lease import FOLDER, LeaseKeeper, read_lease
from poundlock.driver.standby.liveness import Liveness
from poundlock.driver.standby.standby import Standby, ended_elsewhere
from poundlock.driver.standby.watch import ActiveDriver, Alive, JobEnded, Sight, Vacant
from poundlock.errors import DefinitionError, PoundlockError, TerminalError
from poundlock.storage import LocalStorage, Storage
from poundlock.values import ManualClock

CLOCK = ManualClock(1_545_184_226_432)
LASTS = timedelta(seconds=6)


class Seconds:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "checkpoint"))


def watcher(storage: Storage, seconds: Seconds, holder: str | None = "process 1") -> ActiveDriver:
    return ActiveDriver(storage=storage, liveness=lambda: Liveness(now=seconds), holder=lambda _: holder)


def keeper(storage: Storage, epoch: Epoch, *, hands_over: bool = False) -> LeaseKeeper:
    return LeaseKeeper(storage=storage, epoch=epoch, lasts=LASTS, hands_over=lambda: hands_over)


def looks(watcher: ActiveDriver, seconds: Seconds, count: int, every: float = 1.0) -> list[Sight]:
    sights = []
    for _ in range(count):
        seconds.now += every
        sights.append(watcher.look())
    return sights


# --- whether something changes ------------------------------------------------------------------------------------------


def test_what_changes_lives_and_what_does_not_has_expired(seconds: Seconds) -> None:
    liveness = Liveness(now=seconds)
    expired = []
    for beat in (1, 1, 2, 2, 2, 2, 2):
        seconds.now += 2
        expired.append(liveness.has_expired(beat, 6, looked=seconds.now))
    assert expired == [False] * 5 + [True] * 2


def test_time_in_which_nobody_looked_does_not_count(seconds: Seconds) -> None:
    """The one who looks was stopped, or the machine slept: the other may have changed since, and has its time again."""
    liveness = Liveness(now=seconds)
    for asleep in (0.0, 3600.0, 0.0):
        seconds.now += asleep
        for _ in range(5):
            seconds.now += 1
            assert not liveness.has_expired(1, 6, looked=seconds.now)
        seconds.now += 1000
    seconds.now += 1000
    assert not liveness.has_expired(1, 6, looked=seconds.now)


def test_looks_that_failed_do_not_count(seconds: Seconds) -> None:
    liveness = Liveness(now=seconds)
    for _ in range(20):
        seconds.now += 2
        assert not liveness.has_expired(1, 6, looked=seconds.now)
        liveness.unseen()


# --- the active driver --------------------------------------------------------------------------------------------------


def test_where_nobody_ever_ran_anybody_may(storage: LocalStorage, seconds: Seconds) -> None:
    assert watcher(storage, seconds).look() == Vacant(succeeds=0)


def test_a_lease_that_is_renewed_is_kept_and_one_that_is_not_expires(storage: LocalStorage, seconds: Seconds) -> None:
    """Also where the process is there and holds its lock: it is stopped, or hangs."""
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease, watch = keeper(storage, epoch), watcher(storage, seconds)
        for _ in range(20):
            lease.renew()
            assert looks(watch, seconds, 2) == [Alive(life=epoch.life)] * 2
        sights = looks(watch, seconds, 7)
    assert sights[:4] == [Alive(life=epoch.life)] * 4
    assert sights[-1] == Vacant(succeeds=1, why="its lease has not changed for 6 s")


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(storage: LocalStorage, seconds: Seconds) -> None:
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease = keeper(storage, epoch)
        lease._lease = replace(lease._lease, process_start="long ago")
        lease.renew()
    assert watcher(storage, seconds, holder="a container that this one cannot see").look() == Alive(life=epoch.life)
    assert watcher(storage, seconds, holder=None).look() == Vacant(succeeds=1, why="its process is gone")
    elsewhere = replace(lease._lease, host="another")
    lease._lease = elsewhere
    lease.renew()
    assert watcher(storage, seconds, holder=None).look() == Alive(life=epoch.life), "nobody sees processes there"


def test_between_its_claim_and_its_first_lease_a_driver_has_as_long_as_the_lease_lasts(
    storage: LocalStorage, seconds: Seconds
) -> None:
    """Of two that start at once the one without the lock may be first: that the lock is free says nothing of it. One that has it may be stopped."""
    with Epoch.claim(storage, clock=CLOCK, succeeds=0, lease_ms=6000) as epoch:
        for holder in (None, "process 1"):
            sights = looks(watcher(storage, seconds, holder=holder), seconds, 8)
            assert sights[:6] == [Alive(life=epoch.life)] * 6
            assert sights[-1] == Vacant(succeeds=1, why="it has written nothing for 6 s")
        storage.create_exclusive(f"{FOLDER}/00000001.json", b'{"v": 1, "epoch"')
        assert looks(watcher(storage, seconds, holder="process 1"), seconds, 8)[-1] == sights[-1], (
            "a damaged one is none"
        )


def test_a_driver_that_died_before_its_first_lease_is_not_waited_for(storage: LocalStorage, seconds: Seconds) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with Epoch.claim(storage, clock=CLOCK, lease_ms=6000) as epoch:
        life = json.loads(storage.read("epochs/00000001.json"))
        storage.replace("epochs/00000001.json", json.dumps({**life, "pid": gone.pid}).encode())
        assert isinstance(watcher(storage, seconds).look(), Alive), "a container that this one cannot see"
        assert watcher(storage, seconds, holder=None).look() == Vacant(succeeds=1, why="its process is gone")
        storage.replace("epochs/00000001.json", json.dumps({**life, "pid": gone.pid, "host": "another"}).encode())
        assert isinstance(watcher(storage, seconds, holder=None).look(), Alive), "nobody sees processes there"
        assert epoch.life.lease_ms == 6000


def test_a_third_driver_that_was_faster_is_waited_for(storage: LocalStorage, seconds: Seconds) -> None:
    with Epoch.claim(storage, clock=CLOCK) as first:
        lease, watch = keeper(storage, first), watcher(storage, seconds)
        lease.renew()
        looks(watch, seconds, 5)
    with Epoch.claim(storage, clock=CLOCK, succeeds=1) as second:
        keeper(storage, second).renew()
        assert looks(watch, seconds, 5)[-1] == Alive(life=second.life)
        assert looks(watch, seconds, 7)[-1] == Vacant(succeeds=2, why="its lease has not changed for 6 s")


@pytest.mark.parametrize("waited", [False, True])
def test_a_job_that_ended_is_over_for_who_waited_and_is_started_by_who_comes(
    storage: LocalStorage, seconds: Seconds, waited: bool
) -> None:
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease, watch = keeper(storage, epoch), watcher(storage, seconds)
        lease.renew()
        if waited:
            watch.look()
        lease.end("FAILED", PoundlockError("it broke", next="mend it"))
        sight = watch.look()
    if waited:
        assert sight == JobEnded(life=epoch.life, state="FAILED", failure=("it broke", "mend it"))
        with pytest.raises(TerminalError, match=f"failed in process {os.getpid()} on {socket.gethostname()}: it broke"):
            ended_elsewhere(sight, Tracker(None))
    else:
        assert sight == Vacant(succeeds=1, why="the job had ended (FAILED)")


@pytest.mark.parametrize(("state", "hands_over"), [("FINISHED", True), (None, False)])
def test_a_driver_that_leaves_is_succeeded_at_once(
    storage: LocalStorage, seconds: Seconds, state: str | None, hands_over: bool
) -> None:
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease, watch = keeper(storage, epoch, hands_over=hands_over), watcher(storage, seconds)
        lease.renew()
        watch.look()
        lease.end(state)  # type: ignore[arg-type]
        assert watch.look() == Vacant(succeeds=1, why="it has left the job to others")


def test_a_driver_without_a_lease_is_judged_by_its_lock_and_by_what_it_writes(
    storage: LocalStorage, seconds: Seconds
) -> None:
    open_identity(storage, name="job", clock=CLOCK)
    entry = registered(job_id="a" * 32, name="job", checkpoint_dir="c", log=Path("l"), job_file="j.py", arguments=())
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        assert looks(watcher(storage, seconds), seconds, 50) == [Alive(life=epoch.life)] * 50
        put_entry(storage, entry)
        ending = watcher(storage, seconds, holder=None)
        assert ending.look() == Alive(life=epoch.life), "its process is there: it may be about to write how it ended"
        put_entry(storage, replace(entry, state="FINISHED", ended_ms=1))
        assert ending.look() == JobEnded(life=epoch.life, state="FINISHED")
        put_entry(storage, replace(entry, process_start="long ago"))
        assert watcher(storage, seconds, holder=None).look() == Vacant(succeeds=1, why="its process is gone")
        put_entry(storage, replace(entry, host="another"))
        assert isinstance(watcher(storage, seconds, holder=None).look(), Vacant), "an entry of somebody else's"


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"\0" * 80, b'{"v": 1, "epoch": 1, "host"', b"[1]", b'{"v": "1"}', b'{"v": 1}', b"[" * 100_000, b"\xff"],
    ids=["empty", "zeros", "half", "list", "text version", "nothing", "deep", "no text"],
)
def test_a_damaged_lease_is_none_and_stops_nobody_who_stands_by(
    rubbish: bytes, storage: LocalStorage, seconds: Seconds
) -> None:
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        storage.create_exclusive(f"{FOLDER}/00000001.json", rubbish)
        assert looks(watcher(storage, seconds), seconds, 50) == [Alive(life=epoch.life)] * 50
        assert watcher(storage, seconds, holder=None).look() == Vacant(succeeds=1, why="its process is gone")
        keeper(storage, epoch).renew()  # a driver that lives writes over it
        assert looks(watcher(storage, seconds), seconds, 2) == [Alive(life=epoch.life)] * 2


def test_a_lease_of_another_version_is_named(storage: LocalStorage, seconds: Seconds) -> None:
    with Epoch.claim(storage, clock=CLOCK):
        storage.create_exclusive(f"{FOLDER}/00000001.json", b'{"v": 2}')
        with pytest.raises(TerminalError, match=r"leases/00000001\.json cannot be read: format 2 is not known"):
            watcher(storage, seconds).look()


# --- the keeper ---------------------------------------------------------------------------------------------------------


def test_a_driver_that_was_succeeded_notices_and_takes_no_lease_back(storage: LocalStorage) -> None:
    with Epoch.claim(storage, clock=CLOCK) as old:
        stopped = keeper(storage, old)
        stopped.start()
        with Epoch.claim(storage, clock=CLOCK, succeeds=1) as new:
            current = keeper(storage, new)
            current.start()
            assert read_lease(storage, 1) is None, "leases of earlier lives are removed"
            assert not stopped.renew()
            with pytest.raises(TerminalError, match="epoch 1 is over"):
                stopped.check()
            stopped.end("FINISHED")
            assert read_lease(storage, 1) is None
            current.check()
            assert current.renew()
            current.close()


def test_a_lock_that_a_stopped_process_holds_is_taken_when_that_is_gone(storage: LocalStorage) -> None:
    old = Epoch.claim(storage, clock=CLOCK)
    with pytest.raises(DefinitionError, match="two drivers"):
        Epoch.claim(storage, clock=CLOCK)
    with Epoch.claim(storage, clock=CLOCK, succeeds=1) as new:
        new.take_lock(clock=CLOCK)
        old.release()
        assert DriverLock.holder(storage) is None
        assert keeper(storage, new).renew()
        assert DriverLock.holder(storage) is not None
    assert DriverLock.holder(storage) is None


def test_of_two_that_succeed_the_same_life_one_is_refused(storage: LocalStorage) -> None:
    Epoch.claim(storage, clock=CLOCK).release()
    with Epoch.claim(storage, clock=CLOCK, succeeds=1) as first:
        assert first.number == 2
        with pytest.raises(EpochTaken, match="another driver began epoch 2"):
            Epoch.claim(storage, clock=CLOCK, succeeds=1)
    assert sorted(storage.names("epochs")) == ["00000001.json", "00000002.json"]


def test_nothing_is_written_where_the_folder_is_gone(storage: LocalStorage, tmp_path: Path) -> None:
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease = keeper(storage, epoch)
        lease.start()
        (tmp_path / "checkpoint").rename(tmp_path / "elsewhere")
        lease.end("FINISHED")
    assert not (tmp_path / "checkpoint").exists()


# --- the wait -----------------------------------------------------------------------------------------------------------


class Waiting:
    """A wait whose Spark is a list of times that it was warmed."""

    def __init__(self, storage: Storage) -> None:
        self.stop, self.lines, self.waits, self.warmed = StopRequest(), list[str](), list[str](), 0
        self.standby = Standby(
            storage=storage,
            active=ActiveDriver(storage=storage),
            stop=self.stop,
            lasts=LASTS,
            warm=self._warm,
            say=self.lines.append,
            on_waiting=lambda identity: self.waits.append(identity.job_id),
        )

    def _warm(self) -> None:
        self.warmed += 1
        self.on_warm()

    def on_warm(self) -> None: ...


def test_it_lists_itself_warms_spark_and_goes_on_when_the_active_one_leaves(storage: LocalStorage) -> None:
    identity = open_identity(storage, name="job", clock=CLOCK)
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease = keeper(storage, epoch)
        lease.start()
        waiting = Waiting(storage)
        waiting.on_warm = lambda: lease.end(None)  # type: ignore[method-assign]
        assert isinstance(waiting.standby.wait(), Vacant)
    assert (waiting.waits, waiting.warmed) == ([identity.job_id], 1)
    assert waiting.lines[0].startswith(f"Standing by: process {os.getpid()} on ")
    assert waiting.lines[1] == "Spark runs here, and waits for the job"
    assert waiting.lines[2].endswith("it has left the job to others")


def test_it_ends_when_it_is_asked_to(storage: LocalStorage) -> None:
    open_identity(storage, name="job", clock=CLOCK)
    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease = keeper(storage, epoch)
        lease.start()
        waiting = Waiting(storage)
        waiting.on_warm = waiting.stop.stop  # type: ignore[method-assign]
        assert waiting.standby.wait() is None
        lease.close()
    assert ended_elsewhere(None, Tracker(None)).state == "CANCELED"


def test_a_standby_on_which_spark_does_not_start_says_so_at_once(storage: LocalStorage) -> None:
    open_identity(storage, name="job", clock=CLOCK)

    def fail() -> None:
        raise DefinitionError("there is no Java")

    with Epoch.claim(storage, clock=CLOCK) as epoch:
        lease = keeper(storage, epoch)
        lease.start()
        waiting = Waiting(storage)
        waiting.on_warm = fail  # type: ignore[method-assign]
        with pytest.raises(DefinitionError, match="no Java"):
            waiting.standby.wait()
        lease.close()


def test_a_store_that_is_away_makes_nobody_dead(storage: LocalStorage, seconds: Seconds) -> None:
    class Away(LocalStorage):
        def read(self, path: str) -> bytes:
            raise OSError("away")

    with Epoch.claim(storage, clock=CLOCK) as epoch:
        keeper(storage, epoch).renew()
        away = Waiting(Away(storage.root))
        away.standby.say = lambda line: (away.lines.append(line), away.stop.stop())[0]
        assert away.standby.wait() is None
    assert "nobody is taken for dead" in away.lines[0]
