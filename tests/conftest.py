"""Fixtures for every test, and how long one may take."""

from __future__ import annotations

import pytest

pytest_plugins = ["poundlock.testing.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torture take as long as it takes."""
    for item in items:
        if item.get_closest_marker("torture"):
            item.add_marker(pytest.mark.timeout(0))
