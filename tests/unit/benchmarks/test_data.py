"""The rows and the check on what came out: it must fail for every way a sink can be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.data import LINE_BYTES, Input, WrongOutput, check, files


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return files(tmp_path_factory.mktemp("data"), 3_000, copies=2)


def write(folder: Path, given: Input) -> dict[str, list[bytes]]:
    lines: dict[str, list[bytes]] = {}
    for file in given.folder.iterdir():
        for line in file.read_bytes().splitlines(keepends=True):
            day = "20181219" if json.loads(line)["timestamp"] < 1545264000 else "20181220"
            lines.setdefault(f"dt={day}", []).append(line)
    for bucket, rows in lines.items():
        (folder / bucket).mkdir(parents=True)
        (folder / bucket / "part-0-0").write_bytes(b"".join(reversed(rows)))
    return lines


def test_rows_are_the_reference_jobs_events(given: Input) -> None:
    lines = sorted(given.folder.iterdir())[0].read_bytes().splitlines(keepends=True)
    assert {len(line) for line in lines} == {LINE_BYTES}
    assert json.loads(lines[0])["timestamp"] == 1545184226.432
    assert json.loads(lines[0]).keys() == {"timestamp", "event", "uuid"}
    assert given.rows == sum(given.buckets.values()) == 6_000


def test_rows_are_the_same_every_time(given: Input, tmp_path: Path) -> None:
    again = files(tmp_path, 3_000, copies=2)
    assert (again.fingerprint, again.uuids, again.buckets) == (given.fingerprint, given.uuids, given.buckets)


def test_all_rows_in_any_order_pass(given: Input, tmp_path: Path) -> None:
    write(tmp_path, given)
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text("v1")
    check(tmp_path, given)
    check(tmp_path, given, rewritten=True)


def test_rewritten_rows_pass_by_uuid_and_a_lost_one_is_found(given: Input, tmp_path: Path) -> None:
    lines = write(tmp_path, given)["dt=20181219"]
    rewritten = [json.dumps({"dt": 1, **json.loads(line)}, separators=(",", ":")).encode() + b"\n" for line in lines]
    part = tmp_path / "dt=20181219" / "part-0-0"
    part.write_bytes(b"".join(rewritten))
    check(tmp_path, given, rewritten=True)
    part.write_bytes(b"".join([rewritten[1], *rewritten[1:]]))
    with pytest.raises(WrongOutput):
        check(tmp_path, given, rewritten=True)


@pytest.mark.parametrize(
    "fault", ["lost", "twice", "changed", "lost one and another twice", "hidden", "bucket", "empty"]
)
def test_every_fault_is_found(given: Input, tmp_path: Path, fault: str) -> None:
    lines = write(tmp_path, given)
    rows = lines["dt=20181219"]
    part = tmp_path / "dt=20181219" / "part-0-0"
    if fault == "lost":
        part.write_bytes(b"".join(rows[1:]))
    elif fault == "twice":
        part.write_bytes(b"".join([*rows, rows[7]]))
    elif fault == "changed":
        part.write_bytes(b"".join([rows[0].replace(b"4", b"5", 1), *rows[1:]]))
    elif fault == "lost one and another twice":
        part.write_bytes(b"".join([rows[1], *rows[1:]]))
    elif fault == "hidden":
        (part.parent / ".part-0-1.inprogress.x").write_bytes(rows[0])
    elif fault == "bucket":
        (tmp_path / "dt=20181220").mkdir(exist_ok=True)
        part.rename(tmp_path / "dt=20181220" / "part-0-1")
    else:
        shutil.rmtree(tmp_path / "dt=20181219")
    with pytest.raises(WrongOutput):
        check(tmp_path, given)
