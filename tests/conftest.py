"""Fixtures for every test, how long one may take, and which share of the tests runs here."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from support.shares import Share

# A test never asserts how long an example took: the machine may have other work.
settings.register_profile("poundlock", deadline=None)
# For make unit: as many as find what is broken at all. A property that asks for more or fewer does so by `examples`, and
# then has its share of them here.
settings.register_profile("quick", deadline=None, max_examples=15)
settings.load_profile("poundlock")

TESTS = Path(__file__).parent
# A file that takes minutes is not the last to begin: the other workers would wait for it.
LONGEST_FIRST = {
    folder: place for place, folder in enumerate(("crash", "services", "engine", "docs", "conformance", "protocol"))
}

pytest_plugins = ["support.fixtures", "support.shared_jvm"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a share of the tests."""
    parser.addoption("--part", default="1/1", metavar="N/M", help="run the N-th of M shares of the selected tests")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a share that is none before anything is collected."""
    try:
        Share.parse(config.getoption("--part"))
    except ValueError as error:
        raise pytest.UsageError(f"--part: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what was imported out of every search for garbage: a million objects that stay were looked at again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let torture take as long as it takes, leave out what belongs to another share, and begin with the long files."""
    for item in items:
        if item.get_closest_marker("torture"):
            item.add_marker(pytest.mark.timeout(0))
    share = Share.parse(config.getoption("--part"))
    others = [item for item in items if item.nodeid not in share]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid in share]
    items.sort(key=lambda item: LONGEST_FIRST.get(item.path.relative_to(TESTS).parts[0], len(LONGEST_FIRST)))


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
