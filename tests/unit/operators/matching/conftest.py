"""Operators are tested with state that stays in memory and with state that is written between steps alike."""

from __future__ import annotations

import pytest

from support.stored_harness import on_both_backends, state_backend

__all__ = ["state_backend"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_both_backends(metafunc)
