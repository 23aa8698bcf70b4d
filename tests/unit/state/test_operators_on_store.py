"""Operators on the store against operators on groups in memory, in a few drawn scripts; the torture tests draw more of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.stored_harness import use_store
from support.window_scripts import Setting, Step, play, scripts, settings_of_all

few = settings(max_examples=15, deadline=None)


def on_store(setting: Setting, script: list[Step], instances: int, general: bool) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        use_store(patch)
        return play(setting.harness(instances=instances, general=general), script)


@few
@given(settings_of_all, scripts(), st.integers(1, 4), st.booleans())
def test_windows_on_the_store_give_what_they_give_in_memory(
    setting: Setting, script: list[Step], instances: int, general: bool
) -> None:
    assert on_store(setting, script, instances, general) == play(setting.harness(general=general), script)


@few
@given(settings_of_all, scripts(), st.lists(st.integers(1, 8), min_size=16, max_size=16))
def test_windows_on_the_store_may_be_rescaled(setting: Setting, script: list[Step], instances: list[int]) -> None:
    wanted = play(setting.harness(), script)
    with pytest.MonkeyPatch.context() as patch:
        use_store(patch)
        harness: Any = setting.harness(instances=instances[0])
        assert play(harness, script, between=lambda number: harness.rescale(instances[number])) == wanted
