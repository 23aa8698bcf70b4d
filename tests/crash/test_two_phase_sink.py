"""The article's two-phase file sink, under the same deaths as the built-in ones: the example itself is the job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from poundlock import DatagenSource
from poundlock.connectors.base import ReaderContext, Split
from poundlock.formats.convert import to_records
from support.lives import STATELESS, Lives, failpoint_setting

pytestmark = pytest.mark.crash

EXAMPLE = Path(__file__).parents[2] / "examples/two_phase_file.py"
ROWS = 100_000


def expected() -> Counter[bytes]:
    reader = DatagenSource(count=ROWS).reader(ReaderContext(reject=None))
    chunks = reader.read(Split("all", {"start": 0, "stop": ROWS}, ROWS))
    return Counter(row["value"] for chunk in chunks for row in to_records(chunk).rows)


def test_a_users_two_phase_sink_survives_every_failpoint(tmp_path: Path) -> None:
    out, hit = tmp_path / "out", tmp_path / "hit"
    with Lives(EXAMPLE, environment={"OUT": str(out)}, folder=tmp_path, arguments=["-D", "parallelism=2"]) as lives:
        codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit))
        assert {path.name for path in hit.iterdir()} == {point.value for point in STATELESS} - {"sink.writing"}
        assert len(codes) >= 8
        assert lives.left_behind() == []
    files = [path for path in out.iterdir() if path.is_file()]
    assert Counter(line for path in files for line in path.read_bytes().splitlines()) == expected()
    assert list((out / ".open").iterdir()) == [], "transactions of attempts that died are still open"
