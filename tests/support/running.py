"""Stages that are run to their ends."""

from __future__ import annotations

from collections.abc import Generator

from poundlock.tasks.report import TaskReport
from poundlock.tasks.stage import Parcel


def run_to_end(running: Generator[Parcel, None, TaskReport]) -> tuple[TaskReport, list[Parcel]]:
    """Return what a task of a stage reports, and what it sent to later stages."""
    parcels: list[Parcel] = []
    while True:
        try:
            parcels.append(next(running))
        except StopIteration as ended:
            return ended.value, parcels
