"""Where a checkpoint or savepoint may be: a store that is proven for files alone is refused by name, wherever one is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock import DefinitionError, FileSink, FileSource, Job, foreach_batch
from poundlock.cli.job_lookup import savepoint_folder
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.savepoints.checkpoint_as_savepoint import cut
from poundlock.driver.savepoints.restore import Beginning
from poundlock.storage import LocalStorage, open_checkpoint, open_storage

STORES = ["gs://bucket/x", "az://container/x", "abfss://c@account.dfs.core.windows.net/x", "GS://bucket/x"]
COORDINATOR: Any = SimpleNamespace(newest=SimpleNamespace(checkpoint=0), is_produced_again=lambda number: False)


@pytest.fixture(autouse=True)
def _with_its_client() -> None:
    pytest.importorskip("obstore")


@pytest.mark.parametrize("path", STORES)
def test_a_store_for_files_alone_is_no_place_for_a_checkpoint(path: str) -> None:
    assert open_storage(path).root
    with pytest.raises(
        DefinitionError, match=r"a savepoint cannot be there: .*\nNext: keep the savepoint on"
    ) as caught:
        open_checkpoint(path, "savepoint")
    assert path in str(caught.value)


def test_other_places_are_taken(tmp_path: Path) -> None:
    assert open_checkpoint(str(tmp_path)).root == str(tmp_path)
    assert open_checkpoint(f"file://{tmp_path}").root == str(tmp_path)
    assert open_checkpoint("s3://bucket/x").root == "s3://bucket/x"


def job(folder: Path, **options: Any) -> Job:
    (folder / "in").mkdir()
    (folder / "in" / "a").write_text("x\n")
    job = Job("a", **options)
    job.from_source(FileSource(str(folder / "in")), name="in").sink_to(
        FileSink(str(folder / "out"), row="value"), name="out"
    )
    return job


@pytest.mark.parametrize(
    "name_it",
    [
        lambda folder: run(job(folder, checkpoint_dir=STORES[0])),
        lambda folder: run(job(folder), settings=load_settings(checkpoint_dir=STORES[0])),
        lambda folder: run(job(folder, checkpoint_dir=str(folder / "checkpoint")), beginning=Beginning(path=STORES[0])),
        lambda folder: savepoint_folder(STORES[0]),
        lambda folder: cut(None, LocalStorage(str(folder)), COORDINATOR, None, STORES[0], clock=None),  # type: ignore[arg-type]
        lambda folder: foreach_batch(FileSink(str(folder / "out"), row="value"), checkpoint_dir=STORES[0]),
    ],
    ids=["job", "setting", "savepoint to start from", "commands", "savepoint taken by the driver", "foreach_batch"],
)
def test_it_is_refused_wherever_it_is_named(name_it: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot be there"):
        name_it(tmp_path)
    assert not (tmp_path / "out").exists()
