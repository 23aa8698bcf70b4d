"""Records whose key has a format of its own: columns of the key beside those of the value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.schemas.registered import KEY_BYTES
from poundlock.formats.arrays import indices_of, numbers_in
from poundlock.formats.chunk import Batch, Chunk, origin_of, subset
from poundlock.formats.convert import VALUE, to_batch
from poundlock.formats.decode import Decoder, Rejector, Want
from poundlock.formats.reject import Reject

_ROW = "$row"


@dataclass(frozen=True)
class KeyedDecoder:
    """Decodes key and value of each record. A record is bad where one of the two is.

    Args:
        key: makes columns of keys; without a key all of them are null.
        prefix: what stands before the names of its columns.
    """

    key: Decoder
    value: Decoder
    prefix: str = ""

    def schema(self) -> pa.Schema:
        of_key = [column.with_name(self.prefix + column.name) for column in self.key.schema()]
        return pa.schema([*self.value.schema(), *of_key])

    def decode(self, chunk: Chunk, reject: Rejector, want: Want = "batch") -> Chunk:
        def reject_key(bad: Reject) -> None:
            reject(replace(bad, reason=f"key: {bad.reason}"))

        whole = to_batch(chunk).batch
        origin = origin_of(chunk)
        numbers = indices_of(np.arange(whole.num_rows))
        keys = pa.RecordBatch.from_arrays([whole.column(KEY_BYTES), numbers], [VALUE, _ROW])
        decoded = self.key.decode(Batch(keys, origin), reject_key, "batch")
        of_key = to_batch(decoded).batch
        names = [name for name in whole.schema.names if name != KEY_BYTES]
        rest = whole.select(names)
        if of_key.num_rows < whole.num_rows:
            places = of_key.column(_ROW)
            rest, origin = rest.take(places), subset(origin, numbers_in(places))
        columns = {name: of_key.column(name) for name in of_key.schema.names if name != _ROW}
        both = pa.RecordBatch.from_arrays(
            [*rest.columns, *columns.values()], [*names, *(self.prefix + name for name in columns)]
        )
        return self.value.decode(Batch(both, origin), reject, want)
