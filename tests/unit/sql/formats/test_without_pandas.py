"""Formats read and write without pandas, which Arrow imports where it is asked for a second of CPU in every worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from decimal import Decimal
import pyarrow as pa
from support.table_formats import columns_of, decoder, encoder
from poundlock.formats.arrays import binary_array
from poundlock.sql.types import SqlType, STRING

types = {
    "i": SqlType("INT"), "s": STRING, "d": SqlType("DECIMAL", (10, 2)), "t": SqlType("TIMESTAMP", (3,)), "f": SqlType("DOUBLE"),
    "day": SqlType("DATE"), "b": SqlType("BOOLEAN"), "clock": SqlType("TIME", (3,)), "y": SqlType("VARBINARY", (9,)),
}
nested = {"xs": SqlType("ARRAY", of=(STRING,)), "r": SqlType("ROW", of=(types["i"], types["d"]), names=("p", "q"))}
record = b'{"i": %d, "s": "a b", "d": 10.00, "t": "2026-01-05 10:00:00.5", "f": 1e10, "day": "2026-01-05", "b": true, "clock": "10:00:00", "y": "YQ=="%s}'
for columns, more in ((types, b""), ({**types, **nested}, b', "xs": ["x", null], "r": {"p": 1, "q": "2.5"}')):
    made = columns_of(**columns)
    records = pa.compute.cast(binary_array([record % (i, more) for i in range(99)] + [b'{"i": 1.5, "t": null}']), pa.binary())
    rows, _ = decoder(made, "json").decode(records, list(columns))
    formats = ("json", "debezium-json", "canal-json", "maxwell-json", "avro", *(() if more else ("csv",)))
    for format in formats:
        again = encoder(made, format).encode(rows)
        options = {"null_literal": "", "ignore_parse_errors": "true"} if format == "csv" else {}
        back, _ = decoder(made, format, **options).decode(again, list(columns))
        assert back.num_rows == 100, format
assert "pandas" not in sys.modules
"""


def test_no_format_imports_pandas() -> None:
    path = f"{Path(__file__).parents[4] / 'src'}:{Path(__file__).parents[3]}"
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env={"PYTHONPATH": path}
    )
    assert made.returncode == 0, made.stderr
