"""What keyed operators emit becomes rows, or the job says which column cannot hold it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import TerminalError
from poundlock.operators.keyed.output import OutputChunk
from poundlock.tasks.keyed_rows import WindowRows


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (pa.int64(), 1 << 63, "its type, int64: "),
        (pa.decimal128(38, 2), Decimal(10) ** 37, "its type, decimal128"),
        (pa.decimal128(38, 2), Decimal(10) ** 99, "its type, decimal128"),
    ],
)
def test_a_sum_that_outgrows_its_column_names_the_column(kind: pa.DataType, value: Any, why: str) -> None:
    rows = WindowRows(keys=[pa.field("k", pa.int32())], results=[pa.field("total", kind)])
    with pytest.raises(TerminalError, match=f"a value of column 'total' does not fit {why}.*\nNext: .* as total"):
        rows.rows(OutputChunk("", [1], [(value,)], [0], [(0, 1)], None))
