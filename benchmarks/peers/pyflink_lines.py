"""Kafka to files by event time on PyFlink's Table API. Arguments: JARS SERVERS TOPIC OUT CHECKPOINTS."""

from __future__ import annotations

import sys

from pyflink_tables import environment

if __name__ == "__main__":
    jars, servers, topic, out, checkpoints = sys.argv[1:6]
    tables = environment(jars, checkpoints)
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
