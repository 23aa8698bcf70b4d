"""The JVM of a session of our own: started, looked at and ended as the child process that it is, its output in a log file.

It runs in a process group of its own: a signal to the driver's group asks the driver to stop, and Java would just end.
It never outlives the driver: it ends when its standard input does.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.spark import private
from poundlock.spark.launch.jars import pyspark_jars
from poundlock.spark.launch.session_conf import SessionSpec

_POLL_S = 0.005
_START_S = 180.0
_DYING_S = 1.0  # between the end of a process's sockets and its own
_NO_MEMORY = re.compile(r"OutOfMemoryError|insufficient memory for the Java|errno=12\b")

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


@dataclass
class Jvm:
    """A JVM that this process has started."""

    process: subprocess.Popen[bytes]
    log: Path
    _since: int  # size of the log before it, for every JVM of a job writes into one
    _folder: TemporaryDirectory[str]

    @classmethod
    def start(cls, spec: SessionSpec, settings: Mapping[str, str]) -> Jvm:
        """Start it; returns at once, see `await_gateway`.

        Raises:
            DefinitionError: Java or pyspark is not there.
        """
        spec.jvm_log.parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryDirectory(prefix="poundlock-jvm-", ignore_cleanup_errors=True)
        environment = {**os.environ, **private.gateway_environment(Path(folder.name, "gateway"))}
        if spec.java_home is not None:
            environment["JAVA_HOME"] = spec.java_home
        if spec.master.loopback:
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Spark's scripts, which start a JVM only to ask for a command line, need no optimising compiler.
        environment.setdefault("SPARK_LAUNCHER_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        with spec.jvm_log.open("ab") as log:
            since = log.tell()
            process = subprocess.Popen(
                gateway_command(spec, settings),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
            )
        return cls(process, spec.jvm_log, since, folder)

    def await_gateway(self) -> tuple[int, str]:
        """Wait until a session can be made in it; return the port and the secret.

        Raises:
            OSError: it ended before, or says nothing.
        """
        deadline = time.monotonic() + _START_S
        with self._folder as folder:
            while not (info := Path(folder, "gateway")).exists():
                if not self.alive:
                    raise ChildProcessError("its Java process ended")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"its Java process does not answer after {_START_S:.0f} s")
                time.sleep(_POLL_S)
            return private.gateway_address(info)

    def not_started(self, error: Exception) -> PoundlockError:
        """Return what to raise when no session came about: what its log says, or else an error. A restart mends the lack of time or memory."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_DYING_S)
        lines, code = self._lines(), self.process.poll() or 0
        passing = next(filter(_NO_MEMORY.search, lines), str(error) if isinstance(error, TimeoutError) else "")
        if code < 0 or 128 < code < 160:  # as a shell says it of its children, and Java of itself
            passing = passing or f"its Java process was ended by signal {abs(code) % 128}"
        if passing:
            why = f"read {self.log}; if nobody killed it, the machine may be short of memory"
            return TransientError(f"Spark did not start: {passing}", next=why)
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        last = (errors or lines or [str(error)])[-1]
        less = "ask for less: --conf spark.executor.memory=…" if "above the max threshold" in last else ""
        return DefinitionError(
            f"Spark did not start: {last}", next=less or f"read {self.log}, or type: poundlock doctor"
        )

    def _lines(self) -> list[str]:
        """Return what it has printed, without stack frames."""
        with suppress(OSError), self.log.open("rb") as handle:
            handle.seek(self._since)
            lines = [line.decode(errors="replace").strip() for line in handle]
            return [line for line in lines if line and not line.startswith(("at ", "... "))]
        return []

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
        self.process.kill()
        self.process.wait()
        self._close_input()
        self._folder.cleanup()

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


def write_log4j2(properties: Path, jvm_log: Path) -> Path:
    """Write a log4j2 properties file that sends all of the JVM's log to a file; return the properties file's path.

    Pass it to the JVM as `-Dlog4j2.configurationFile=<path>`.
    """
    properties.parent.mkdir(parents=True, exist_ok=True)
    file = str(jvm_log.absolute()).replace("\\", "\\\\")
    properties.write_text(_LOG4J2.format(file=file))
    return properties
