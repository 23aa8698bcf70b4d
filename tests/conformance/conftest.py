"""Conformance cases of operators are run with state that stays in memory and with state that is written between steps alike."""

from __future__ import annotations

import pytest

from support.stored_harness import on_both_backends, state_backend

__all__ = ["state_backend"]

_OF_OPERATORS = ("test_state.py", "test_windows.py", "test_sql_windows.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.path.name in _OF_OPERATORS:
        on_both_backends(metafunc)
