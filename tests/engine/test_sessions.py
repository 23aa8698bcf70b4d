"""Sessions with a real Spark: started, killed, started again in one process; a job in the user's own session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

PRELUDE = """
import json, logging, os, signal, sys, threading, time
from pathlib import Path
from poundlock import DatagenSource, FileSink, FileSource, Job, NoRestart
from poundlock.config import load_settings
from poundlock.driver.driver import run
folder = Path(sys.argv[1])
settings = load_settings([f"state_dir={folder}/state", "master=local[2]", "driver_memory=512m"])

def made(name, rows=50, **more):
    job = Job(name, checkpoint_interval="0 s", restart=NoRestart(), **more)
    source = DatagenSource(count=rows) if rows else DatagenSource(rate=200)
    job.from_source(source, name="in").sink_to(FileSink(str(folder / name), row="value"), name="out")
    return job

def lines(name):
    return sum(len(p.read_text().splitlines()) for p in (folder / name).rglob("part-*"))
"""


def program(folder: Path, text: str, *, quiet: bool = True) -> str:
    """Run a program in a process of its own, for a JVM is for a whole process; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + text, str(folder)], capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not quiet or done.stderr == "", "nothing of Spark's reaches the terminal"
    return done.stdout


def test_two_jobs_one_after_the_other_without_sql(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
for name in ("one", "two"):
    assert run(made(name), settings=settings).state == "FINISHED"
from pyspark.sql import SparkSession
print(json.dumps([lines("one"), lines("two"), "pandas" in sys.modules, SparkSession._instantiatedSession is None]))
""",
    )
    assert json.loads(out) == [50, 50, False, True]


def test_a_jvm_that_dies_is_noticed_at_once_and_another_one_started(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
from poundlock import FixedDelayRestart
from poundlock.driver.progress import StopRequest
job = made("killed", rows=0)
job.restart = FixedDelayRestart(attempts=3, delay="0 s")
stop, seen, killed = StopRequest(), [], []

def children():
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and is_java(p)]

def is_java(p):
    try:
        parent = int((p / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"PythonGatewayServer" in (p / "cmdline").read_bytes()
    except OSError:
        return False

def watch(progress):
    seen.append((time.monotonic(), progress))
    if progress.checkpoint is not None and progress.checkpoint >= 1 and not killed:
        [java] = children()
        os.kill(java, signal.SIGKILL)
        killed.append((time.monotonic(), progress.checkpoint))
    if killed and progress.state == "RUNNING" and progress.checkpoint is not None and progress.checkpoint > killed[0][1] + 2:
        stop.stop()

progress = run(job, settings=settings, on_progress=watch, stop=stop)
restarted = next((at, p) for at, p in seen if p.state == "RESTARTING")
print(json.dumps([progress.state, progress.restarts, restarted[1].message, children()]))
""",
    )
    state, restarts, message, left = json.loads(out)
    assert (state, restarts, left) == ("FINISHED", 1, [])
    assert "the JVM of this job is gone" in message or "the Java process of Spark ended" in message


def test_a_java_that_does_not_start_is_told_with_the_last_line_of_its_log(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
from poundlock.errors import DefinitionError
job = made("unstartable")
job.spark = {"spark.driver.extraJavaOptions": "-Xmx1k"}
try:
    run(job, settings=settings)
except DefinitionError as error:
    print(error)
assert run(made("after"), settings=settings).state == "FINISHED"
""",
    )
    assert "Spark did not start: " in out
    assert "unstartable.jvm.log, or type: poundlock doctor" in out


@pytest.mark.parametrize("after_s", [0.1, 1.5, 3.0])
def test_a_jvm_that_is_killed_while_spark_starts_is_started_again(tmp_path: Path, after_s: float) -> None:
    out = program(
        tmp_path,
        f"after_s = {after_s}"
        """
import subprocess, tempfile
from poundlock import FixedDelayRestart
from poundlock.spark.launch import jvm
tempfile.tempdir = str(folder / "tmp")
os.mkdir(tempfile.tempdir)
started = []

class Killed(subprocess.Popen):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        if jvm.private.GATEWAY_CLASS in arguments[0]:
            started.append(self.pid)
            if len(started) == 1:
                threading.Timer(after_s, self.kill).start()

jvm.subprocess.Popen = Killed
job, said = made("killed", rows=2_000), []
job.restart = FixedDelayRestart(attempts=3, delay="0 s")
progress = run(job, settings=settings, on_progress=lambda progress: said.append(progress.message))
left = [path.name for path in (folder / "tmp").iterdir() if path.name.startswith("poundlock-jvm-")]
print(json.dumps([progress.state, progress.restarts == len(started) - 1, lines("killed"), left, "Broken pipe" in str(said)]))
""",
    )
    assert json.loads(out) == ["FINISHED", True, 2_000, [], False]


def test_what_spark_cannot_plan_names_operator_and_line_and_its_cause_outlives_the_jvm(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
import traceback
job = Job("misspelt", restart=NoRestart())
job.from_source(DatagenSource(count=5), name="in").where("valeu IS NOT NULL", name="few").sink_to(FileSink(str(folder / "out"), format="json"), name="out")
try:
    run(job, settings=settings)
except Exception as error:
    print(error)
    print("".join(traceback.format_exception(error)))
""",
    )
    what, next, log = out.split("\n", 2)
    assert what.startswith("few (<string>:")
    assert "Spark cannot plan the job: [UNRESOLVED_COLUMN" in what
    assert "valeu" in what
    assert next == "Next: mend the expression, schema or path it names"
    assert "AnalysisException: [UNRESOLVED_COLUMN" in log
    assert "exception str() failed" not in log


def test_jobs_in_a_session_of_the_users_own(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
    .config("spark.log.level", "OFF").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
before = dict(spark.sparkContext.getConf().getAll()), dict(os.environ), {s: signal.getsignal(s) for s in (2, 15)}
ended = made("ended").start(spark, settings=settings)
assert ended.await_termination(120)
going = made("going", rows=0).start(spark, settings=settings)
while going.progress.checkpoint is None or going.progress.checkpoint < 2:
    assert not going.await_termination(0.05)
busy = going.status
path = going.savepoint(str(folder / "savepoints"), timeout=60)
still = going.status
going.stop()
assert going.await_termination(60)
cancelled = made("cancelled", rows=0).start(spark, settings=settings)
while cancelled.progress.checkpoint is None:
    assert not cancelled.await_termination(0.05)
cancelled.cancel()
assert cancelled.await_termination(60)
slow = Job("slow", checkpoint_interval="0 s", restart=NoRestart())
sleeping = slow.from_source(DatagenSource(count=10), name="in").filter(lambda row: time.sleep(60) is None, name="sleeps")
sleeping.sink_to(FileSink(str(folder / "slow"), row="value"), name="out")
ending, tracker = slow.start(spark, settings=settings), spark.sparkContext.statusTracker()
while ending.status != "RUNNING" or not tracker.getActiveStageIds():
    assert not ending.await_termination(0.05)
ending.cancel()
assert ending.await_termination(60)
tasks_left = list(tracker.getActiveStageIds())
refused = made("refused").start(spark, settings=settings, from_savepoint=str(folder / "nowhere"))
try:
    refused.await_termination(60)
except Exception as error:
    why = type(error).__name__
of_its_own = made("settings")
of_its_own.spark["spark.sql.ansi.enabled"] = "false"
try:
    of_its_own.start(spark, settings=settings)
except Exception as error:
    no_effect = "nothing is set in a session that exists" in str(error)
after = dict(spark.sparkContext.getConf().getAll()), dict(os.environ), {s: signal.getsignal(s) for s in (2, 15)}
print(json.dumps([
    no_effect, ended.status, lines("ended"), busy, Path(path).is_dir(), still, going.status, lines("going") == going.progress.rows_written,
    cancelled.status, ending.status, tasks_left, refused.status, why, before == after, spark.range(3).count(), repr(ended),
]))
spark.stop()
try:
    made("late").start(spark, settings=settings)
except Exception as error:
    print(error)
""",
        quiet=False,
    )
    rows, _, late = out.partition("\n")
    assert json.loads(rows) == [
        *(True, "FINISHED", 50, "RUNNING", True, "RUNNING", "FINISHED", True, "CANCELED", "CANCELED", []),
        *("FAILED", "DefinitionError", True, 3, "<job ended: FINISHED, checkpoint 0, 50 rows>"),
    ]
    assert late.startswith("the Spark session was stopped")


def test_a_preview_shows_first_rows_and_leaves_nothing(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        """
import tempfile
tempfile.tempdir = str(folder / "tmp")
os.mkdir(tempfile.tempdir)
(folder / "in").mkdir()
for part in range(4):
    (folder / "in" / f"{part}.jsonl").write_text("".join(json.dumps({"n": 100_000 * part + n}) + "\\n" for n in range(100_000)))
job = Job("looked-at")
numbers = job.from_source(FileSource(str(folder / "in"), format="json", schema="n BIGINT", split_size="100 kB"), name="in")
even = numbers.filter(lambda row: row["n"] % 2 == 0)
first = even.preview(5, settings=settings)
few = numbers.filter(lambda row: row["n"] < 3).preview(5, settings=settings)
endless = job.preview(job.from_source(DatagenSource(rate=50), name="rate"), 3, settings=settings)
left = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "state/logs" not in str(p) and "in/" not in str(p))
print(json.dumps([first, sorted(row["n"] for row in few), [sorted(row) for row in endless], left]))
""",
    )
    first, few, endless, left = json.loads(out)
    assert [set(row) for row in first] == [{"n"}] * 5
    assert all(row["n"] % 2 == 0 for row in first)
    assert few == [0, 1, 2]
    assert endless == [["value"]] * 3
    assert left == ["in", "state", "tmp"]


USERS = """
from collections.abc import Iterator
from poundlock import KeyedProcessFunction, SparkSource, ValueStateDescriptor
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
    .config("spark.sql.session.timeZone", "America/New_York").config("spark.log.level", "OFF").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

class Numbering(KeyedProcessFunction):
    def open(self, context):
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value, ctx):
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": self.rows.value()}

def put(number, folder=folder):
    (folder / "in").mkdir(exist_ok=True)
    text = "".join(json.dumps({"k": f"k{n % 3}", "at": 1_545_184_220_000 + n}) + "\\n" for n in range(30 * number, 30 * number + 30))
    (folder / "in" / f".{number}").write_text(text)
    (folder / "in" / f".{number}").rename(folder / "in" / f"{number}.json")

def files(**more):
    return FileSource(str(folder / "in"), format="json", schema="k string, at bigint", **more)

def keyed(name, **more):
    job = Job(name, checkpoint_interval="0 s", restart=NoRestart(), parallelism=2)
    rows = job.from_source(files(**more), name="in").key_by("k").process(Numbering(), schema="k string, n bigint", name="numbering")
    rows.sink_to(FileSink(str(folder / name), format="json"), name="out")
    return job, rows

def read(name):
    return sorted(tuple(json.loads(line).values()) for p in (folder / name).rglob("part-*") for line in p.read_text().splitlines())

put(0)
"""


def test_keyed_jobs_side_by_side_in_a_session_of_the_users_own(tmp_path: Path) -> None:
    out = program(
        tmp_path,
        USERS
        + """
one, two = keyed("one", watch=True, discover_every="200 ms")[0].start(spark, settings=settings), keyed("two")[0].start(spark, settings=settings)
assert two.await_termination(300)
while one.progress.rows_read < 30:
    assert not one.await_termination(0.05)
saved = one.savepoint(str(folder / "savepoints"), timeout=200)
one.stop()
assert one.await_termination(200)
print(json.dumps([one.status, two.status, Path(saved).is_dir(), read("one"), read("two")]))
""",
        quiet=False,
    )
    *states, one, two = json.loads(out)
    assert states == ["FINISHED", "FINISHED", True]
    assert one == two == [[f"k{k}", n] for k in range(3) for n in range(1, 11)]


def test_the_time_zone_of_a_session_of_the_users_own(tmp_path: Path) -> None:
    """Segments and streams of Spark run in UTC beside it; nothing of it is changed, and previews are of the same rows."""
    out = program(
        tmp_path,
        USERS
        + """
def late(rows):
    return rows.where("hour < 3").selectExpr("hour", "unix_timestamp(CAST('2018-12-19 01:50:20' AS TIMESTAMP)) AS t")

before = spark.conf.get("spark.sql.session.timeZone")
job = Job("zones", checkpoint_interval="0 s", restart=NoRestart())
hours = job.from_source(files(), name="in").select("hour(timestamp_millis(at)) AS hour", "k").apply(late)
hours.sink_to(FileSink(str(folder / "hours"), format="json"), name="out")
streamed = Job("streamed", checkpoint_interval="0 s", restart=NoRestart())
source = SparkSource("json", schema="k string, at bigint", path=str(folder / "in"), bounded=True)
days = streamed.from_source(source, name="in").select("date_format(timestamp_millis(at), 'yyyy-MM-dd HH') AS day")
days.sink_to(FileSink(str(folder / "days"), format="json"), name="out")
handles = [each.start(spark, settings=settings) for each in (job, streamed)]
assert all(handle.await_termination(300) for handle in handles)
first = [row["hour"] for row in hours.preview(2, spark=spark, settings=settings, timeout="300 s")]
numbered = [set(row) for row in keyed("shown")[1].preview(2, spark=spark, settings=settings, timeout="300 s")]
after = spark.conf.get("spark.sql.session.timeZone")
own = spark.sql("SELECT hour(timestamp_millis(1545184220000)) AS hour").first()["hour"]
group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
seen = [sorted({row[0] for row in read("hours")}), sorted({row[1] for row in read("hours")}), len(read("days")), read("days")[0]]
print(json.dumps([seen, first, [sorted(row) for row in numbered], before == after, own, group]))
""",
        quiet=False,
    )
    seen, first, numbered, same, own, group = json.loads(out)
    assert seen == [[1], [1545184220], 30, ["2018-12-19 01"]]
    assert (first, numbered) == ([1, 1], [["k", "n"]] * 2)
    assert (same, own, group) == (True, 20, None)
