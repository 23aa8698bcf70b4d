"""Expressions do not import pandas, which takes every worker a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from datetime import UTC
import numpy as np, pyarrow as pa, pyarrow.compute as pc
from poundlock.formats.arrays import column_of, texts_of
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from support.sql_expressions import tree

COLUMNS = {"i": "INT", "s": "STRING", "f": "DOUBLE", "d": "DECIMAL(10, 0)", "t": "TIMESTAMP(3)"}
i = column_of(np.arange(1, 6, dtype=np.int32), pa.int32())
f = column_of(np.arange(5) * 1.005, pa.float64())
t = column_of(np.arange(5) * 10**9, pa.timestamp("us"))
batch = pa.RecordBatch.from_arrays([i, texts_of(list("12345")), f, pc.cast(i, pa.decimal128(10, 0)), t], list(COLUMNS))
for each in sys.stdin.read().splitlines():
    evaluate(tree(each, COLUMNS), batch, EvaluationContext(UTC))
    assert "pandas" not in sys.modules, each
print("light")
"""
EXPRESSIONS = """
i + 1
10 / i
d / 3
d * 2.5
ABS(d)
SIGN(d)
ROUND(f, 2)
ROUND(d, -1)
i IN (1, 2)
s IN ('a', 'b')
f > 1 AND i < 3
i IS DISTINCT FROM 2
COALESCE(s, 'x')
GREATEST(i, 2)
CASE WHEN i > 2 THEN 10 / i ELSE 0 END
CAST(f AS STRING)
CAST(d AS STRING)
CAST(t AS STRING)
CAST(f AS DECIMAL(5, 2))
CAST(s AS DOUBLE)
CAST(s AS CHAR(3))
CAST(s AS BYTES)
CAST(ARRAY[i] AS STRING)
CAST(MAP['a', i] AS STRING)
CAST(ROW(i, s) AS STRING)
TRY_CAST(s AS INT)
TRY_CAST(s AS DATE)
TRY_CAST(s AS DECIMAL(5, 2))
s LIKE '%a%'
s LIKE 'a_'
s || 'x'
t + INTERVAL '1' MONTH
t > TIMESTAMP '1970-01-01 00:10:00'
MAP['a', i]['a']
ARRAY[i][1]
""".strip()


def test_expressions_are_computed_without_pandas() -> None:
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=EXPRESSIONS,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{Path(__file__).parents[4] / 'src'}:{Path(__file__).parents[3]}"},
    )
    assert made.stdout == "light\n", made.stderr
