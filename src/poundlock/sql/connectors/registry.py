"""The connectors that tables may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from poundlock.sql.connectors.blackhole import BlackholeTable
from poundlock.sql.connectors.cdc.mysql import MySqlCdcTable
from poundlock.sql.connectors.cdc.postgres import PostgresCdcTable
from poundlock.sql.connectors.datagen.table import DatagenTable
from poundlock.sql.connectors.delta import DeltaTable
from poundlock.sql.connectors.filesystem import FilesystemTable
from poundlock.sql.connectors.iceberg.table import IcebergTable
from poundlock.sql.connectors.jdbc.table import JdbcTable
from poundlock.sql.connectors.kafka.table import KafkaTable
from poundlock.sql.connectors.messages.kinesis import KinesisTable
from poundlock.sql.connectors.messages.mqtt import MqttTable
from poundlock.sql.connectors.messages.rabbitmq import RabbitMQTable
from poundlock.sql.connectors.opensearch import OpenSearchTable
from poundlock.sql.connectors.options import TableOptions, unknown_word
from poundlock.sql.connectors.print_table import PrintTable
from poundlock.sql.connectors.table import PrunedConnector, TableConnector, TableContext
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import TableDefinition

CONNECTORS: Mapping[str, Callable[[], TableConnector]] = {
    "blackhole": BlackholeTable,
    "datagen": DatagenTable,
    "elasticsearch-7": partial(OpenSearchTable, "elasticsearch-7", is_elastic=True),
    "elasticsearch-8": partial(OpenSearchTable, "elasticsearch-8", is_elastic=True),
    "delta": DeltaTable,
    "filesystem": FilesystemTable,
    "iceberg": IcebergTable,
    "jdbc": JdbcTable,
    "kafka": KafkaTable,
    "kinesis": KinesisTable,
    "mqtt": MqttTable,
    "rabbitmq": RabbitMQTable,
    "opensearch": partial(OpenSearchTable, "opensearch"),
    "opensearch-2": partial(OpenSearchTable, "opensearch-2"),
    "mysql-cdc": MySqlCdcTable,
    "postgres-cdc": PostgresCdcTable,
    "print": PrintTable,
    "upsert-kafka": partial(KafkaTable, is_upsert=True),
}


def connector_of(table: TableContext) -> TableConnector:
    """Return the connector of a table.

    Raises:
        OptionError: it names none, or one that there is not.
    """
    name = TableOptions(table.name.name, table.definition.options).required("connector")
    if name not in CONNECTORS:
        raise unknown_word("connector", name, CONNECTORS, "unknown_connector")
    return CONNECTORS[name]()


def columns_read(definition: TableDefinition) -> ColumnsRead:
    """Return what can be left out where a table is read: nothing where its connector is none."""
    make = CONNECTORS.get(definition.options.get("connector", ""))
    connector = None if make is None else make()
    return connector.columns_read(definition) if isinstance(connector, PrunedConnector) else "all"
