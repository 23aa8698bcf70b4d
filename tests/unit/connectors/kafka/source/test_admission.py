"""How a checkpoint's limit is shared among partitions, and ranges are cut into splits, for any numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.kafka.source.admission import cut, share

places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 30))


@given(st.dictionaries(places, st.integers(1, 10**9)), st.one_of(st.none(), st.integers(1, 10**7)))
def test_a_limit_is_used_up_and_never_passed(waiting: dict[tuple[str, int], int], limit: int | None) -> None:
    given_ = share(waiting, limit)
    assert given_.keys() == waiting.keys()
    assert all(0 <= given_[place] <= count for place, count in waiting.items())
    total = sum(waiting.values())
    assert sum(given_.values()) == (total if limit is None else min(limit, total))


def test_small_partitions_are_not_held_up_and_large_ones_stay_in_step() -> None:
    waiting = {("t", 0): 3, ("t", 1): 1_000_000, ("t", 2): 2_000_000}
    given_ = share(waiting, 10_000)
    assert given_["t", 0] == 3
    assert 1.6 < given_["t", 2] / given_["t", 1] < 2.1
    assert share({("t", p): 100 for p in range(3)}, 2) == {("t", 0): 1, ("t", 1): 1, ("t", 2): 0}


@given(
    st.dictionaries(places, st.tuples(st.integers(0, 10**6), st.integers(1, 10**5))),
    st.integers(100, 10**6),
    st.one_of(st.none(), st.integers(1, 60)),
)
def test_pieces_are_the_ranges_whole_and_in_order(
    given_: dict[tuple[str, int], tuple[int, int]], most: int, at_least: int | None
) -> None:
    ranges = {place: (first, first + count) for place, (first, count) in given_.items()}
    pieces = list(cut(ranges, most=most, at_least=at_least))
    assert all(0 < after - first <= most for _, first, after in pieces)
    joined: dict[tuple[str, int], tuple[int, int]] = {}
    for place, first, after in pieces:
        assert joined.get(place, (0, first))[1] == first
        joined[place] = (joined.get(place, (first, 0))[0], after)
    assert joined == ranges
    total = sum(after - first for first, after in ranges.values())
    assert at_least is None or len(pieces) >= min(at_least, total)
