"""The copy of a driver's log in its checkpoint folder: whole lines, in order, not more than is kept, and across drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.control import control_logs
from poundlock.control.control_logs import LOGS, CopiedLog, LogCopy
from poundlock.storage import LocalStorage


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_logs, "_PIECE", 100)
    monkeypatch.setattr(control_logs, "_KEPT", 4)


def line(number: int) -> bytes:
    return b"line %06d of the log\n" % number


def write(path: Path, *numbers: int) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line(number) for number in numbers))


def test_a_reader_sees_every_line_once_in_order(tmp_path: Path) -> None:
    storage, log = LocalStorage(str(tmp_path / "c")), tmp_path / "log"
    log.touch()
    copy, reader = LogCopy(log, 1), CopiedLog(storage)
    assert reader.new() == b""
    seen = b""
    for number in range(40):
        write(log, number)
        copy.bring(storage)
        if number % 3 == 0:
            seen += reader.new()
    assert seen + reader.new() == b"".join(map(line, range(40)))
    assert reader.new() == b""
    assert len(storage.names(LOGS)) <= 4


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    storage, log = LocalStorage(str(tmp_path / "c")), tmp_path / "log"
    copy, reader = LogCopy(log, 1), CopiedLog(storage)
    log.write_bytes(line(1) + b"half")
    copy.bring(storage)
    assert reader.new() == line(1)
    log.write_bytes(line(1) + b"half of it\n")
    copy.bring(storage)
    assert reader.new() == b"half of it\n"


def test_of_more_than_is_kept_the_newest_is_there(tmp_path: Path) -> None:
    storage, log = LocalStorage(str(tmp_path / "c")), tmp_path / "log"
    write(log, *range(1000))
    LogCopy(log, 1).bring(storage)
    kept = CopiedLog(storage).new()
    assert kept.endswith(line(999))
    assert len(kept) <= 4 * 100
    assert len(storage.names(LOGS)) <= 4


def test_a_line_longer_than_a_piece_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    storage, log = LocalStorage(str(tmp_path / "c")), tmp_path / "log"
    log.write_bytes(b"x" * 250 + b"\n" + line(1))
    LogCopy(log, 1).bring(storage)
    assert CopiedLog(storage).new() == b"x" * 250 + b"\n" + line(1)


def test_the_next_driver_goes_on_behind_the_one_before(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "c"))
    reader = CopiedLog(storage)
    for driver in (1, 2):
        log = tmp_path / f"log{driver}"
        write(log, driver)
        LogCopy(log, driver).bring(storage)
        assert reader.new() == line(driver)
