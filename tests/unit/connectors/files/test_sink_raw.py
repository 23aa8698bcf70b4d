"""FileSink in raw mode, end to end in one process: what readers see, and when."""

from __future__ import annotations

from pathlib import Path

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets import EventTimeBucketAssigner
from poundlock.connectors.files.sink import FileSink
from poundlock.testing.sinks import FileSinkHarness as Harness
from poundlock.testing.sinks import lines

EVENTS = [
    b'{"timestamp":1545184226.432,"event":"page_view","uuid":"ac0e50bf-944c-4e2f-bbf5-a34b22718e0c"}',
    b'{"timestamp":1545184602.640,"event":"adv_click","uuid":"9b220808-2193-44d1-a0e9-09b9743dec55"}',
    b'{"timestamp":1545184608.969,"event":"thumbs_up","uuid":"b44c3137-4c91-4f36-96fb-80f56561c914"}',
]


def event_sink(path: Path, **options: object) -> FileSink:
    options = {"bucket": EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="Asia/Shanghai"), **options}
    return FileSink(str(path), row="value", **options)  # type: ignore[arg-type]


def test_reference_layout(tmp_path: Path) -> None:
    h = Harness(event_sink(tmp_path))
    assert h.write(lines(*EVENTS)) == 3
    assert h.end_checkpoint() == []
    assert h.finished() == {}
    [committable] = h.end_checkpoint(Occasion.END)
    assert h.finished() == {"dt=20181219/part-0-0": b"".join(e + b"\n" for e in EVENTS)}
    assert h.hidden() == []
    assert (committable["min_ms"], committable["max_ms"]) == (1545184226432, 1545184608969)
    assert committable["rows"] == 3
