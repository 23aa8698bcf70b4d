"""Partitions of a transaction as decisions say them."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.connectors.kafka.offsets import from_places, to_places


@pytest.mark.parametrize(
    ("places", "short"),
    [
        ({}, {}),
        ({"a": [0]}, {"a": "0"}),
        ({"a": [3, 1, 2, 7], "b": [0, 2]}, {"a": "1-3,7", "b": "0,2"}),
    ],
)
def test_places_are_short_and_understood(places: dict[str, Any], short: dict[str, str]) -> None:
    assert from_places(places) == short
    assert to_places(short) == {(topic, number) for topic, numbers in places.items() for number in numbers}
