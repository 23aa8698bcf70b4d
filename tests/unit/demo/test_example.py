from __future__ import annotations

from pathlib import Path

import poundlock.demo


def test_the_demo_runs_the_very_job_of_the_examples() -> None:
    packaged = Path(poundlock.demo.__file__).with_name("event_log.py")
    example = Path(__file__).parents[3] / "examples/event_log.py"
    assert example.read_bytes() == packaged.read_bytes()
