"""Submitting a job whose driver runs on the cluster: what travels with it, the command of spark-submit, the application's id.

spark-submit ends when the cluster has taken the job. How it goes from then on its driver says, see `control_server.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from poundlock.config import Settings
from poundlock.control.cluster_driver import NOT_INSTALLED, OTHER_PYTHON
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.job import Job
from poundlock.plan.plan import Plan
from poundlock.spark.launch.dependencies import archive_conf, python_of_tasks, shipped_files
from poundlock.spark.launch.jars import JarPlaces, jar_set, pyspark_jars
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session_conf import HADOOP_CONF, executor_settings, needs_of
from poundlock.spark.pickled_functions import user_modules
from poundlock.storage import LocalStorage, open_storage

SETTINGS = "poundlock-submitted.toml"
_PROGRAM = "poundlock_submitted.py"
_MODULES = "poundlock-job-modules.zip"
_POLL_S = 0.1
_APPLICATION = re.compile(r"\bapplication_[0-9]+_[0-9]+\b")

# Of this machine, or of what is asked for here: the driver has a container's.
_STAY = {
    "config", "deploy_mode", "py_files", "archives", "state_dir", "cache_dir", "log_dir", "jars_dir", "ivy_settings",
    "java_home", "rest_enabled", "rest_port", "rest_bind_address", "rest_token_file", "rest_insecure",
    "rest_allowed_hosts", "rest_operations_log", "security_ssl_rest_enabled", "security_ssl_rest_certificate_file",
    "security_ssl_rest_key_file", "security_ssl_rest_key_password", "security_ssl_rest_ca_file",
}  # fmt: skip
# Not for the containers, which would take them from this process: they have what travels.
_NOT_PASSED_ON = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")

# Has to be understood by whatever Python there is.
_MAIN = f"""import os
import sys

if sys.argv[1] != "%d.%d" % sys.version_info[:2]:
    sys.stderr.write("the job was submitted by Python %s, and this is %s\\n" % (sys.argv[1], sys.version))
    sys.exit({OTHER_PYTHON} + sys.version_info[1])
try:
    from poundlock.cli.jobs.submitted import main
except ImportError as error:
    sys.stderr.write("%s cannot import what poundlock needs: %s\\n" % (sys.executable, error))
    sys.exit({NOT_INSTALLED})
main(sys.argv[2:], os.environ)
"""
_LOG4J = """status = error
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is submitted; the name is that of a job among several in the file, else "", and the id of 32 hex digits is for a job that begins
    with a savepoint."""

    job: Job
    settings: Settings
    file: Path
    name: str
    checkpoint: str
    job_id: str
    arguments: Sequence[str] = ()
    jars: Sequence[str] = ()

    @property
    def given(self) -> Mapping[str, str]:
        """Spark's settings as the user has them."""
        return {**self.job.spark, **self.settings.spark}

    def conf(self) -> Mapping[str, str]:
        """Return Spark's settings as they are submitted. Raises DefinitionError where an archive is not there."""
        master = Master.of(self.settings.master)
        python = python_of_tasks(self.settings, self.given) or sys.executable
        stores = {name.removeprefix("spark.executorEnv."): value for name, value in executor_settings().items()}
        both = {"PYSPARK_PYTHON": python, "HADOOP_CONF_DIR": HADOOP_CONF, **stores}
        conf = {
            "spark.yarn.submit.waitAppCompletion": "false",
            # Before it begins with Spark the driver has read the job and asked every source and sink.
            "spark.yarn.am.waitTime": "10min",
            # A driver that fails now and then is started again for as long as it takes; twice in an hour is too often.
            "spark.yarn.am.attemptFailuresValidityInterval": "1h",
            "spark.driver.memory": self.settings.driver_memory,
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in both.items()},
            "spark.yarn.appMasterEnv.PYSPARK_DRIVER_PYTHON": python,
            **{f"spark.executorEnv.{name}": value for name, value in both.items()},
            **master.asked_for(self.job.most_tasks, self.given),
            **archive_conf(self.settings),
            **self.given,
        }
        # 16 MB stacks: see `session_conf.py`; the JVM of the driver is there before the driver is.
        options = ["-Xss16m", self.given.get("spark.driver.extraJavaOptions", "")]
        return {**conf, "spark.driver.extraJavaOptions": " ".join(options).strip()}

    def command(self, folder: Path) -> list[str]:
        """Write what travels into a folder and return the command that submits it.

        Raises:
            DefinitionError: something that should travel is not there.
        """
        program, properties, settings = folder / _PROGRAM, folder / "spark.conf", folder / SETTINGS
        program.write_text(_MAIN)
        settings.write_text(travelling(self.settings))
        properties.write_text("".join(f"{_escaped(k, ':= ')} {_escaped(v)}\n" for k, v in self.conf().items()))
        python = [*shipped_files(self.settings), *_modules(folder / _MODULES)]
        target = f"{self.file.name}:{self.name}" if self.name else self.file.name
        return [
            "/bin/bash",
            str(pyspark_jars().parent / "bin" / "spark-submit"),
            "--master",
            self.settings.master,
            "--deploy-mode",
            "cluster",
            "--name",
            self.job.name,
            "--properties-file",
            str(properties),
            "--load-spark-defaults",
            "--py-files",
            ",".join(python),
            "--files",
            f"{self.file.resolve()},{settings}",
            *(("--jars", ",".join(self.jars)) if self.jars else ()),
            str(program),
            f"{sys.version_info[0]}.{sys.version_info[1]}",
            self.checkpoint,
            self.job_id,
            "run",
            target,
            "--config",
            SETTINGS,
            "--no-rest",
            *self.arguments,
        ]


def check(settings: Settings, checkpoint: str, beginning: Beginning | None) -> None:
    """Raise DefinitionError where a driver on the cluster could not work, before anything is submitted.

    Raises:
        DefinitionError: the master runs no driver, or a folder is of this machine.
        TransientError: the master cannot be reached.
    """
    master = Master.of(settings.master)
    master.refuse_cluster_mode()
    shared = "on the cluster's file system"
    if isinstance(open_storage(checkpoint), LocalStorage):
        raise DefinitionError(
            f"the checkpoint {checkpoint} is a folder of one machine, and the driver may run on any (--deploy-mode cluster)",
            next=f"give the job a checkpoint {shared}: -D checkpoint_dir=hdfs://…",
        )
    if beginning is not None and isinstance(open_storage(beginning.path), LocalStorage):
        raise DefinitionError(
            f"the savepoint {beginning.path} is a folder of one machine, and the driver may run on any (--deploy-mode cluster)",
            next=f"copy it to a folder {shared} and begin with that one: -s hdfs://…",
        )
    master.check()


def jars_of(plan: Plan, checkpoint: str, settings: Settings, say: Callable[[str], None]) -> Sequence[str]:
    """Return the jars that travel with a job: those with which streaming queries reach the store that its checkpoint is on.

    Raises:
        DefinitionError: one of them cannot be had.
    """
    sets = needs_of(open_storage(checkpoint)).jar_sets if plan.has_streams else ()
    places = JarPlaces.of(settings)
    return [jar for name in sorted(sets) for jar in jar_set(name, progress=say, places=places)]


def submit(submission: Submission, java_home: str, log: Path) -> str:
    """Submit a job and return the cluster's id of the application, as soon as the cluster has taken it.

    Raises:
        DefinitionError: something that should travel is not there, or the cluster refuses the job as it is.
        PoundlockError: it was not taken.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="poundlock-submit-") as temporary:
        folder = Path(temporary)
        command = submission.command(folder)
        log4j = folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
            "JAVA_HOME": java_home,
            "SPARK_HOME": str(pyspark_jars().parent),
            "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={log4j} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        if Master.of(submission.settings.master).loopback:
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
    application = named_in(log)
    if process.returncode or application is None:
        raise refusal(log.read_text(errors="replace"), submission.settings.master, log)
    return application


def named_in(log: Path) -> str | None:
    """Return the application that spark-submit spoke of last; None where it has spoken of none."""
    try:
        names: list[str] = _APPLICATION.findall(log.read_text(errors="replace"))
    except FileNotFoundError:
        return None
    return names[-1] if names else None


def refusal(output: str, master: str, log: Path) -> PoundlockError:
    """Return why spark-submit failed."""
    causes = re.findall(r"^(?:Exception in thread \S+ |Caused by: )?(?:[a-z]\w*\.)+[A-Z][\w$]*: (.+)$", output, re.M)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    why = (causes[0] if causes else lines[-1] if lines else "it printed nothing")[:300]
    if (match := re.search(r"Required (AM|executor|driver) memory \(([0-9]+)", output)) is not None:
        asks = "-D driver_memory=…" if match[1] != "executor" else "--conf spark.executor.memory=…"
        return DefinitionError(f"{master} gives no container of that size: {why}", next=f"ask for less: {asks}")
    if "unknown queue" in output:
        return DefinitionError(f"{master} did not take the job: {why}", next="name another: --conf spark.yarn.queue=…")
    kind = TransientError if re.search(r"ConnectException|SafeModeException|NoRouteToHost", output) else PoundlockError
    return kind(f"{master} did not take the job: {why}", next=f"read {log}")


def travelling(settings: Settings) -> str:
    """Return the settings that the driver gets, as TOML: all that were given in any way, and are not of this machine."""
    lines = []
    for name in sorted(settings.model_fields_set - _STAY - {"spark"}):
        value = getattr(settings, name)
        if value is not None:
            lines.append(f"{name} = {_toml(value)}\n")
    lines += [f"{json.dumps(key)} = {_toml(value)}\n" for key, value in sorted(settings.spark.items())]
    return "".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, timedelta):
        return json.dumps(f"{value // timedelta(milliseconds=1)} ms")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _escaped(text: str, also: str = "") -> str:
    """Return a text as Java reads it back from a file of properties."""
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", **{each: f"\\{each}" for each in also}}
    made = "".join(special.get(each, each if " " <= each < "\x7f" else _java(each)) for each in text)
    return f"\\{made}" if made.startswith(" ") else made


def _java(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _modules(target: Path) -> list[str]:
    """Write what the job has imported and nobody has installed into a zip, and return its path; nothing where there is none."""
    files = dict(_sources())
    if not files:
        return []
    with zipfile.ZipFile(target, "w") as made:
        for name, path in sorted(files.items()):
            made.write(path, name)
    return [str(target)]


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield the source files of the user's modules, by their names in a zip: each module, and packages whole."""
    for module in user_modules():
        root = sys.modules.get(module.__name__.partition(".")[0], module)
        file = Path(str(getattr(root, "__file__", None) or module.__file__))
        if file.suffix != ".py" or not file.is_file():
            continue  # out of a zip that travels itself, or no source
        if file.name == "__init__.py":
            for path in file.parent.rglob("*.py"):
                yield path.relative_to(file.parent.parent).as_posix(), path
        else:  # a file of its own, or in a folder without __init__.py
            yield "/".join([*module.__name__.split(".")[:-1], file.name]), file
