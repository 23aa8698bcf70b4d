"""The JVM of a session of our own: started, looked at and ended as the child process that it is, its output in a log file.

It runs in a process group of its own: a signal to the driver's group asks the driver to stop, and Java would just end.
It never outlives the driver: it ends when its standard input does.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark import private
from poundlock.spark.launch.jars import pyspark_jars
from poundlock.spark.launch.session_conf import SessionSpec

_POLL_S = 0.005
_START_S = 180.0

# What Spark's own launcher gives to every JVM of Spark's, of all versions; one that Java does not know is skipped.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
# Settings that only `spark-submit` carries out.
_SUBMIT_ONLY = (
    "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.yarn.", "spark.kerberos.",
    "spark.driver.defaultJavaOptions", "spark.driver.extraLibraryPath", "spark.driver.userClassPathFirst",
)  # fmt: skip
_LOG4J2 = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n%ex
appender.file.layout.charset = UTF-8
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# A query that is stopped in mid-batch aborts its tasks; Spark prints each as an error with a stack trace.
logger.writer.name = org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
logger.writer.level = off
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""
_CONF_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DRIVER_MEMORY", "PYSPARK_SUBMIT_ARGS")


class SparkNotStarted(DefinitionError):
    """The JVM ended, or said nothing, before a session could be made in it."""


@dataclass
class Jvm:
    """A JVM that this process has started; `address` is port and secret at which it waits for a session, once it does."""

    process: subprocess.Popen[bytes]
    log: Path
    _info: Path
    address: tuple[int, str] | None = field(default=None, init=False)

    @classmethod
    def start(cls, spec: SessionSpec, settings: Mapping[str, str]) -> Jvm:
        """Start it; returns at once, see `await_gateway`. Raises DefinitionError: Java or pyspark is not there."""
        spec.jvm_log.parent.mkdir(parents=True, exist_ok=True)
        info = Path(tempfile.mkdtemp(prefix="poundlock-jvm-")) / "gateway"
        environment = {**os.environ, **private.gateway_environment(info)}
        if spec.java_home is not None:
            environment["JAVA_HOME"] = spec.java_home
        if spec.master.loopback:
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Spark's scripts, which start a JVM only to ask for a command line, need no optimising compiler.
        environment.setdefault("SPARK_LAUNCHER_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        with spec.jvm_log.open("ab") as log:
            process = subprocess.Popen(
                gateway_command(spec, settings),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
            )
        return cls(process, spec.jvm_log, info)

    def await_gateway(self) -> tuple[int, str]:
        """Wait until a session can be made in it; return the port and the secret.

        Raises SparkNotStarted: it ended before; the message has the last line of its log.
        """
        deadline = time.monotonic() + _START_S
        try:
            while self.address is None:
                if self._info.exists():
                    self.address = private.gateway_address(self._info)
                elif self.process.poll() is not None or time.monotonic() > deadline:
                    raise self.not_started("its Java process ended")
                else:
                    time.sleep(_POLL_S)
        finally:
            self._info.unlink(missing_ok=True)
            self._info.parent.rmdir()
        return self.address

    def not_started(self, error: object) -> SparkNotStarted:
        """Return what to raise when no session came about: the last line of the log, or else an error."""
        line = _last_line(self.log)
        less = "ask for less: --conf spark.executor.memory=…" if "above the max threshold" in line else ""
        return SparkNotStarted(
            f"Spark did not start: {line or error}", next=less or f"read {self.log}, or type: poundlock doctor"
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self, patience_s: float) -> None:
        """End it in order, so that it removes its temporary files; one that takes longer than this is killed."""
        self._close_input()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.alive:
            self.process.kill()
            self.process.wait()
        self._close_input()

    def _close_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


def gateway_command(spec: SessionSpec, settings: Mapping[str, str]) -> Sequence[str]:
    """Return the command that starts the JVM.

    That is Java itself where nothing asks for Spark's scripts, which take most of a second of processor time to find the
    same command; else `spark-submit`, which reads Spark's own configuration files and fetches packages.
    """
    jars = pyspark_jars()
    if spec.java_home is None or _needs_submit(spec, jars.parent):
        arguments = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        home = Path(os.environ.get("SPARK_HOME") or jars.parent)
        return [str(home / "bin" / "spark-submit"), *arguments, private.GATEWAY_RESOURCE]
    return [
        str(Path(spec.java_home) / "bin" / "java"),
        "-cp",
        os.pathsep.join([*filter(None, [settings.get("spark.driver.extraClassPath")]), f"{jars}/*"]),
        f"-Xmx{settings.get('spark.driver.memory', spec.driver_memory)}",
        *_MODULE_OPTIONS,
        *shlex.split(settings["spark.driver.extraJavaOptions"]),
        private.GATEWAY_CLASS,
    ]


def _needs_submit(spec: SessionSpec, home: Path) -> bool:
    asked = any(key.startswith(_SUBMIT_ONLY) for key in spec.user)
    configured = any(os.environ.get(name) for name in _CONF_VARIABLES) or (home / "conf").is_dir()
    return asked or configured or not spec.master.threads


def _last_line(path: Path) -> str:
    try:
        with path.open(errors="replace") as handle:
            lines = [line.strip() for line in handle if line.strip()]
    except OSError:
        return ""
    return next(
        (line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[-1] if lines else ""
    )


def write_log4j2(properties: Path, jvm_log: Path) -> Path:
    """Write a log4j2 properties file that sends all of the JVM's log to a file; return the properties file's path.

    Pass it to the JVM as `-Dlog4j2.configurationFile=<path>`.
    """
    properties.parent.mkdir(parents=True, exist_ok=True)
    file = str(jvm_log.absolute()).replace("\\", "\\\\")
    properties.write_text(_LOG4J2.format(file=file))
    return properties
