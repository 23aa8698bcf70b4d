"""What make compat installs, and what it makes of a report."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compat() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compat_tool", ROOT / "tools" / "compat.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compat_tool"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_lock_is_kept_but_for_spark(compat: ModuleType) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    kept = compat.without_spark(lock)
    gone = sorted(set(lock.splitlines()) - set(kept.splitlines()))
    assert [line.partition("==")[0] for line in gone] == ["py4j", "pyspark"]
    assert compat.without_spark("pyspark-client==1\npyspark==4.2.1 ; x\n") == "pyspark-client==1\n"


@pytest.mark.parametrize(
    ("version", "wanted"), [("3.5", "pyspark==3.5.*"), ("4.2", "pyspark==4.2.*"), ("3.5.1", "pyspark==3.5.1")]
)
def test_the_newest_patch_of_a_version_is_installed(compat: ModuleType, version: str, wanted: str) -> None:
    assert compat.requirement(version) == wanted


def test_what_failed_or_was_skipped_is_named(compat: ModuleType) -> None:
    report = (
        '<testsuites><testsuite><testcase classname="a" name="one"/>'
        '<testcase classname="a" name="two"><failure/></testcase>'
        '<testcase classname="b" name="three"><skipped/></testcase></testsuite></testsuites>'
    )
    outcome = compat.read_report("4.0.5", report)
    assert (outcome.passed, outcome.failed, outcome.good) == (1, ("a::two", "b::three"), False)
    assert outcome.line().splitlines()[0].split() == ["4.0.5", "1", "passed,", "2", "failed"]


def test_a_report_without_tests_is_not_good(compat: ModuleType) -> None:
    assert not compat.read_report("4.0.5", "<testsuites/>").good
    assert compat.read_report("4.0.5", '<testsuites><testcase classname="a" name="b"/></testsuites>').good
    assert "not run: no network" in compat.Outcome("3.5", trouble="no network").line()


def test_another_python_has_an_environment_of_its_own(compat: ModuleType) -> None:
    assert compat.folder_of("4.3", None).name == "spark-4.3"
    assert compat.folder_of("4.3", "3.13").name == "spark-4.3-python-3.13"
    assert compat.folder_of("3.5", "/usr/bin/python3.12").name == "spark-3.5-python-python3.12"
