"""Kafka to files by event time on PyFlink's Table API. Arguments: JARS SERVERS TOPIC OUT CHECKPOINTS."""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

if __name__ == "__main__":
    jars, servers, topic, out, checkpoints = sys.argv[1:6]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "pipeline.jars": jars,
        "parallelism.default": "2",
        "execution.checkpointing.interval": "10 s",
        "restart-strategy.type": "none",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "table.local-time-zone": "UTC",
    }.items():
        tables.get_config().set(name, value)
    tables.execute_sql(f"""
        CREATE TABLE events (line STRING) WITH (
            'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{topic}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'raw'
        )""")
    tables.execute_sql(f"""
        CREATE TABLE event_log (line STRING, dt STRING) PARTITIONED BY (dt) WITH (
            'connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'raw'
        )""")
    tables.execute_sql("""
        INSERT INTO event_log
        SELECT line, FROM_UNIXTIME(CAST(CAST(JSON_VALUE(line, '$.timestamp') AS DOUBLE) AS BIGINT), 'yyyyMMdd')
        FROM events""").wait()
