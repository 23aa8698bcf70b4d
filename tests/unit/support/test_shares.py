"""Shares of the tests: together they are all, each test once, and of about one size."""

from __future__ import annotations

import pytest

from support.shares import Share

TESTS = [f"tests/crash/test_torture.py::test_files[{n}]" for n in range(1000)]


@pytest.mark.parametrize("count", [1, 2, 8, 13])
def test_all_shares_together_are_all_tests_each_once(count: int) -> None:
    shares = [[test for test in TESTS if test in Share(n, count)] for n in range(1, count + 1)]
    assert sorted(test for share in shares for test in share) == sorted(TESTS)
    assert min(map(len, shares)) > len(TESTS) / count / 2


def test_a_share_is_the_same_in_every_process() -> None:
    share = Share.parse("3/8")
    assert [n for n, test in enumerate(TESTS[:40]) if test in share] == [5, 8, 16, 19, 21, 22]


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "3/0", "-1/2", "3/8/2", "a/b"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no share"):
        Share.parse(text)
