from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from poundlock.testing.events import MALFORMED_KINDS, START_S, ReferenceEvents, event_time_ms


def test_the_same_arguments_give_the_same_bytes() -> None:
    assert list(ReferenceEvents(count=3000)) == list(ReferenceEvents(count=3000))
    assert list(ReferenceEvents(count=3000, seed=1)) != list(ReferenceEvents(count=3000, seed=2))


def test_records_hold_no_line_end_and_good_ones_are_unlike_each_other() -> None:
    values = list(ReferenceEvents(count=50_000))
    assert len(values) == 50_000
    assert not any(b"\n" in v for v in values)
    good = [v for v in values if event_time_ms(v) is not None]
    assert max(Counter(good).values()) == 1


def test_every_kind_of_malformed_record_occurs_and_none_has_an_event_time() -> None:
    values = list(ReferenceEvents(count=len(MALFORMED_KINDS) * 3, malformed=1.0))
    assert [event_time_ms(v) for v in values] == [None] * len(values)
    # all but the empty record carry a serial, so that losing one of two is seen
    assert len({v for v in values if v}) == len(values) - 3


def test_good_events_span_two_days_and_some_are_far_out_of_order() -> None:
    times = [t for v in ReferenceEvents(count=20_000) if (t := event_time_ms(v)) is not None]
    days = {t // 86_400_000 for t in times}
    assert days == {START_S // 86_400, START_S // 86_400 + 1}
    late = sum(1 for before, after in pairwise(times) if after < before - 3_600_000)
    assert 50 < late < 500
    assert 20_000 - len(times) == sum(1 for v in ReferenceEvents(count=20_000) if event_time_ms(v) is None) > 50


def test_serials_of_two_batches_differ() -> None:
    first = set(ReferenceEvents(count=100, malformed=1.0))
    second = set(ReferenceEvents(count=100, malformed=1.0, first_serial=100))
    assert first & second == {b""}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"timestamp":1545184226.432,"event":"page_view","uuid":"u"}', 1545184226432),
        (b'{"timestamp":1545263935.9}', 1545263935900),
        (b'{"timestamp":1545263999.9999}', 1545263999999),
        (b'{"timestamp":1545184226}', 1545184226000),
        (b'{"timestamp":1.545184226432e9}', 1545184226432),
        (b'{"timestamp":"1545184226.432"}', None),
        (b'{"timestamp":253402300800}', None),
        (b'{"timestamp":-1}', None),
        (b"\xef\xbb\xbf{}", None),
        (b"", None),
    ],
)
def test_event_time(value: bytes, expected: int | None) -> None:
    assert event_time_ms(value) == expected
