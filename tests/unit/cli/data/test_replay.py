"""What `poundlock replay` prints of a report."""

from __future__ import annotations

import json

from poundlock.audit.write_totals import Measure, ReplayReport, SinkReplay, Written, compare
from poundlock.checkpoint.participant import Counts
from poundlock.cli.data.replay import _lines

THEN = Measure(
    counts=Counts(read=4000, written=3000, filtered=1000),
    wrote=Written(pieces=2, rows=3000, bytes=90_000, digest="00000000000000aa"),
)
NOW = Measure(
    counts=Counts(read=4000, written=2999, filtered=1001),
    wrote=Written(pieces=2, rows=2999, bytes=89_970, digest="00000000000000bb"),
)


def report(now: Measure, *, again: tuple[int, ...] = (), left_out: dict[str, str] | None = None) -> ReplayReport:
    return ReplayReport(
        job="j",
        checkpoint=5,
        record=7,
        time_ms=1545184226432,
        again=again,
        rows_read={"in": (4000, 4000), "unknown": (None, None)},
        sinks={"out": SinkReplay(committed=THEN, now=now, shown=["{}"])},
        left_out=left_out or {},
        differences=compare("out", THEN, now),
    )


def test_agreement() -> None:
    assert list(_lines(report(THEN))) == [
        "checkpoint 5 of j, decision 7 of 2018-12-19T01:50:26.432Z",
        "source in: 4,000 rows read",
        "sink out: 4,000 in + 0 made = 3,000 written + 1,000 filtered + 0 late + 0 dead-lettered + 0 skipped, 90,000 bytes, digest 00000000000000aa",
        "  {}",
        "checkpoint 5: as committed",
    ]


def test_differences_and_what_is_not_compared() -> None:
    lines = list(_lines(report(NOW, again=(9,), left_out={"w": "windows"})))
    assert lines[1] == "  part of it was aborted from outside and produced again: decision 9"
    assert lines[-6:] == [
        "sink w: left out, windows",
        "DIFFERS  out, written: 3,000 committed, 2,999 now",
        "DIFFERS  out, filtered: 1,000 committed, 1,001 now",
        "DIFFERS  out, bytes: 90,000 committed, 89,970 now",
        "DIFFERS  out, digest: 00000000000000aa committed, 00000000000000bb now",
        "checkpoint 5: 4 differences",
    ]
    unknown = Measure(counts=THEN.counts, wrote=None, full=False)
    assert "  only rows are compared: bytes and digests are not known of it" in _lines(report(unknown))


def test_json_has_both_sides() -> None:
    said = json.loads(json.dumps(report(NOW).to_json()))
    assert said["sinks"]["out"]["committed"]["wrote"]["bytes"] == 90_000
    assert said["differences"][0] == {"sink": "out", "figure": "written", "committed": 3000, "now": 2999}
