"""Operators whose state is written between steps against those that keep it, in a few drawn scripts; the torture tests draw more of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.stored_harness import write_often
from support.window_scripts import Setting, Step, play, scripts, settings_of_all

few = examples(15)


def written(setting: Setting, script: list[Step], instances: int, general: bool) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        write_often(patch)
        return play(setting.harness(instances=instances, general=general), script)


@few
@given(settings_of_all, scripts(), st.integers(1, 4), st.booleans())
def test_windows_give_the_same_whenever_state_is_written(
    setting: Setting, script: list[Step], instances: int, general: bool
) -> None:
    assert written(setting, script, instances, general) == play(setting.harness(general=general), script)


@few
@given(settings_of_all, scripts(), st.lists(st.integers(1, 8), min_size=16, max_size=16))
def test_windows_may_be_rescaled_whenever_state_is_written(
    setting: Setting, script: list[Step], instances: list[int]
) -> None:
    wanted = play(setting.harness(), script)
    with pytest.MonkeyPatch.context() as patch:
        write_often(patch)
        harness: Any = setting.harness(instances=instances[0])
        assert play(harness, script, between=lambda number: harness.rescale(instances[number])) == wanted
