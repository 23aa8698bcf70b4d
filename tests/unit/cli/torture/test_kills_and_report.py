"""The plan of kills, what differs in two outputs, and how it is told."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock import DatagenSource, FileSink, Job
from poundlock.cli.torture.control import break_output
from poundlock.cli.torture.kills import IN_TASKS, Kill, lives_of, one_of, plan
from poundlock.cli.torture.lives import Lives, Service, Struck
from poundlock.cli.torture.outputs import SinkComparison, compare, comparisons
from poundlock.cli.torture.report import TortureResult, page
from poundlock.cli.torture.sandbox import RUNS, TORTURED, Sandbox
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.failpoints import Failpoint


def test_a_seed_gives_the_same_kills_and_another_gives_others() -> None:
    first = plan(7, 200, keyed=True, services=2)
    assert first == plan(7, 200, keyed=True, services=2)
    assert first != plan(8, 200, keyed=True, services=2)
    whats = {kill.what for kill in first}
    assert {each.value for each in Failpoint} | {"driver", "jvm", "worker", "service"} == whats
    without = {kill.what for kill in plan(7, 200, keyed=False, services=0)}
    assert whats - without == {"state.writing", "service"}


@pytest.mark.parametrize("services", [1, 2, 3])
def test_each_service_is_stopped_at_least_once(services: int) -> None:
    for seed in range(50):
        kills = plan(seed, 3, keyed=False, services=services)
        assert {one_of(kill.choice, services) for kill in kills if kill.what == "service"} == set(range(services))
        assert [kill.number for kill in kills] == [1, 2, 3]
    with pytest.raises(DefinitionError, match="cannot be stopped by 0 kills of chance"):
        plan(1, 0, at=["decision.recorded"], keyed=False, services=services)


def test_kills_by_name_come_first() -> None:
    named = plan(1, 2, at=["sink.writing@3", "decision.recorded"], keyed=False, services=0)
    assert [(kill.number, kill.asked) for kill in named] == [(1, True), (2, True), (3, False), (4, False)]
    assert [(kill.what, kill.times) for kill in named[:2]] == [("sink.writing", 3), ("decision.recorded", 1)]
    assert named[0].setting(Path("/marks")) == "sink.writing:kill@3;once=/marks/kill-1"


def test_a_life_ends_with_the_death_of_its_driver() -> None:
    worker, driver = Kill(number=1, what="worker"), Kill(number=2, what="driver")
    written, decided = Kill(number=3, what="sink.writing"), Kill(number=4, what="decision.recorded")
    assert lives_of([worker, driver, written, decided, worker]) == [[worker, driver], [written, decided], [worker]]
    assert lives_of([decided]) == [[decided], []], "what is left is read in a last life"
    assert not any(Kill(number=1, what=each.value).ends_life for each in IN_TASKS)


def test_a_service_that_does_not_stop_is_named() -> None:
    with pytest.raises(PoundlockError, match="the service could not be stopped and started"):
        Service(stop=["false"], start=["true"], pause_s=0).outage()
    with pytest.raises(PoundlockError, match="ended with 3: no such unit"):
        Service(stop=["sh", "-c", "echo no such unit >&2; exit 3"], start=["true"], pause_s=0).outage()


def test_records_are_compared_by_how_often_they_are_there() -> None:
    same = compare("out", Counter("aab"), Counter("aba"))
    assert same.agrees
    other = compare("out", Counter("aab"), Counter("abbc"))
    assert (other.records, other.lost, other.doubled, other.agrees) == (3, 1, 2, False)
    assert other.examples == {"lost": ("a",), "doubled": ("b", "c")}
    assert compare("out", Counter("a"), Counter("aa"), may_repeat=True).agrees
    assert not compare("out", Counter("ab"), Counter("aa"), may_repeat=True).agrees
    assert not compare("out", Counter("a"), Counter("a"), hidden=1).agrees


@pytest.fixture
def written(tmp_path: Path) -> tuple[Job, Sandbox]:
    """Two runs that wrote the same into other files, and a job that could have."""
    job = Job("written")
    job.from_source(DatagenSource("n int", count=1), name="rows").sink_to(FileSink("out", format="json"), name="out")
    sandbox = Sandbox(target="job.py", root=str(tmp_path), samples={}, streaming=False)
    for run, cut in zip(RUNS, (2, 1), strict=True):
        folder = sandbox.output(run, "out") / "dt=1"
        folder.mkdir(parents=True)
        texts = ['{"n":1}\n', '{"n":2}\n', '{"n":3}\n']
        (folder / "part-0-0").write_text("".join(texts[:cut]))
        (folder / "part-0-1").write_text("".join(texts[cut:]))
        (folder / "_SUCCESS").touch()
        pq.write_table(pa.table({"n": [4, 5]}), folder / "part-0-2.parquet")
    return job, sandbox


def test_the_same_records_in_other_files_agree(written: tuple[Job, Sandbox]) -> None:
    (sink,) = comparisons(*written, RUNS)
    assert (sink.records, sink.agrees) == (6, True)


@pytest.mark.parametrize(("control", "lost", "doubled"), [("lost", 2, 0), ("doubled", 0, 2)])
def test_an_output_that_was_broken_on_purpose_is_found(
    written: tuple[Job, Sandbox], control: str, lost: int, doubled: int
) -> None:
    """The control of the whole comparison: it can fail."""
    what = break_output(*written, control)  # type: ignore[arg-type]
    assert "part-0-2.parquet was" in what
    (sink,) = comparisons(*written, RUNS)
    assert (sink.lost, sink.doubled, sink.agrees) == (lost, doubled, False)
    assert sink.examples == {control: ('dt=1: {"n": 4}', 'dt=1: {"n": 5}')}


@pytest.mark.parametrize("name", ["_SUCCESS", "part-0-0"])
def test_a_missing_success_file_and_a_record_in_another_bucket_are_found(
    written: tuple[Job, Sandbox], name: str
) -> None:
    folder = written[1].output(TORTURED, "out")
    (folder / "dt=2").mkdir()
    (folder / "dt=1" / name).rename(folder / "dt=2" / name)
    (sink,) = comparisons(*written, RUNS)
    assert (sink.lost, sink.doubled) == (1, 1)


def test_a_file_that_nobody_will_finish_is_found(written: tuple[Job, Sandbox]) -> None:
    (written[1].output(TORTURED, "out") / "dt=1/.part-0-9.inprogress").touch()
    (sink,) = comparisons(*written, RUNS)
    assert (sink.hidden, sink.agrees) == (1, False)


def result_of(*sinks: SinkComparison, disagreements: tuple[str, ...] = ()) -> TortureResult:
    kill, missed = Kill(number=1, what="decision.recorded", times=2), Kill(number=2, what="driver", after_s=0.25)
    return TortureResult(
        job="shop", seed=7, command="poundlock torture job.py --seed 7 --kills 2", samples={"in": "3 files, 1.0 KB"},
        undisturbed=Lives(lives=1, seconds=4), tortured=Lives(lives=2, struck=[Struck(kill=kill, life=1)], missed=[missed], seconds=9),
        checkpoints=(6, 6), sinks=sinks, disagreements=disagreements, control="", sandbox="",
    )  # fmt: skip


def test_a_report_says_what_was_done_and_what_differs() -> None:
    good = result_of(compare("out", Counter("aab"), Counter("aab")))
    text = "\n".join(good.lines())
    assert "life 1: at decision.recorded, pass 2" in text
    assert "came to nothing: driver, 0.25 s behind a checkpoint" in text
    assert "shop survived 1 kill in 2 lives: every record is there once, and the ledger agrees" in text
    assert text.endswith("again: poundlock torture job.py --seed 7 --kills 2")
    bad = result_of(compare("out", Counter(["<b>", "a"]), Counter("a")), disagreements=("out: a file is gone",))
    text = "\n".join(bad.lines())
    assert "sink out: 2 records, 1 lost, 0 doubled" in text
    assert "DISAGREES with the ledger: out: a file is gone" in text
    assert "did NOT survive" in text
    assert json.loads(json.dumps(bad.to_json()))["agrees"] is False
    assert not result_of(compare("out", Counter("a"), Counter("a")), disagreements=("gone",)).agrees


def test_without_a_kill_nothing_is_proven() -> None:
    quiet = replace(result_of(compare("out", Counter("a"), Counter("a"))), tortured=Lives(lives=1))
    assert (quiet.agrees, quiet.survived) == (True, False)
    assert "nothing is proven" in quiet.verdict()
    assert "✗" in page(quiet)


def test_the_page_needs_nothing_else_and_shows_values_as_text() -> None:
    shown = page(result_of(compare("out", Counter(["<script>alert(1)</script>"]), Counter())))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script" not in shown
    assert "http" not in shown
    assert "did NOT survive" in shown
    assert "✓ shop survived" in page(result_of(compare("out", Counter("a"), Counter("a"))))
