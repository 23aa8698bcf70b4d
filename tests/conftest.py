"""Fixtures for every test."""

from __future__ import annotations

pytest_plugins = ["poundlock.testing.fixtures"]
