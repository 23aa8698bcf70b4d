"""Jobs of these tests run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.in_process import PATCHES


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder, and jobs that run in this process."""
    with pytest.MonkeyPatch.context() as patched:
        for patch in PATCHES:
            patched.setattr(*patch)
        yield tmp_path_factory.mktemp("windows")
