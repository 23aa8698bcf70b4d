"""What the cases of a cluster make of a run, and that they take nothing for right that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import scaled
from benchmarks.cluster_client import prove
from benchmarks.data import WrongOutput


def line(parallelism: int | None, lag: int | None = 0, restarts: int = 0) -> dict[str, Any]:
    return {"parallelism": parallelism, "lag": lag, "restarts": restarts}


def test_the_parallelism_of_a_run() -> None:
    series = [line(None, None), line(2), line(2, 900), line(6, 4000), line(6, 10), line(3, None)]
    assert scaled(series, 1) == {
        "tasks at first": 2, "most tasks / at first": 3, "tasks in the end / at first": 1.5, "changes": 2,
        "longest lag, records": 4000,
    }  # fmt: skip


@pytest.mark.parametrize(("restarts", "lives"), [(1, 1), (0, 2)])
def test_a_job_that_was_started_again_has_no_figure(restarts: int, lives: int) -> None:
    with pytest.raises(WrongOutput, match="started again"):
        scaled([line(2, restarts=restarts)], lives)


def written(folder: Path, *rows: tuple[int, int]) -> Path:
    folder.mkdir()
    (folder / "part-0").write_text("".join(json.dumps({"k": k, "n": n, "total": n}) + "\n" for k, n in rows))
    return folder


def test_rows_by_key(tmp_path: Path) -> None:
    given = {"0": 2, "1": 0, "2": 1}
    prove(written(tmp_path / "right", (2, 1), (0, 2), (0, 1)), given)
    for name, rows in {
        "lost": ((0, 1), (0, 2)),
        "twice": ((0, 1), (0, 2), (2, 1), (2, 1)),
        "numbered": ((0, 1), (0, 3), (2, 1)),
        "other": ((0, 1), (0, 2), (1, 1)),
    }.items():
        with pytest.raises(WrongOutput):
            prove(written(tmp_path / name, *rows), given)
