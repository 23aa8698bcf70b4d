"""What each task does first, whoever made the session that it runs in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import poundlock
from poundlock.tasks import entry

SOURCE = Path(poundlock.__file__).parent


class Nothing:
    """A stage without steps."""

    def run(self, *_: Any, **__: Any) -> tuple[None, list[Any]]:
        return None, []


def stages() -> dict[str, Callable[[], Iterator[Any]]]:
    """Return each function that begins a task, as Spark would call it."""
    import pickle

    rest: dict[str, Any] = {"stage": pickle.dumps(Nothing()), "directive": None, "report": lambda report: None}
    return {
        "run_source_tasks": lambda: entry.run_source_tasks(iter([]), **rest),
        "run_exchange_tasks": lambda: entry.run_exchange_tasks(0, iter([]), **rest),
        "run_rows_tasks": lambda: entry.run_rows_tasks(0, iter([]), **rest),
        "run_arrow_task": lambda: entry.run_arrow_task(iter([]), task=iter),
        "segment_blocks": lambda: entry.segment_blocks(iter([]), stage=1, input="in"),
        "addressed": lambda: entry.addressed(iter([]), stage=1),
    }


@pytest.mark.parametrize("name", stages())
def test_a_task_prepares_its_worker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(entry, "prepare_worker", partial(prepared.append, 1))
    assert list(stages()[name]()) == []
    assert prepared == [1]


def test_no_task_of_spark_sql_begins_otherwise() -> None:
    """Those of foreach_batch, of a SparkSource that is staged, and at both edges of a segment."""
    calls = {}
    for path in SOURCE.rglob("*.py"):
        names = [node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        if "mapInArrow" in names:
            calls[path.relative_to(SOURCE).as_posix()] = names.count("mapInArrow")
    assert calls == {"spark/frames.py": 1}
    users = {p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py") if "map_arrow(" in p.read_text()}
    assert users == {
        *("spark/frames.py", "spark/foreach_batch.py"),
        *("spark/segments.py", "spark/stream_source.py"),
    }
