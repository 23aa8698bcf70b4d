"""Statements about jobs, and the settings by which a job begins with a savepoint, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poundlock.config import load_settings
from poundlock.driver.restart import FixedDelayRestart
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.sql.errors import SqlError
from poundlock.sql.running.jobs import JobBuilder
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.statements.results import RunsInserts, ShownRows, StopsJob

TABLES = """
CREATE TABLE t (color STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE o (color STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
"""
INSERT = "INSERT INTO o SELECT color, n FROM t;"


class Control:
    """Jobs that are asked."""

    def __init__(self) -> None:
        self.stopped: list[StopsJob] = []

    def running(self) -> list[tuple[str, str, str, str]]:
        return [("c0ffee", "counts", "RUNNING", "2026-01-05T10:00:00.000Z")]

    def check(self, job: str) -> None:
        if job not in ("c0ffee", "counts"):
            raise DefinitionError(f"there is no job {job!r}", next="see the jobs there are: poundlock list")

    def stop(self, stopped: StopsJob) -> str | None:
        self.stopped.append(stopped)
        return "/saved/one" if stopped.with_savepoint else None


class Scripts:
    """Scripts that run without a job running: which begin, and what is shown."""

    def __init__(self, *, goes_on: bool = True, control: Control | None = None, folder: Path = Path("state")) -> None:
        self.begun: list[tuple[Job, Beginning | None]] = []
        self.shown: list[ShownRows] = []
        self.goes_on = goes_on
        self.runner = ScriptRunner(
            "s",
            lambda fields, rows: None,
            self.shown.append,
            settings=load_settings([f"state_dir={folder}"]),
            launch=self.launch,
            control=control,
        )

    def launch(self, job: Job, beginning: Beginning | None) -> bool:
        self.begun.append((job, beginning))
        return self.goes_on

    def run(self, script: str) -> bool:
        return self.runner.run(script)


def test_jobs_are_shown_and_stopped() -> None:
    control = Control()
    scripts = Scripts(control=control)
    assert scripts.run(
        "SHOW JOBS; SET 'state.savepoints.dir' = '/saved'; STOP JOB 'c0ffee' WITH SAVEPOINT WITH DRAIN; STOP JOB counts"
    )
    jobs, saved = scripts.shown
    assert [name for name, _ in jobs.columns] == ["job id", "job name", "status", "start time"]
    assert jobs.rows == control.running()
    assert (saved.columns[0][0], saved.rows) == ("savepoint path", [("/saved/one",)])
    assert control.stopped == [
        StopsJob("c0ffee", with_savepoint=True, with_drain=True, directory="/saved"),
        StopsJob("counts", with_savepoint=False, with_drain=False, directory="/saved"),
    ]


@pytest.mark.parametrize(
    ("script", "what", "next"),
    [
        ("STOP JOB", "STOP JOB of no job", "SHOW JOBS"),
        ("STOP JOB 'c0ffee' WITH DRAIN", "WITH DRAIN without a savepoint", "WITH SAVEPOINT WITH DRAIN"),
        ("STOP JOB 'c0ffee' WITH SAVEPOINT NOW", "does not take 'NOW'", "WITH SAVEPOINT"),
        ("STOP JOB 'abc'", "there is no job 'abc'", "poundlock list"),
        ("STOP THAT", "no statement begins with STOP", "STOP JOB"),
        ("SET 'execution.state-recovery.claim-mode' = 'LEGACY'", "LEGACY is not supported", "NO_CLAIM"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(script: str, what: str, next: str) -> None:
    scripts = Scripts(control=Control())
    with pytest.raises(SqlError) as refused:
        scripts.run(f"{TABLES}{INSERT}{script}")
    assert what in refused.value.what
    assert next in refused.value.next
    assert scripts.begun == []


def test_where_nobody_reaches_jobs_statements_about_them_are_refused() -> None:
    with pytest.raises(SqlError, match="have nobody here who reaches them"):
        Scripts().run("SHOW JOBS")


def test_a_job_that_was_stopped_ends_its_script() -> None:
    scripts = Scripts(goes_on=False)
    assert not scripts.run(f"{TABLES}{INSERT}{INSERT}")
    (name,) = (job.name for job, _ in scripts.begun)
    whole = Scripts()
    assert whole.run(f"{TABLES}{INSERT}{INSERT}")
    assert [job.name for job, _ in whole.begun] == [name, f"{name}-2"]


def test_each_job_of_a_script_has_a_checkpoint_folder_of_its_own() -> None:
    scripts = Scripts()
    scripts.run(f"{TABLES}SET 'state.checkpoints.dir' = 'kept/'; {INSERT}SET 'pipeline.name' = 'mine'; {INSERT}")
    one, other = (job for job, _ in scripts.begun)
    assert (one.checkpoint_dir, other.checkpoint_dir) == (f"kept/{one.name}", "kept/mine")


@pytest.mark.parametrize("key", ["execution.state-recovery.path", "execution.savepoint.path"])
def test_a_savepoint_that_is_none_is_refused_before_anything_runs(tmp_path: Path, key: str) -> None:
    scripts = Scripts(folder=tmp_path)
    with pytest.raises(SqlError, match="there is no savepoint in"):
        scripts.run(f"{TABLES}{INSERT} SET '{key}' = '{tmp_path}/none'; {INSERT}")
    assert scripts.begun == []


def test_how_a_job_begins_is_as_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    monkeypatch.setattr("poundlock.sql.running.runner.refuse_unfit", lambda job, beginning: checked.append(beginning))
    scripts = Scripts(folder=tmp_path)
    scripts.run(
        f"""{TABLES}
        SET 'execution.savepoint.path' = '{tmp_path}/s'; SET 'execution.savepoint.ignore-unclaimed-state' = 'true';
        SET 'execution.savepoint-restore-mode' = 'claim'; {INSERT}
        RESET 'execution.state-recovery.path'; {INSERT}"""
    )
    begun = Beginning(str(tmp_path / "s"), allow_non_restored=True, claim="CLAIM")
    assert [beginning for _, beginning in scripts.begun] == [begun, None]
    assert checked == [begun]


def test_each_job_is_planned_once_as_tables_and_settings_are_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    inserts = JobBuilder.inserts

    def noted(self: JobBuilder, result: RunsInserts) -> None:
        planned.append(self.job.name)
        inserts(self, result)

    monkeypatch.setattr(JobBuilder, "inserts", noted)
    scripts = Scripts()
    other = "DROP TABLE t; CREATE TABLE t (color STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json');"
    assert scripts.run(f"{TABLES}{INSERT}SET 'parallelism.default' = '3';{INSERT}{other}{INSERT}RESET;{INSERT}")
    jobs = [job for job, _ in scripts.begun]
    assert planned == [job.name for job in jobs]
    assert [job.parallelism for job in jobs] == [None, 3, 3, None]
    paths = [node.source.path for job in jobs for node in job.sources]
    assert [path.rpartition("/")[2] for path in paths] == ["in", "in", "other", "other"]
    assert [job.name.removeprefix(jobs[0].name) for job in jobs[:2]] == ["", "-2"]
    assert jobs[3].name == f"{jobs[2].name}-2"


def test_what_stands_behind_a_job_that_was_stopped_is_not_defined() -> None:
    scripts = Scripts(goes_on=False)
    assert not scripts.run(f"{TABLES}{INSERT}CREATE VIEW v AS SELECT 1 AS n; SET 'parallelism.default' = '3'")
    with pytest.raises(SqlError, match="v"):
        scripts.run("SELECT n FROM v")
    assert scripts.runner.session.settings == {}


def test_a_table_that_is_filled_as_it_is_created_is_there_behind_it() -> None:
    scripts = Scripts()
    assert scripts.run(
        f"{TABLES}CREATE TABLE filled WITH ('connector' = 'blackhole') AS SELECT color FROM t; INSERT INTO filled SELECT color FROM t"
    )
    assert len(scripts.begun) == 2
    assert scripts.run("INSERT INTO filled SELECT UPPER(color) FROM t")


def test_a_plan_is_explained_as_settings_are_at_its_place() -> None:
    scripts = Scripts()
    changes = "EXPLAIN CHANGELOG_MODE SELECT color, SUM(n) FROM t GROUP BY color;"
    assert scripts.run(f"{TABLES}{changes}SET 'execution.runtime-mode' = 'batch';{changes}")
    streaming, batch = (str(shown.rows[0][0]) for shown in scripts.shown)
    assert "changelogMode=[I,UB,UA,D]" in streaming
    assert "changelogMode=[I,UB,UA,D]" not in batch


def test_a_script_says_how_its_jobs_are_restarted(tmp_path: Path) -> None:
    scripts = Scripts(folder=tmp_path)
    sets = "SET 'restart-strategy.type' = 'fixed-delay'; SET 'restart-strategy.fixed-delay.attempts' = '3'; SET 'execution.checkpointing.mode' = 'EXACTLY_ONCE';"
    scripts.runner.run(f"{TABLES} {sets} SET 'restart-strategy.fixed-delay.delay' = '2 s'; {INSERT}")
    (begun,) = scripts.begun
    assert begun[0].restart == FixedDelayRestart(attempts=3, delay="2 s")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("restart-strategy.type", "sometimes"),
        ("restart-strategy.fixed-delay.attempts", "many"),
        ("execution.checkpointing.mode", "AT_LEAST_ONCE"),
    ],
)
def test_what_a_restart_or_a_checkpoint_cannot_be_is_refused(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="line 1, column 1") as refused:
        Scripts(folder=tmp_path).runner.check(f"SET '{key}' = '{value}'")
    assert refused.value.kind == "bad_option_value"
