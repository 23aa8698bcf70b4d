"""Names for the tests of poundlock and of its users. `__init__.py` reads here where each of them is."""

# ruff: noqa: I001 - the names of a module stand together

from poundlock.testing.audit import audit_output as audit_output
from poundlock.testing.databases.cassandra import EmbeddedCassandra as EmbeddedCassandra
from poundlock.testing.conformance import (
    ConformanceError as ConformanceError,
    sink_conformance as sink_conformance,
    source_conformance as source_conformance,
    visible_rows as visible_rows,
)
from poundlock.testing.events import ReferenceEvents as ReferenceEvents
from poundlock.testing.harness import (
    Element as Element,
    Emitted as Emitted,
    KeyedOperatorHarness as KeyedOperatorHarness,
    Snapshot as Snapshot,
    Timer as Timer,
    WindowHarness as WindowHarness,
)
from poundlock.testing.hdfs import EmbeddedHdfs as EmbeddedHdfs
from poundlock.testing.metrics import CollectedMetrics as CollectedMetrics, collected_metrics as collected_metrics
from poundlock.testing.minio import EmbeddedMinio as EmbeddedMinio
from poundlock.testing.databases.opensearch import EmbeddedOpenSearch as EmbeddedOpenSearch
from poundlock.testing.process_harness import ProcessHarness as ProcessHarness
from poundlock.testing.schema_registry.apicurio import EmbeddedSchemaRegistry as EmbeddedSchemaRegistry
from poundlock.testing.watermarks import WatermarkHarness as WatermarkHarness
