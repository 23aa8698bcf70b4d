"""Partitions in the catalog of a warehouse: Flink's partition commit of the kind `metastore`, behind a protocol that any catalog can have.

A partition is idempotent by the values of its keys: asked twice, or of a partition that is known, a metastore ends with the same one entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from poundlock.connectors.files.partitions.commit import CommittedPartition
from poundlock.connectors.files.partitions.sealed import SealedBucket
from poundlock.errors import DefinitionError, TerminalError, TransientError, required

_SECONDS = 20
_REFUSED = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
)


@runtime_checkable
class TableMetaStore(Protocol):
    """One table in a catalog, by Flink's name: what `MetastoreCommitPolicy` asks."""

    def create_or_alter_partition(
        self, partition_spec: Mapping[str, str], location: str, parameters: Mapping[str, str]
    ) -> None:
        """Make a partition known, or set what is known of it; idempotent by its values.

        Args:
            partition_spec: its keys and values.
            location: the folder with its files.
            parameters: what else is known, by Hive's names, and of a sealed bucket its `poundlock.version` and `poundlock.manifest`.
        """


@dataclass(frozen=True)
class MetastoreCommitPolicy:
    """A policy that registers each partition in a catalog, behind the decision that completes it: Flink's `metastore`.

    It is called once more where a crash leaves open whether it was, and the metastore then has the same entry. Of a bucket that was opened once more the entry
    is altered to its newest version.

    Args:
        metastore: one table of a catalog, such as `GlueMetaStore`.

    Raises:
        DefinitionError: it is none.
    """

    metastore: TableMetaStore

    def __post_init__(self) -> None:
        if not isinstance(self.metastore, TableMetaStore) or isinstance(self.metastore, type):
            raise DefinitionError(
                f"{self.metastore!r} is no metastore: it has no create_or_alter_partition",
                next='give GlueMetaStore("database", "table"), or a TableMetaStore of your own',
            )

    def preflight(self) -> None:
        """Ask the metastore whether it can be written to, where it can say so. Raises DefinitionError and TransientError."""
        if isinstance(self.metastore, GlueMetaStore):
            self.metastore.preflight()

    def __call__(self, partition: CommittedPartition) -> None:
        """Register a partition. Raises TerminalError where its name has no keys, and what the metastore raises."""
        spec = partition.spec
        if not spec:
            raise TerminalError(
                f"{partition.path} has no keys and is no partition of a table",
                next="name buckets KEY=VALUE, such as 'dt='yyyy-MM-dd",
            )
        self.metastore.create_or_alter_partition(spec, partition.path, _parameters(partition))


def _parameters(partition: CommittedPartition) -> dict[str, str]:
    if not isinstance(partition, SealedBucket):
        return {}
    return {
        "numFiles": str(len(partition.files)),
        "numRows": str(partition.rows),
        "totalSize": str(partition.bytes),
        "poundlock.version": str(partition.version),
        "poundlock.manifest": partition.manifest,
    }


@dataclass(frozen=True)
class GlueMetaStore:
    """A table of AWS Glue's Data Catalog, reached by botocore (extra `s3`), with the credentials and endpoint of the environment.

    A partition gets the table's storage descriptor with a location of its own, as Glue's crawlers do it. Its key is the catalog, database, table and values:
    one that is there is altered.

    Args:
        database: of the catalog.
        table: in it, with the keys of the buckets as its partition keys.
        catalog_id: the account whose catalog it is; None = that of the credentials.
    """

    database: str
    table: str
    catalog_id: str | None = None

    def preflight(self) -> None:
        """Look the table up. Raises DefinitionError where there is none or this user may not see it; TransientError where nobody answers."""
        self._table()

    def create_or_alter_partition(
        self, partition_spec: Mapping[str, str], location: str, parameters: Mapping[str, str]
    ) -> None:
        """Create the partition, or alter the one that is there.

        Raises:
            TerminalError: the table has other partition keys.
            DefinitionError, TransientError: as for `preflight`.
        """
        table = self._table()
        keys = [key["Name"] for key in table.get("PartitionKeys", [])]
        if sorted(keys) != sorted(partition_spec):
            raise TerminalError(
                f"the bucket {location} has the keys {', '.join(partition_spec)}, and Glue's table {self.name} the partition keys {', '.join(keys) or 'none'}",
                next="name the keys of the sink's buckets as the table does; the partition is registered by the next start",
            )
        values = [partition_spec[key] for key in keys]
        given = {
            "Values": values,
            "StorageDescriptor": {**table.get("StorageDescriptor", {}), "Location": location},
            "Parameters": dict(parameters),
        }
        client = _client(os.getpid())
        with _asked(self.name):
            try:
                client.create_partition(**self._place, PartitionInput=given)
            except client.exceptions.AlreadyExistsException:
                client.update_partition(**self._place, PartitionValueList=values, PartitionInput=given)

    @property
    def name(self) -> str:
        """Database and table, for people."""
        return f"{self.database}.{self.table}"

    @property
    def _place(self) -> dict[str, str]:
        catalog = {} if self.catalog_id is None else {"CatalogId": self.catalog_id}
        return {**catalog, "DatabaseName": self.database, "TableName": self.table}

    def _table(self) -> dict[str, Any]:
        place = {name: value for name, value in self._place.items() if name != "TableName"}
        with _asked(self.name):
            table: dict[str, Any] = _client(os.getpid()).get_table(**place, Name=self.table)["Table"]
        return table


@cache
def _client(process: int) -> Any:
    """Return this process's client of Glue, which its threads share."""
    required("botocore", "Glue", "s3")
    from botocore.config import Config
    from botocore.session import Session

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    patience = Config(retries={"mode": "standard"}, connect_timeout=_SECONDS, read_timeout=_SECONDS)
    return Session().create_client("glue", region_name=region, config=patience)


@contextmanager
def _asked(table: str) -> Iterator[None]:
    """Turn what Glue refuses into errors of this package."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        what = f"Glue's table {table}: {error}"
        if code == "EntityNotFoundException":
            raise DefinitionError(
                what, next="create the database and the table in Glue, or correct their names"
            ) from error
        if code in _REFUSED:
            raise DefinitionError(
                what, next="let this user call glue:GetTable, glue:CreatePartition and glue:UpdatePartition"
            ) from error
        raise TransientError(what, next="look at Glue and its quotas; it is asked again") from error
    except BotoCoreError as error:
        raise TransientError(
            f"Glue's table {table} cannot be asked: {error}",
            next="look at AWS_REGION, AWS_ENDPOINT_URL and the credentials; it is asked again",
        ) from error
