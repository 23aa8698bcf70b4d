"""`poundlock state`: how key groups are shown to people, and that it takes neither a JVM nor what is slow to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from poundlock import EventTimeSessionWindows, KeyedProcessFunction, StateTtlConfig, ValueStateDescriptor
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.data.state import _lines
from poundlock.cli.main import main
from poundlock.state.decided_state import DecidedState
from poundlock.state.manifest import in_spaces
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import RunFiles
from poundlock.state.task_state import TaskState
from poundlock.storage import LocalStorage
from poundlock.testing import ProcessHarness, Snapshot, WindowHarness
from poundlock.values import SystemClock
from support.saved import save


class Seen(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.last = context.get_state(ValueStateDescriptor("last", ttl=StateTtlConfig(ttl="1 s")))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.last.update(value["n"])
        ctx.timer_service().register_event_time_timer(61_500)
        ctx.timer_service().register_processing_time_timer(2_000)


def shown(snapshot: Snapshot, limit: int = 20) -> list[str]:
    return list(_lines([("3", snapshot.describe())], limit))


def test_windows_with_their_bounds_and_timers() -> None:
    with WindowHarness(EventTimeSessionWindows("30 s"), lambda a, b: b, key="k", key_groups=1) as h:
        h.process_elements([({"k": key, "n": 1}, 500) for key in "abc"])
        assert shown(h.snapshot(), limit=2) == [
            "operator 3: watermark -",
            "  contents (sessions): 3 entries",
            "    'b' in [1970-01-01T00:00:00.500Z, 1970-01-01T00:00:30.500Z): {'k': 'b', 'n': 1}",  # by their hashes
            "    'a' in [1970-01-01T00:00:00.500Z, 1970-01-01T00:00:30.500Z): {'k': 'a', 'n': 1}",
            "    …",
            "  event-time timers: 3",
            "    1970-01-01T00:00:30.499Z 'a'",
            "    1970-01-01T00:00:30.499Z 'b'",
            "    …",
        ]


def test_state_with_a_time_to_live_and_timers_of_both_kinds() -> None:
    with ProcessHarness(Seen(), key="k", key_groups=1) as h:
        h.process_watermark(1_000)
        h.process_element({"k": "a", "n": 7}, 1_500)
        assert shown(h.snapshot()) == [
            "operator 3: watermark 1970-01-01T00:00:01.000Z",
            "  state:last (value, time to live 1000 ms): 1 entries",
            "    'a': [0, 7]",  # when it was written, by the clock, and the value
            "  event-time timers: 1",
            "    1970-01-01T00:01:01.500Z 'a'",
            "  processing-time timers: 1",
            "    1970-01-01T00:00:02.000Z 'a'",
        ]
    assert list(_lines([], 20)) == ["no key has any state"]


def kept(folder: Path, values: Mapping[Any, int]) -> None:
    """Make a checkpoint folder whose newest decision names a run with these values of the operator "totals"."""
    storage = LocalStorage(str(folder))
    identity = open_identity(storage, name="job", clock=SystemClock())
    participant = StateParticipant(storage, job=identity.job_id, epoch=1)
    manifest = in_spaces({}, {"stage": ["totals"]}, max_parallelism=128)["stage"]
    directive = participant.directive(manifest, checkpoint=0, parallelism=1)
    task = TaskState(directive, 0, RunFiles(storage), "attempt")
    operator = task.operator("totals", watermark=5, processing_time=0)
    operator.declare("state:sum", "value")
    operator.prefetch(list(values))
    operator.table("state:sum").update(values)
    _, manifest = participant.apply(directive, [task.finish()])
    state = DecidedState.whole({"stage": manifest})
    Ledger(storage).append(
        Decision(
            number=0, occasion="checkpoint", checkpoint=0, job_id=identity.job_id, epoch=1, time_ms=0, sources={},
            sinks={}, state=state,
        )
    )  # fmt: skip


SLOW = {"pyspark", "py4j", "pandas", "sqlglot", "structlog", "rich", "pydantic_settings", "asyncio", "fastapi"}
PROGRAM = """
import json, sys
from poundlock.cli.main import main
code = main(sys.argv[1:])
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("key", [("--key", "ada"), ()])
def test_it_starts_no_jvm_and_imports_little(tmp_path: Path, key: tuple[str, ...]) -> None:
    kept(tmp_path / "checkpoint", {"ada": 7, "grace": 5})
    java = tmp_path / "jdk/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk"), "PATH": f"{java.parent}:{os.environ['PATH']}"}
    asked = ["state", str(tmp_path / "checkpoint"), "totals", *key, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *asked], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (totals,) = json.loads(done.stdout)
    values = {entry["key"]: entry["value"] for entry in totals["state"]["state:sum"]["entries"]}
    assert values == ({"ada": 7} if key else {"ada": 7, "grace": 5})
    assert not (tmp_path / "started").exists()
    assert SLOW.isdisjoint(json.loads(done.stderr.splitlines()[-1]))
    subprocess.run(["java"], env=environment, check=True)
    assert (tmp_path / "started").exists(), "it would have been seen"


def test_fsck_names_state_files_that_are_not_as_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_folder: Path
) -> None:
    folder = tmp_path / "checkpoint"
    kept(folder, {"ada": 7, "grace": 5})
    assert main(["fsck", str(folder)]) == 0
    assert capsys.readouterr().out == f"job: 1 decision, 0 orphans (0 B), 0 findings in {folder}\n"
    (path,) = folder.glob("state/*/*")
    whole = path.read_bytes()
    changed, cut = whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-3]
    name = f"the state file {path.relative_to(folder)} of totals, written at checkpoint 0 for key groups 0 to 127,"
    for data, how in (
        (changed, "is not what was written: its digest differs"),
        (cut, f"has {len(cut)} bytes instead of {len(whole)}"),
        (None, "is missing"),
    ):
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        assert main(["fsck", str(folder)]) == 1
        damaged, total, advice = capsys.readouterr().out.splitlines()
        assert damaged == f"damaged    keyed state  {name} {how}"
        assert total == f"job: 1 decision, 0 orphans (0 B), 1 finding in {folder}"
        assert advice == "Next: no copy of a checkpoint is whole: go on from a savepoint"
    save(tmp_path / "saved", positions={"events": {"offset": 5}})
    (folder / "retained").mkdir()
    next((tmp_path / "saved").glob("savepoint-*")).rename(folder / "retained/chk-4")
    assert main(["fsck", str(folder)]) == 1
    next_line = capsys.readouterr().out.splitlines()[-1]
    copy = f"{folder}/retained/chk-4"
    assert (
        next_line == f"Next: checkpoint 4 is whole; go on from it: poundlock run JOB.PY -s {copy} -D checkpoint_dir=NEW"
    )
    assert main(["fsck", str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["clean"], report["whole"]) == (False, [4, copy])
    (found,) = report["findings"]["keyed state"]
    assert (found["problem"], found["path"]) == ("damaged", f"{name} is missing")


def test_fsck_looks_again_where_a_state_file_goes_while_it_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    kept(folder, {"ada": 7})
    (path,) = folder.glob("state/*/*")
    read, away = LocalStorage.read, [path.name]

    def merged_away(storage: LocalStorage, name: str) -> bytes:
        if name.endswith(path.name) and away:
            raise FileNotFoundError(away.pop())
        return read(storage, name)

    monkeypatch.setattr(LocalStorage, "read", merged_away)
    assert main(["fsck", str(folder)]) == 0
    assert away == []
    assert "0 findings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (date(2018, 12, 19), "2018-12-19"),
        (datetime(2018, 12, 19, 1, 50, tzinfo=UTC), "2018-12-19T01:50:00Z"),
        (Decimal("12.50"), "12.5"),
        (b"\x00\xff", "X'00FF'"),
        (("ada", date(2018, 12, 19)), '["ada", "2018-12-19"]'),
        ("12", "12"),
    ],
    ids=repr,
)
def test_one_key_of_any_type_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: Any, text: str) -> None:
    kept(tmp_path, {key: 7})
    assert main(["state", str(tmp_path), "totals", "--key", text]) == 0
    _, table, entry = capsys.readouterr().out.splitlines()
    assert table == "  state:sum (value): 1 entries"
    shown = entry.strip().removesuffix(": 7")
    shown = shown.strip("'") if isinstance(key, str) else shown
    assert main(["state", str(tmp_path), "--key", shown, "--json"]) == 0, shown
    ((listed,),) = [each["state"]["state:sum"]["entries"] for each in json.loads(capsys.readouterr().out)]
    assert listed["value"] == 7


def test_of_a_key_that_has_nothing_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, {"ada": 7})
    assert main(["state", str(tmp_path), "totals", "--key", "grace"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  nothing is kept"]


def test_what_is_no_key_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, {date(2018, 12, 19): 7})
    assert main(["state", str(tmp_path), "totals", "--key", "soon"]) == 2
    what, next = capsys.readouterr().err.splitlines()
    assert what == "error: 'soon' is no key of totals, whose keys are such as 2018-12-19 [PL-0642]"
    assert next.startswith("Next: write a date as 2018-12-19")
