"""What a Python worker of Spark's loads and keeps: little, and out of the way of its collector."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest

from poundlock.tasks.report import AddedReports, Reporter
from poundlock.tasks.worker import utf8_errors

FROZEN = """
import gc
from poundlock.tasks.worker import prepare_worker

kept, counts = [], []
for _ in range(6):
    prepare_worker()
    counts.append(gc.get_freeze_count())
    kept.append([[] for _ in range(1000)])
assert all(b - a > 900 for a, b in zip(counts[:3], counts[1:4])), counts  # what the first tasks loaded
assert counts[3] == counts[5], counts  # what later ones leave is theirs to be collected
"""
LOADED = """
import pickle, sys
pickle.loads(sys.stdin.buffer.read())
assert "poundlock.tasks.report" in sys.modules
assert not [name for name in sys.modules if name.startswith(("pyspark", "poundlock.spark", "poundlock.driver"))], sys.modules
"""


def test_what_the_first_tasks_load_is_frozen() -> None:
    subprocess.run([sys.executable, "-c", FROZEN], check=True)


def test_the_way_reports_take_loads_nothing_of_the_drivers_side() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True, input=pickle.dumps((AddedReports(), Reporter(None))))


def test_a_stop_iteration_of_a_function_is_said_with_its_place() -> None:
    def function_of_the_user() -> None:
        next(iter(()))

    def task() -> Iterator[None]:
        with utf8_errors():
            yield function_of_the_user()

    with pytest.raises(RuntimeError, match=r"^StopIteration\(\)$") as raised:
        next(task())
    assert raised.value.__cause__ is None
    assert "in function_of_the_user" in "".join(traceback.format_exception(raised.value))
