"""What is submitted to a cluster, without one: the command, what travels, what is refused, and what is read of the answer."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from poundlock.config import load_settings
from poundlock.control import spark_submit as submission
from poundlock.control.cluster_driver import NOT_INSTALLED, OTHER_PYTHON, Container, container
from poundlock.control.spark_submit import SETTINGS, Submission, check, refusal, travelling
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.job import Job
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session_conf import SessionSpec

JOB_ID = "a" * 32


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that knows a YARN, which is not there."""
    conf = tmp_path / "hadoop"
    conf.mkdir()
    name, value = "yarn.resourcemanager.address", "127.0.0.1:9"
    (conf / "yarn-site.xml").write_text(
        f"<configuration><property><name>{name}</name><value>{value}</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: to make the package's zip takes seconds."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module and a package beside the job, which the job has imported."""
    beside = tmp_path / "beside"
    (beside / "package").mkdir(parents=True)
    (beside / "helper_of_job.py").write_text("NAME = 1\n")
    (beside / "package" / "__init__.py").write_text("")
    (beside / "package" / "later.py").write_text("NAME = 2\n")
    monkeypatch.syspath_prepend(str(beside))
    known = set(sys.modules)
    __import__("helper_of_job")
    __import__("package")
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def made(folder: Path, cache: Path, *options: str, **more: str) -> Submission:
    (folder / "job.py").touch()
    settings = load_settings(options, master="yarn", cache_dir=cache, **more)
    return Submission(
        job=Job("events", parallelism=2), settings=settings, file=Path("job.py"), name="second",
        checkpoint="hdfs://host/checkpoint", job_id=JOB_ID, arguments=["-s", "hdfs://host/saved"],
    )  # fmt: skip


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_command(alone: Path, cache: Path) -> None:
    command = made(alone, cache, "spark.yarn.queue=etl").command(alone)
    assert command[1].endswith("/bin/spark-submit")
    assert (option(command, "--master"), option(command, "--deploy-mode")) == ("yarn", "cluster")
    assert option(command, "--name") == "events"
    assert option(command, "--files") == f"{alone}/job.py,{alone}/{SETTINGS}"
    assert "--jars" not in command
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    after = command[command.index(str(alone / "poundlock_submitted.py")) + 1 :]
    assert after == [
        version, "hdfs://host/checkpoint", JOB_ID,
        "run", "job.py:second", "--config", SETTINGS, "--no-rest", "-s", "hdfs://host/saved",
    ]  # fmt: skip
    properties = (alone / "spark.conf").read_text().splitlines()
    assert "spark.yarn.queue etl" in properties
    assert "spark.yarn.submit.waitAppCompletion false" in properties
    assert "spark.executor.instances 2" in properties
    assert f"spark.yarn.appMasterEnv.PYSPARK_PYTHON {sys.executable}" in properties


def test_spark_settings_of_the_user_win_and_stacks_are_large(alone: Path, cache: Path) -> None:
    given = made(
        alone, cache, "spark.yarn.am.waitTime=1min", "spark.driver.extraJavaOptions=-Dx=y", "spark.executor.instances=7"
    )
    conf = given.conf()
    assert conf["spark.yarn.am.waitTime"] == "1min"
    assert conf["spark.executor.instances"] == "7"
    assert conf["spark.driver.extraJavaOptions"] == "-Xss16m -Dx=y"


def test_a_packed_environment_is_the_python_of_driver_and_tasks(alone: Path, cache: Path) -> None:
    (alone / "packed.tar.gz").touch()
    conf = made(alone, cache, archives="packed.tar.gz#env").conf()
    assert conf["spark.archives"] == f"{alone}/packed.tar.gz#env"
    for name in ("appMasterEnv.PYSPARK_PYTHON", "appMasterEnv.PYSPARK_DRIVER_PYTHON"):
        assert conf[f"spark.yarn.{name}"] == "./env/bin/python"
    assert conf["spark.executorEnv.PYSPARK_PYTHON"] == "./env/bin/python"


@pytest.mark.usefixtures("helpers")
def test_modules_that_the_job_imports_travel(alone: Path, cache: Path) -> None:
    python = option(made(alone, cache).command(alone), "--py-files").split(",")
    assert Path(python[0]).name.startswith("poundlock-")
    with zipfile.ZipFile(python[-1]) as opened:
        names = opened.namelist()
    assert {"helper_of_job.py", "package/__init__.py", "package/later.py"} <= set(names)
    assert not any(name.startswith("poundlock/") for name in names)


def test_settings_travel_as_they_are(alone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POUNDLOCK_CHECKPOINT_INTERVAL", "1500 ms")
    (alone / "poundlock.toml").write_text('parallelism = 3\n[spark]\n"sql.shuffle.partitions" = 7\n')
    odd = 'a "quoted" \\ ü\ttext'
    given = load_settings(
        ["restart-strategy.type=fixed-delay", "restart-strategy.fixed-delay.attempts=4", f"spark.app.note={odd}"],
        master="yarn", deploy_mode="cluster", cache_dir=cache, archives="x.zip", rest_enabled=False,
    )  # fmt: skip
    monkeypatch.delenv("POUNDLOCK_CHECKPOINT_INTERVAL")
    there = alone / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    (there / SETTINGS).write_text(travelling(given))
    found = load_settings(config=SETTINGS)
    assert (found.master, found.deploy_mode, found.parallelism) == ("yarn", "client", 3)
    assert found.checkpoint_interval == timedelta(milliseconds=1500)
    assert found.restart_strategy_fixed_delay_attempts == 4
    assert found.spark == {"spark.app.note": odd, "spark.sql.shuffle.partitions": "7"}
    assert (found.archives, found.py_files) == ((), ())


def test_a_file_of_properties_is_escaped() -> None:
    assert submission._escaped("a b\\c\nd=é") == "a b\\\\c\\nd=\\u00e9"
    assert submission._escaped(" x") == "\\ x"
    assert submission._escaped("a:b=c d", ":= ") == "a\\:b\\=c\\ d"
    assert submission._escaped("𝄞") == "\\ud834\\udd1e"


def test_what_cannot_run_there_is_refused_before_anything_is_submitted(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yarn = load_settings(master="yarn")
    with pytest.raises(DefinitionError, match=r"the checkpoint /c is a folder of one machine") as raised:
        check(yarn, "/c", None)
    assert raised.value.next.endswith("-D checkpoint_dir=hdfs://…")
    with pytest.raises(DefinitionError, match=r"the savepoint /s is a folder of one machine"):
        check(yarn, "hdfs://h/c", Beginning("/s"))
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:9 \(Connection refused\)"):
        check(yarn, "hdfs://h/c", Beginning("hdfs://h/s"))
    with pytest.raises(DefinitionError, match="no driver in Python"):
        check(load_settings(master="spark://h:1"), "hdfs://h/c", None)
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(DefinitionError, match="HADOOP_CONF_DIR, which is not set"):
        check(yarn, "hdfs://h/c", None)


@pytest.mark.parametrize(
    ("said", "kind", "what", "next"),
    [
        (
            'Exception in thread "main" java.lang.IllegalArgumentException: Required AM memory (99000+9900 MB) is above '
            "the max threshold (8192 MB) of this cluster!",
            DefinitionError,
            "Required AM memory (99000+9900 MB) is above",
            "-D driver_memory=…",
        ),
        (
            "java.lang.IllegalArgumentException: Required executor memory (99000 MB), overhead (9900 MB) is above",
            DefinitionError,
            "Required executor memory",
            "spark.executor.memory",
        ),
        (
            "INFO Client: Submitting application_1_1\norg.apache.hadoop.yarn.exceptions.YarnException: Failed to submit "
            "application_1_1 to YARN : Application application_1_1 submitted by user u to unknown queue: q",
            DefinitionError,
            "unknown queue: q",
            "spark.yarn.queue",
        ),
        ("java.net.ConnectException: Call From a to b failed", TransientError, "Call From a to b failed", "read "),
        ("what is this\n\n", PoundlockError, "did not take the job: what is this", "read "),
        ("", PoundlockError, "it printed nothing", "read "),
    ],
)
def test_why_it_was_not_taken(said: str, kind: type[PoundlockError], what: str, next: str) -> None:
    error = refusal(said, "yarn", Path("/log"))
    assert type(error) is kind
    assert what in error.what
    assert next in error.next


def program(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(submission._MAIN)
    return subprocess.run(
        [sys.executable, "-S", "main.py", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_another_python_and_a_missing_package_are_told_by_the_exit_code(alone: Path) -> None:
    wrong = program(alone, "3.1")
    assert wrong.returncode == OTHER_PYTHON + sys.version_info[1]
    assert "submitted by Python 3.1" in wrong.stderr
    missing = program(alone, f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert missing.returncode == NOT_INSTALLED
    assert "cannot import what poundlock needs" in missing.stderr


def test_a_container_is_known_by_its_id() -> None:
    found = Container.of("container_e17_1410901177871_0012_02_000001", checkpoint="hdfs://h/c", job_id=JOB_ID)
    assert (found.application, found.attempt) == ("application_1410901177871_0012", 2)
    assert Container.of("container_1_1_01_1", checkpoint="c", job_id=JOB_ID).attempt == 1
    assert container({"POUNDLOCK_SUBMITTED": found.to_environment()}) == found
    assert container({}) is None
    with pytest.raises(ValueError, match="no container"):
        Container.of("x", checkpoint="c", job_id=JOB_ID)


def test_tasks_on_yarn_find_the_file_systems_of_the_driver(alone: Path) -> None:
    spec = SessionSpec(name="events", master=Master.of("yarn"), jvm_log=alone / "log", cores=2)
    conf = spec.settings()
    assert conf["spark.executorEnv.HADOOP_CONF_DIR"] == "{{PWD}}/__spark_conf__/__hadoop_conf__"
    assert conf["spark.executor.instances"] == "2"
    assert conf["spark.python.unix.domain.socket.dir"] == "/tmp", "a container's own is too long for a socket"
    elsewhere = SessionSpec(name="events", master=Master.of("spark://h:1"), jvm_log=alone / "log").settings()
    assert "spark.executorEnv.HADOOP_CONF_DIR" not in elsewhere
