"""Notes of where the columns of state are described, in a folder that was copied or moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from poundlock.runtime.state_blobs import _copied
from poundlock.savepoint.state_schema import settle_schemas
from poundlock.storage import open_storage

FOLDER = "spark/state/0/_metadata/v2"


def checkpoint(folder: Path) -> Path:
    """Make a checkpoint folder with one operator, as Spark writes it: a checksum stands beside every file."""
    notes = folder / FOLDER
    notes.mkdir(parents=True)
    store = {"storeName": "default", "stateSchemaFilePaths": [f"file:{folder}/spark/state/0/_stateSchema/default/0_a"]}
    (notes / "0").write_text("v2\n" + json.dumps({"operatorInfo": {}, "stateStoreInfo": [store]}))
    (notes / ".0.crc").write_bytes(b"crc")
    return folder


def schema_paths(folder: Path) -> list[str]:
    said = json.loads((folder / FOLDER / "0").read_text().splitlines()[1])
    return [path for store in said["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]


def test_a_moved_folder_keeps_no_checksum_of_what_its_notes_said_before(tmp_path: Path) -> None:
    moved = Path(shutil.move(checkpoint(tmp_path / "old"), tmp_path / "new"))
    settle_schemas(open_storage(str(moved)))
    assert schema_paths(moved) == [f"file:{moved}/spark/state/0/_stateSchema/default/0_a"]
    assert [path.name for path in (moved / FOLDER).iterdir()] == ["0"]


def test_notes_of_the_folder_they_are_in_stay_as_they_are(tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "made")
    before = (made / FOLDER / "0").read_bytes()
    (made / FOLDER / "0").write_bytes(before.replace(b", ", b",").replace(b": ", b":"))  # as Spark writes JSON
    settle_schemas(open_storage(str(made)))
    assert sorted(path.name for path in (made / FOLDER).iterdir()) == [".0.crc", "0"]


def test_a_checkpoint_is_read_from_a_copy_without_its_checksums(tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "made")
    (made / "spark/state/0/0").mkdir()
    (made / "spark/state/0/0/1.changelog.tmp").write_bytes(b"half")
    with _copied(str(made)) as copied:
        assert [entry.path for entry in open_storage(copied).list("spark")] == [f"{FOLDER}/0"]
        assert schema_paths(Path(copied)) == [f"file:{copied}/spark/state/0/_stateSchema/default/0_a"]
    assert schema_paths(made) == [f"file:{made}/spark/state/0/_stateSchema/default/0_a"]
