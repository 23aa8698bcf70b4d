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
from poundlock.tasks.exchange.blocks import Block, Delivery
from support.source_trees import syntax_tree

SOURCE = Path(poundlock.__file__).parent


class Nothing:
    """A stage without steps."""

    def run(self, *_: Any, **__: Any) -> Iterator[Any]:
        yield from ()


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
        "one_for_each": lambda: entry.one_for_each(iter([]), senders=1),
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
        if "mapInArrow" not in path.read_text():
            continue
        names = [node.attr for node in ast.walk(syntax_tree(path)) if isinstance(node, ast.Attribute)]
        if "mapInArrow" in names:
            calls[path.relative_to(SOURCE).as_posix()] = names.count("mapInArrow")
    assert calls == {"spark/frames.py": 1}
    users = {p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py") if "map_arrow(" in p.read_text()}
    assert users == {
        *("spark/frames.py", "spark/foreach_batch.py"),
        *("spark/segments.py", "spark/stream_source.py"),
    }


@pytest.mark.parametrize(("senders", "sends"), [(0, 0), (1, 1), (3, 3), (3, 11), (2, 17), (2, 18), (2, 140)])
@pytest.mark.parametrize("size", [1, 100, 1000])
def test_what_is_sent_to_a_task_and_its_anchor_are_as_long(
    senders: int, sends: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's `zip` fails otherwise; what comes out of it is what was sent, and no two elements are pickled together."""
    monkeypatch.setattr(entry, "_TOGETHER_BYTES", 300)
    sent = [(7, Delivery((), (Block("o", 0, 7, n, (), b"", bytes(size), 1),))) for n in range(sends)]
    anchors = list(entry.one_for_each(iter([7]), senders=senders))
    spread = list(entry.apart(iter(sent), senders=senders))
    assert len(anchors) == len(spread)
    assert list(entry.unzipped(zip(anchors, spread, strict=True))) == sent
    for first in range(0, len(spread), 100):
        one, *others = spread[first : first + 100]
        assert not any(others)
        assert len(one or ()) * size <= 300 + size or first == len(spread) - 100, "what is left goes with the last"
