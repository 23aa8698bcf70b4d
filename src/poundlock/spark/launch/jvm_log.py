"""Where the log of a session's JVM goes: all of it into one file, nothing to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]
_LOG4J2 = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n%ex
appender.file.layout.charset = UTF-8
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
# A query that is stopped in mid-batch aborts its tasks; Spark prints each as an error with a stack trace.
logger.writer.name = org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
logger.writer.level = {quiet}
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def write_log4j2(properties: Path, jvm_log: Path, *, level: Level = "warning") -> Path:
    """Write a log4j2 properties file that sends all of the JVM's log to a file; return the properties file's path.

    Pass it to the JVM as `-Dlog4j2.configurationFile=<path>`.
    """
    named = {"warning": "warn"}.get(level, level)
    properties.parent.mkdir(parents=True, exist_ok=True)
    file = str(jvm_log.absolute()).replace("\\", "\\\\")
    properties.write_text(_LOG4J2.format(file=file, level=named, quiet="debug" if level == "debug" else "off"))
    return properties
