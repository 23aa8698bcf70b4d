"""How a Delta table is opened: the library, where the table is, and what the library's errors mean.

Only the driver asks the library. Tasks are forked, and its threads do not come along: they read and write Parquet files by Arrow alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError, TerminalError, TransientError, required
from poundlock.storage import LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SCHEMES = ("s3://", "hdfs://")
# How object_store, with which the library reaches every store, says that one failed; DataFusion wraps it in errors of other kinds.
_OF_STORE = re.compile(r"\bGeneric \w+ error: ")
_LONGEST = 400  # letters of an error of the library's that are shown


def load_deltalake() -> Any:
    """Return the module. Raises DefinitionError where it is not installed."""
    return required("deltalake", "Delta tables", "delta")


def open_folder(path: str) -> Storage:
    """Return the storage of a table's folder. Raises DefinitionError where it is none, or on a store that Delta tables were not proven on."""
    storage = open_storage(path)
    if not isinstance(storage, LocalStorage) and not storage.root.startswith(_SCHEMES):
        raise DefinitionError(
            f"{path}: Delta tables are read and written on local disks, S3 and HDFS",
            next="keep the table there, such as s3://bucket/table",
        )
    return storage


def open_table(storage: Storage, version: int | None = None) -> DeltaTable:
    """Return a table as it is now, or was at a version. Raises what `explained` turns into errors of poundlock's."""
    table: DeltaTable = load_deltalake().DeltaTable(
        storage.root, version=version, storage_options=dict(storage_options(storage))
    )
    return table


def storage_options(storage: Storage) -> Mapping[str, str]:
    """Return what the library has to know of a store besides credentials, which it finds by itself where AWS's tools do."""
    from poundlock.storage.s3 import S3Storage

    if not isinstance(storage, S3Storage):
        return {}
    address = storage.address
    options = {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false" if address.path_style else "true"}
    if address.endpoint is not None:
        options["AWS_ENDPOINT_URL"] = address.endpoint
        options["AWS_ALLOW_HTTP"] = "true" if address.endpoint.startswith("http://") else "false"
    region = address.region or ("us-east-1" if address.endpoint is not None else None)
    if region is not None:
        options["AWS_REGION"] = region
    return options


def words_of(error: BaseException) -> str:
    """Return an error of the library's as one line."""
    text = " ".join(_COLOUR.sub("", str(error)).replace("↳", ":").split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def is_of_store(error: BaseException) -> bool:
    """Return whether an error of the library's says that a store failed, whatever its type: a disk that is full, a server that throttles."""
    return isinstance(error, OSError) or _OF_STORE.search(str(error)) is not None


@contextmanager
def explained(storage: Storage, doing: str, *, starting: bool = False) -> Iterator[None]:
    """Turn the library's errors of a block into errors of poundlock's.

    Args:
        doing: such as "reading its log".
        starting: whether nothing has run yet, so that a table that is missing is the definition at fault.

    Raises:
        DefinitionError, TerminalError: there is no table, or the library cannot handle it.
        TransientError: the store does not answer.
    """
    errors = load_deltalake().exceptions
    wrong = DefinitionError if starting else TerminalError
    try:
        yield
    except errors.TableNotFoundError as error:
        raise wrong(
            f"there is no Delta table in {storage.root}",
            next="correct the path, or give DeltaSink schema= to have the table made",
        ) from error
    except (errors.DeltaError, OSError) as error:
        if is_of_store(error):
            raise TransientError(
                f"Delta table {storage.root}: {doing} failed: {words_of(error)}",
                next="look at the store; the job goes on from its last checkpoint when it answers",
            ) from error
        raise wrong(
            f"Delta table {storage.root}: {doing} failed: {words_of(error)}",
            next="look at the table with the program that made it; docs/delta.md says what is read and written",
        ) from error
