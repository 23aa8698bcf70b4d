"""A property that says how many examples it wants gets its share of them in make unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from support.examples import examples

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("profile", "counts"), [("poundlock", [3, 10, 60, 150]), ("quick", [3, 5, 9, 22])])
def test_a_profile_has_its_share(profile: str, counts: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert [examples(count).max_examples for count in (3, 10, 60, 150)] == counts
    finally:
        settings.load_profile(before)


def test_no_property_asks_for_a_number_by_itself() -> None:
    """The profile would have no say."""
    asked = re.compile(r"@settings\([^)]*max_examples|^\w+ = settings\(max_examples", re.MULTILINE)
    assert [path.name for path in TESTS.rglob("test_*.py") if asked.search(path.read_text(encoding="utf-8"))] == []
