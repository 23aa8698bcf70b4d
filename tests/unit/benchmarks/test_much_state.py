"""State that is written in bulk is what tasks would have written: every key is found in its group, and the proofs refuse what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks import much_state, skew
from benchmarks.data import WrongOutput
from benchmarks.jobs.much_state import Keys, expected, texts
from benchmarks.jobs.much_state import _written as written
from benchmarks.jobs.skew import Uneven
from poundlock.formats.chunk import Batch
from poundlock.state.hashing import groups_of, hashes_of
from poundlock.state.inspect import StateReader
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, TableMeta
from poundlock.state.runs.files import RunFiles
from poundlock.storage.local import LocalStorage

KEYS, GROUPS = 3_000, 16


def test_every_key_is_found_in_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.jobs.much_state._AT_ONCE", 500)  # so that groups are sorted in several turns
    storage = LocalStorage(str(tmp_path))
    meta = OperatorMeta(number=4, tables={"state:held": TableMeta(kind="value")})
    known = Manifest(max_parallelism=GROUPS, operators={"seen": meta})
    files = tuple(written(KEYS, storage, "job", 3, known))
    assert sum(file.rows for file in files) == KEYS
    assert [path for path in tmp_path.iterdir() if path.name != "state"] == []
    fragments = tuple(Fragment(file.first, file.stop, (file.id,)) for file in files)
    reader = StateReader(msgspec.structs.replace(known, files=files, fragments=fragments), RunFiles(storage))
    for number in (0, 1, 77, KEYS - 1):
        (entry,) = reader.entries_of("seen", f"{number:010d}")
        assert (entry.value[:8], len(entry.value)) == ((1).to_bytes(8, "big"), 168)
    assert list(reader.entries_of("seen", f"{KEYS:010d}")) == []
    assert sorted(entry.key for entry in reader.entries("seen")) == [f"{number:010d}" for number in range(KEYS)]
    of = {file.first: file.rows for file in files}
    groups = groups_of(hashes_of([f"{number:010d}" for number in range(KEYS)]), GROUPS)
    assert of == {group: int((groups == group).sum()) for group in range(GROUPS)}


def test_keys_are_far_apart_and_all_come_round() -> None:
    keys = Keys(1_000)
    assert texts(np.array([0, 12, 9_999_999_999])).to_pylist() == ["0000000000", "0000000012", "9999999999"]
    assert keys.numbers(0, 1_000).tolist() == list(range(1_000))
    assert sorted(keys.numbers(1_000, 2_000).tolist()) == list(range(1_000))
    assert expected(100_000, 5) == 5_000 * 2
    assert expected(2_000, 5) == 2_000 * (2 + 3) + 1_000 * 4


def test_a_wrong_sum_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text(json.dumps({"n": 2}) + "\n")
    with pytest.raises(WrongOutput, match="instead of 2000"):
        much_state.prove(tmp_path, 10_000, 1)
    assert skew.sums(tmp_path) == (2, 1)


def test_a_hot_key_has_half_of_the_rows() -> None:
    made = Uneven(50, hot=True).make(0, 1_000)
    assert isinstance(made, Batch)
    keys = made.batch.column("key").to_pylist()
    assert 500 <= keys.count("0000000000") < 520
    assert made.batch.schema.equals(Uneven(50).schema())
