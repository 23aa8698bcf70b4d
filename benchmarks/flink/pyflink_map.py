"""A Python function per record in PyFlink: lines of JSON in, the function names the day, lines of JSON out. Arguments: JARS FOLDER OUT CHECKPOINTS."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

from benchmarks.flink.pyflink_local import environment, lines_to


def with_day(line: str) -> str:
    event = json.loads(line)
    day = datetime.fromtimestamp(event["timestamp"], UTC).strftime("%Y%m%d")
    return json.dumps({"dt": day, **event}, separators=(",", ":"))


def main(jars: str, folder: str, out: str, checkpoints: str) -> None:
    env = environment(jars, checkpoints)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    lines.map(with_day, Types.STRING()).sink_to(lines_to(out))
    env.execute("pyflink-map")


if __name__ == "__main__":
    main(*sys.argv[1:])
