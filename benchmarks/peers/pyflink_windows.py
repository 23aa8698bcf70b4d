"""Counts and sums by key and ten seconds on PyFlink's Table API. Arguments: JARS SERVERS TOPIC OUT CHECKPOINTS."""

from __future__ import annotations

import sys

from pyflink_tables import environment

if __name__ == "__main__":
    jars, servers, topic, out, checkpoints = sys.argv[1:6]
    tables = environment(jars, checkpoints)
    tables.execute_sql(f"""
        CREATE TABLE rows_in (
            `timestamp` DOUBLE, `key` STRING, `value` DOUBLE,
            event_time AS TO_TIMESTAMP_LTZ(CAST(`timestamp` * 1000 AS BIGINT), 3),
            WATERMARK FOR event_time AS event_time - INTERVAL '5' SECOND
        ) WITH (
            'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{topic}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json'
        )""")
    tables.execute_sql(f"""
        CREATE TABLE sums (`key` STRING, window_start TIMESTAMP(3), n BIGINT, total DOUBLE) WITH (
            'connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'json'
        )""")
    tables.execute_sql("""
        INSERT INTO sums
        SELECT `key`, window_start, COUNT(*), SUM(`value`)
        FROM TABLE(TUMBLE(TABLE rows_in, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
        GROUP BY `key`, window_start, window_end""").wait()
