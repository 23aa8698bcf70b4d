"""A file sink as it is written down with each driver start, so that fsck can sweep, inspect and commit without the job's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError
from poundlock.formats.own.custom import BulkWriterFactory, Encoder
from poundlock.formats.own.parquet_options import ParquetOptions

if TYPE_CHECKING:
    from poundlock.connectors.files.sink.sink import FileSink

_FORMAT = 1
_DESCRIBED = ("row", "format", "prefix", "suffix", "compression", "header", "tag")


def described(sink: FileSink) -> JSON:
    """Return a sink as a JSON object. Files of a format of the user's are moved and joined as bytes alone, so they are described as raw rows."""
    chosen = {name: getattr(sink, name) for name in _DESCRIBED}
    if isinstance(sink.format, Encoder | BulkWriterFactory):
        chosen |= {"row": "value", "format": None, "suffix": sink.ending}
    if sink.parquet is not None:
        chosen["parquet"] = sink.parquet.to_json()
    return {"v": _FORMAT, "kind": "files", "path": sink.storage().root, **chosen}


def settings_of(description: JSON) -> dict[str, Any]:
    """Return the arguments of a sink that was described. Raises DefinitionError where another version of poundlock wrote it."""
    if description.get("v") != _FORMAT:
        raise DefinitionError(
            f"a file sink is described in format {description.get('v')!r}, which this version does not know",
            next="use the version of poundlock that ran the job",
        )
    laid_out = description.get("parquet")
    parquet = None if laid_out is None else ParquetOptions.from_json(laid_out)
    return {**{name: description[name] for name in ("path", *_DESCRIBED)}, "parquet": parquet}
