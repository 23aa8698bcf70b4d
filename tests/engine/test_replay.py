"""`poundlock replay` beside a running driver: what changed code changes, and what cannot be replayed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.job_loader import load_job
from poundlock.cli.main import main
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.storage import open_storage
from poundlock.values import SystemClock

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

JOB = """
from poundlock import (
    FileSink, FileSource, Job, RollingPolicy, TumblingEventTimeWindows,
    WatermarkStrategy,
)

job = Job("again", checkpoint_interval="0 s", checkpoint_dir="checkpoint", dead_letters="dead")


def numbers(name):
    source = FileSource("in", format="json", schema="n bigint, ts bigint", max_files_per_checkpoint=1)
    return job.from_source(source, name=name)


def twice(record):
    yield {"n": record["n"]}
    yield {"n": -record["n"]}


few = RollingPolicy(size="1 KB", every="1 h")  # a part is cut by what waited in it before
pairs = numbers("in").flat_map(twice, schema="n bigint").filter(lambda r: r["n"] % NOT != 0)
pairs.sink_to(FileSink("out", format="json", rolling=few, bucket=lambda r: f"last={r['n'] % 2}"), name="out")
numbers("all").where("n >= 0").sink_to(FileSink("all", format="csv", rolling=few), name="copy")
WINDOWS
"""
WINDOWS = """
timed = numbers("timed").assign_timestamps_and_watermarks(
    WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp_seconds(ts)")
)
windows = timed.window_all(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="windows")
windows.select("n").sink_to(FileSink("windows", format="json"), name="windows-out")
"""


def job_file(without: int, *, windows: bool = False) -> None:
    Path("job.py").write_text(JOB.replace("NOT", str(without)).replace("WINDOWS", WINDOWS if windows else ""))


@pytest.fixture
def folder(bare_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a job adds its folder
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    Path("poundlock.toml").write_text('state_dir = "state"\nmaster = "local[2]"\ndriver_memory = "1g"\n')
    Path("in").mkdir()
    for number in range(3):
        rows = [b'{"n":%d,"ts":%d}' % (n, 1545184226 + n) for n in range(100 * number, 100 * number + 100)]
        Path(f"in/{number}.jsonl").write_bytes(b"\n".join([*rows, *([b"broken"] if number == 1 else []), b""]))
    return bare_folder


def test_changed_code_shows_what_it_changed_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_file(without=10)
    assert run(load_job("job.py"), settings=load_settings([])).state == "FINISHED"
    records = len(list(Ledger(open_storage("checkpoint"))))
    job_file(without=7, windows=True)
    with Epoch.claim(open_storage("checkpoint"), clock=SystemClock()):  # a driver is at work
        assert main(["replay", "job.py", "1", "--show", "2", "--json", "-D", "master=local[1]"]) == 1
    report = json.loads(capsys.readouterr().out)
    out, copy = report["sinks"]["out"], report["sinks"]["copy"]
    fates = {"read": 101, "produced": 100, "written": 180, "filtered": 20, "dead_lettered": 1, "skipped": 0, "late": 0}
    assert out["committed"]["counts"] == fates
    assert out["now"]["counts"] == fates | {"written": 172, "filtered": 28}
    assert out["shown"] == ['{"n": 100}', '{"n": -100}']
    differ = {(d["sink"], d["figure"].split(" of ")[0]): (d["committed"], d["now"]) for d in report["differences"]}
    assert set(differ) == {
        ("out", name) for name in ("written", "filtered", "bytes", "digest", "rows in last=0", "rows in last=1")
    }
    assert differ["out", "rows in last=0"] == (80, 86)
    assert copy["now"] == copy["committed"], "nothing was changed before it"
    assert copy["now"]["wrote"]["pieces"] > 1, "parts are cut where they were cut then"
    assert set(report["left_out"]) == {"windows-out", "dead-letter"}

    def refused(*arguments: str) -> str:
        assert main(["replay", *arguments]) != 0
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 2, err
        return err

    assert "checkpoint 7 is not decided: the ledger has 0 to 2 so far" in refused("job.py", "7")
    assert "checkpoint is no file of a job" in refused("checkpoint", "1")
    Path("job.py").write_text(Path("job.py").read_text().replace('numbers("all")', 'numbers("more")'))
    assert "checkpoint 1 did not read source 'more'" in refused("job.py", "1")
    job_file(without=10)
    Path("in/1.jsonl").unlink()
    assert "in/1.jsonl" in refused("job.py", "1")
    assert len(list(Ledger(open_storage("checkpoint")))) == records, "nothing was decided"
