"""The run from which a class archive is made: a session as jobs have it, and the two kinds of query that jobs become.

It ends only when its JVM has ended, because the JVM writes the archive as the last thing it does.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]

_TASKS = 2
_ATTEMPTS = 3


def main(java_home: str, log: Path, jars: Sequence[str], options: Sequence[str]) -> None:
    """Run the queries.

    Args:
        java_home: folder of the Java.
        log: file for what the JVM prints.
        jars: jars on Spark's class path; every class in them is loaded once.
        options: the JVM options that write the archive.
    """
    from pyspark import SparkContext

    from poundlock.runtime.masters import Master
    from poundlock.runtime.session import SessionSpec, start_session

    spec = SessionSpec(
        name="warm",
        master=Master.of("local[2]"),
        jvm_log=log,
        java_home=java_home,
        jars=jars,
        quick_start=True,
        jvm_options=options,
    )
    spark = start_session(spec)
    gateway: Any = SparkContext._gateway
    try:
        with tempfile.TemporaryDirectory(prefix="poundlock-warm-") as folder:
            spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
            _load_classes(spark, jars)
            done = [_run(_fused(spark), f"{folder}/fused"), _run(_direct(spark), f"{folder}/direct")]
            if not any(done):
                raise RuntimeError("neither query ran; the reasons are above")
        spark.stop()
    except BaseException:
        gateway.proc.kill()  # or it would go on and write an archive of half a run
        raise
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _ticker(spark: Any, name: str) -> Any:
    from poundlock.plan.splits import TICKER, ticker_options

    return spark.readStream.name(name).format(TICKER).options(**ticker_options(_TASKS)).load()


def _fused(spark: Any) -> Any:
    from poundlock.plan.arrow import map_in_arrow

    return map_in_arrow(_ticker(spark, "splits").select("value"), _count, "record string")


def _direct(spark: Any) -> Any:
    from pyspark.sql import functions as F

    from poundlock.plan.arrow import map_in_arrow

    rows = _ticker(spark, "rates").selectExpr(
        "cast(cast(value as string) as binary) as value", "cast(value as int) as part", "value as offset", "timestamp"
    )
    rows = rows.observe("rows", F.count(F.lit(1)).alias("rows"))
    rows = rows.selectExpr("concat(value, X'0A') as value", "part", "offset").where("offset >= 0")
    return map_in_arrow(rows, _count, "record string").union(_fused(spark))


def _count(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"record": [str(batch.num_rows)]})


def _run(frame: Any, checkpoint: str) -> bool:
    """Run a query for three batches, as the driver runs a job's; again where a busy machine made Spark give it up.

    Returns whether it ran. One that was given up has loaded most of its classes, so an archive without it is of use.
    """
    batches: list[int] = []

    def take(batch: Any, number: int) -> None:
        batch.sparkSession.sparkContext.setLocalProperty("poundlock.warm", str(number))
        batch.collect()
        batches.append(number)

    for _ in range(_ATTEMPTS):
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        while len(batches) < 3 and query.isActive:
            time.sleep(0.1)
        failure = query.exception()
        query.stop()
        if failure is None:
            return True
        print(failure, file=sys.stderr)
    return False


def _load_classes(spark: Any, jars: Sequence[str]) -> None:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            names = [n.removesuffix(".class").replace("/", ".") for n in archive.namelist() if n.endswith(".class")]
        for name in names:
            if name.startswith("META-INF") or name.endswith(("-info", "package-info")):
                continue
            try:
                spark._jvm.java.lang.Class.forName(name, False, loader)
            except Exception:
                continue  # a class for an optional library that is not here


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [jar for jar in sys.argv[3].split(":") if jar], sys.argv[4:])
