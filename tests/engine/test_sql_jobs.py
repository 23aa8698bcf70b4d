"""Jobs of scripts on a real Spark: seen and asked from outside as all others, and gone on with from a savepoint after the script was changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, FileSource, Job, NoRestart, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.cli.job_lookup import find_job, progress_of
from poundlock.cli.main import main
from poundlock.cli.options import Call
from poundlock.config import load_settings
from poundlock.control.driver_status import start_command
from poundlock.control.registry import JobEntry, Registry
from poundlock.driver.driver import run

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ROWS = [
    {"color": ("red", "blue", "green")[n % 3], "n": n, "ts": f"2026-01-05 10:{n // 60:02}:{n % 60:02}"}
    for n in range(120)
]
TABLES = """
SET 'execution.checkpointing.interval' = '0 s';
CREATE TABLE events (color STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'events', 'format' = 'json'{more});
CREATE TABLE totals (color STRING, n BIGINT{column}) WITH ('connector' = 'filesystem', 'path' = '{to}/totals', 'format' = 'debezium-json');
CREATE TABLE counts (begins TIMESTAMP(3), color STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{to}/counts', 'format' = 'json');
CREATE TABLE big (color STRING, n INT) WITH ('connector' = 'filesystem', 'path' = '{to}/big', 'format' = 'json');
"""
FIRST = """
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals SELECT color, SUM(n) FROM events GROUP BY color;
INSERT INTO counts SELECT window_start, color, COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '40' SECOND)) GROUP BY window_start, window_end, color;
END
"""
SECOND = """
EXECUTE STATEMENT SET BEGIN
INSERT INTO big SELECT color, n FROM events WHERE n > 100;
INSERT INTO totals SELECT color, SUM(n), UPPER(color) FROM events GROUP BY color;
INSERT INTO counts SELECT window_start, color, COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '40' SECOND)) GROUP BY window_start, window_end, color;
END
"""


def give(rows: list[dict[str, Any]], name: str) -> None:
    """Put rows into a file of the table that is read."""
    Path("events").mkdir(exist_ok=True)
    Path(f"events/.{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path(f"events/.{name}").rename(f"events/{name}")


def tables(to: str, *, column: str = "", endless: bool = False) -> str:
    """Return the tables of a script."""
    more = ", 'source.monitor-interval' = '100 ms'" if endless else ""
    return TABLES.format(to=to, column=column, more=more)


def script(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def listed() -> list[JobEntry]:
    return Registry(Path("state")).entries()


def asked_while_it_runs(file: str, ask: Callable[[JobEntry], None], rows: int) -> int:
    """Run a script; ask for something when its job has read so many rows. Return the script's exit code."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            end = time.monotonic() + 240
            while time.monotonic() < end:
                running = [entry for entry in listed() if entry.state == "RUNNING"]
                job = find_job(running[0].job_id, Call()) if running else None
                if job is not None and ((progress_of(job, lambda why: None) or {}).get("rows_read") or 0) >= rows:
                    ask(job.entry)
                    return
                time.sleep(0.05)
            raise TimeoutError("the job has not read its rows")
        except BaseException as error:
            failures.append(error)
            for entry in listed():
                if not entry.ended:
                    main(["cancel", entry.job_id])

    asking = threading.Thread(target=work, daemon=True)
    asking.start()
    code = main(["sql", file, "-p", "2"])
    asking.join(60)
    if failures:
        raise failures[0]
    return code


def stopped_with_savepoint(entry: JobEntry) -> None:
    text = f"SET 'execution.checkpointing.savepoint-dir' = 'saved'; SHOW JOBS; STOP JOB '{entry.job_id}' WITH SAVEPOINT"
    assert main(["sql", "-e", text]) == 0


def drained(entry: JobEntry) -> None:
    asked("sql", "-e", f"STOP JOB '{entry.job_id}' WITH SAVEPOINT WITH DRAIN")


def asked(*arguments: str) -> None:
    assert main([*arguments]) == 0


def the_savepoint() -> str:
    (path,) = Path("saved").iterdir()
    return str(path.resolve())


def lines(folder: str) -> list[dict[str, Any]]:
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name[0] not in "._"]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def table_of(changes: list[dict[str, Any]]) -> list[str]:
    """Return what a table of changes comes to: a row is told apart by its key, the first column."""
    table: dict[str, Any] = {}
    for change in changes:
        if change["op"] == "c":
            table[change["after"]["color"]] = change["after"]
        elif table.get(change["before"]["color"]) == change["before"]:
            del table[change["before"]["color"]]
    return sorted(map(str, table.values()))


def test_a_job_of_a_script_is_listed_and_asked_as_all_others(
    own_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    give(ROWS[:30], "0.json")
    text = tables("out", endless=True) + "INSERT INTO big SELECT color, n FROM events WHERE n > 3;\nSELECT 'not run';"

    def ask(entry: JobEntry) -> None:
        assert entry.name.startswith("script-")
        assert Path(entry.checkpoint_dir).parent == own_folder / "state/checkpoints"
        for command in ("checkpoint", "info", "logs"):
            assert main([command, entry.job_id[:8]]) == 0
        stopped_with_savepoint(entry)

    assert asked_while_it_runs(script("script.sql", text), ask, 30) == 0
    out, err = capfd.readouterr()
    (ended,) = listed()
    assert (ended.state, ended.exit_code) == ("FINISHED", 0)
    assert f"| {ended.job_id} | {ended.name} | RUNNING | " in out
    assert "poundlock sql script.sql -p 2" in out
    assert the_savepoint() in out
    assert "not run" not in out
    assert "the job was stopped: no statement behind it has run" in err
    assert start_command(ended) == f"poundlock sql -s {the_savepoint()} script.sql -p 2"
    assert main(["audit", ended.name]) == 0
    assert main(["ledger", ended.name]) == 0
    assert main(["sql", "script.sql"]) == 2
    assert f"Next: go on from it: poundlock sql -s {the_savepoint()} script.sql; or" in capfd.readouterr().err


def test_a_savepoint_goes_on_after_a_column_and_a_sink_were_added(
    own_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    give(ROWS[:60], "0.json")
    first = tables("out", endless=True) + FIRST
    assert asked_while_it_runs(script("first.sql", first), stopped_with_savepoint, 60) == 0
    give(ROWS[60:], "1.json")
    begun = f"SET 'execution.state-recovery.path' = '{the_savepoint()}';"

    capfd.readouterr()
    other = tables("out") + begun + FIRST.replace("SUM(n) FROM events GROUP BY color", "SUM(n) FROM events GROUP BY n")
    other = other.replace("INSERT INTO totals SELECT color,", "INSERT INTO totals SELECT MAX('x'),")
    assert main(["sql", script("other.sql", other)]) == 2
    *_, what, next = capfd.readouterr().err.splitlines()
    assert "has state of stateful 'group-aggregate-color-" in what
    assert "its keys were color STRING and are n INT" in what
    assert next.startswith("Next: write the statement as it was; or SET 'execution.state-recovery.ignore-unclaimed")
    assert [entry.name for entry in listed() if entry.name.startswith("other")] == [], "nothing has begun"

    wide = ", label STRING"
    second = script("second.sql", tables("out", column=wide, endless=True) + begun + SECOND)
    assert asked_while_it_runs(second, lambda entry: asked("stop", entry.job_id), 60) == 0
    assert "Restored from savepoint" in capfd.readouterr().err
    assert asked_while_it_runs(second, drained, 0) == 0
    assert "Begun with savepoint" in capfd.readouterr().err, "it goes on"

    whole = script("whole.sql", tables("whole", column=wide) + SECOND)
    assert main(["sql", whole, "-p", "2"]) == 0
    assert sorted(map(str, lines("out/counts"))) == sorted(map(str, lines("whole/counts")))
    assert len(lines("out/counts")) == 9
    assert sorted(map(str, lines("out/big"))) == sorted(map(str, lines("whole/big")))
    assert table_of(_widened(lines("out/totals"))) == table_of(lines("whole/totals"))


def test_sql_and_streams_of_a_job_go_through_each_other(own_folder: Path) -> None:
    give(ROWS, "0.json")
    job = Job("mixed", on_error="fail", checkpoint_interval="0 s", parallelism=2, restart=NoRestart())
    times = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="ts")
    source = FileSource("events", format="json", schema="color string, n int, ts timestamp")
    job.create_temporary_view("events", job.from_source(source, times, name="events").filter(large, name="large"))
    timed = job.sql("SELECT color, n * 2 AS twice, event_time AS seen FROM events")
    windows = timed.key_by("color").window(TumblingEventTimeWindows("40 s"))
    sums = windows.aggregate("sum(twice) AS n", name="sums").select("color", "CAST(n AS BIGINT) AS n", name="sums-of")
    sums.sink_to(FileSink("by-stream", format="json"), name="by-stream")
    job.sql(
        """CREATE TABLE by_sql (color STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'by-sql', 'format' = 'json');
        INSERT INTO by_sql SELECT color, SUM(n * 2)
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '40' SECOND))
        GROUP BY window_start, window_end, color"""
    )
    totals = job.sql("SELECT color, SUM(n) AS n FROM events GROUP BY color")
    totals.filter(added, name="added").sink_to(FileSink("totals", format="json"), name="totals")
    assert run(job, settings=load_settings(["master=local[2]"])).state == "FINISHED"
    kept = [row for row in ROWS if row["n"] > 5]
    assert sorted(row["n"] for row in lines("by-stream")) == sorted(row["n"] for row in lines("by-sql"))
    assert sum(row["n"] for row in lines("by-sql")) == 2 * sum(row["n"] for row in kept)
    newest = {row["color"]: row["n"] for row in lines("totals")}
    assert newest == {color: sum(r["n"] for r in kept if r["color"] == color) for color in ("red", "blue", "green")}


def large(row: Any) -> bool:
    return bool(row["n"] > 5)


def added(row: Any) -> bool:
    return row["row_kind"] in ("+I", "+U")


def _widened(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return changes in which rows of before have the column that was added."""
    for change in changes:
        for side in ("before", "after"):
            if change[side] is not None:
                change[side] = {**change[side], "label": change[side]["color"].upper()}
    return changes
