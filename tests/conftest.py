"""Fixtures for every test, and how long one may take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["poundlock.testing.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torture take as long as it takes."""
    for item in items:
        if item.get_closest_marker("torture"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture
def bare_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is empty, and no setting is left of whoever runs the tests; what is downloaded once stays."""
    for name in list(os.environ):
        if name.startswith("POUNDLOCK_") and name not in ("POUNDLOCK_CACHE_DIR", "POUNDLOCK_JARS_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_folder(bare_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare folder that jobs are listed in as well."""
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(bare_folder / "state"))
    return bare_folder
