"""What a Python worker of Spark's loads and keeps: little, and out of the way of its collector."""

from __future__ import annotations

import pickle
import subprocess
import sys

from poundlock.tasks.report import AddedReports, Reporter

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
