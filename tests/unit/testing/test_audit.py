from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from poundlock.testing.audit import audit_output, day_bucket
from poundlock.testing.events import ReferenceEvents, event_time_ms


def write_out(root: Path, values: list[bytes]) -> None:
    """Write values as a correct job would: a file a day, gzip for the second, the rest as dead letters."""
    bucket = day_bucket()
    buckets: dict[str, list[bytes]] = {}
    letters: list[str] = []
    for offset, value in enumerate(values):
        place = bucket(value)
        if place is not None:
            buckets.setdefault(place, []).append(value)
            continue
        letter: dict[str, object] = {"topic": "t", "partition": 0, "offset": offset, "reason": "bad"}
        try:
            letter["value"] = value.decode()
        except UnicodeDecodeError:
            letter["value_base64"] = base64.b64encode(value).decode()
        letters.append(json.dumps(letter) + "\n")
    for number, (place, lines) in enumerate(sorted(buckets.items())):
        folder = root / "out" / place
        folder.mkdir(parents=True)
        data = b"".join(line + b"\n" for line in lines)
        if number:
            (folder / "part-0-0.gz").write_bytes(gzip.compress(data))
        else:
            (folder / "part-0-0").write_bytes(data)
    (root / "out/_dead_letters").mkdir(parents=True)
    (root / "out/_dead_letters/part-0-0").write_text("".join(letters))


@pytest.fixture
def values(tmp_path: Path) -> list[bytes]:
    made = list(ReferenceEvents(count=4000, malformed=0.05))
    write_out(tmp_path, made)
    return made


def test_a_correct_output_is_exact(tmp_path: Path, values: list[bytes]) -> None:
    result = audit_output(tmp_path / "out", tmp_path / "out/_dead_letters", values)
    bad = sum(1 for v in values if event_time_ms(v) is None)
    assert bad > 100
    assert (result.produced, result.in_files, result.dead_lettered) == (4000, 4000 - bad, bad)
    assert result.exact
    assert (result.lost, result.duplicated, result.misplaced, result.hidden, result.files) == (0, 0, 0, 0, 2)


def test_each_fault_is_counted(tmp_path: Path, values: list[bytes]) -> None:
    plain = tmp_path / "out/dt=20181219/part-0-0"
    lines = plain.read_bytes().split(b"\n")[:-1]
    # the first line lost, the second twice, the third in the bucket of the other day
    plain.write_bytes(b"".join(line + b"\n" for line in [lines[1], lines[1], *lines[3:]]))
    (tmp_path / "out/dt=20181220/part-0-1").write_bytes(lines[2] + b"\n")
    (tmp_path / "out/dt=20181220/.part-0-2.inprogress.x").write_bytes(lines[0] + b"\n")
    result = audit_output(tmp_path / "out", tmp_path / "out/_dead_letters", values)
    assert (result.lost, result.duplicated, result.misplaced, result.hidden) == (1, 1, 1, 1)
    assert not result.exact
    assert result.examples["lost"] == (lines[0].decode(),)
    assert result.examples["duplicated"] == (lines[1].decode(),)
    assert result.examples["misplaced"] == (lines[2].decode(),)


def test_a_malformed_record_in_a_bucket_and_a_good_one_in_the_dead_letters_are_misplaced(tmp_path: Path) -> None:
    good = b'{"timestamp":1545184226.432,"uuid":"u"}'
    folder, letters = tmp_path / "out/dt=19700101", tmp_path / "letters"
    folder.mkdir(parents=True)
    letters.mkdir()
    (folder / "part-0-0").write_bytes(b"not json\n")
    (letters / "part-0-0").write_text(json.dumps({"reason": "wrong", "value": good.decode()}) + "\n")
    result = audit_output(tmp_path / "out", letters, [good, b"not json"])
    assert (result.lost, result.duplicated, result.misplaced) == (0, 0, 2)


def test_a_record_that_was_never_produced_counts_as_duplicated(tmp_path: Path, values: list[bytes]) -> None:
    result = audit_output(tmp_path / "out", tmp_path / "out/_dead_letters", values[1:])
    assert (result.lost, result.duplicated) == (0, 1)


def test_empty_lines_are_records(tmp_path: Path) -> None:
    (tmp_path / "part-0-0").write_bytes(b"\n\na\r\n")
    result = audit_output(tmp_path, None, [b"", b"", b"a\r"], bucket=lambda _: ".")
    assert result.exact
    assert result.in_files == 3


def test_a_dead_letter_without_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/part-0-0").write_text('{"value":"x"}\n')
    with pytest.raises(ValueError, match="without reason"):
        audit_output(tmp_path / "out", tmp_path / "letters", [b"x"])


def test_the_zone_decides_the_bucket() -> None:
    value = b'{"timestamp":1545235200.000}'
    assert day_bucket("UTC")(value) == "dt=20181219"
    assert day_bucket("Asia/Shanghai")(value) == "dt=20181220"
