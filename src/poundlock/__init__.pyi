"""The public names. `__init__.py` reads here where each of them is."""

# ruff: noqa: I001 - the names of a module stand together

from poundlock.connectors.cassandra.sink import CassandraSink as CassandraSink
from poundlock.connectors.datagen.source import DatagenSource as DatagenSource
from poundlock.connectors.delta.sink.sink import DeltaSink as DeltaSink
from poundlock.connectors.delta.source.source import DeltaSource as DeltaSource
from poundlock.connectors.files.buckets.assigners import (
    BasePathBucketAssigner as BasePathBucketAssigner,
    ColumnBucketAssigner as ColumnBucketAssigner,
    EventTimeBucketAssigner as EventTimeBucketAssigner,
    ExpressionBucketAssigner as ExpressionBucketAssigner,
    ProcessingTimeBucketAssigner as ProcessingTimeBucketAssigner,
    PythonBucketAssigner as PythonBucketAssigner,
)
from poundlock.connectors.files.partitions.commit import CommittedPartition as CommittedPartition
from poundlock.connectors.files.partitions.commit import PartitionCommit as PartitionCommit
from poundlock.connectors.files.partitions.metastore import GlueMetaStore as GlueMetaStore
from poundlock.connectors.files.partitions.metastore import MetastoreCommitPolicy as MetastoreCommitPolicy
from poundlock.connectors.files.partitions.metastore import TableMetaStore as TableMetaStore
from poundlock.connectors.files.partitions.table_row import TableCommitPolicy as TableCommitPolicy
from poundlock.connectors.files.partitions.sealed import SealedBucket as SealedBucket
from poundlock.connectors.files.partitions.sealed import SealedBuckets as SealedBuckets
from poundlock.connectors.files.partitions.times import PartitionTimePattern as PartitionTimePattern
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy as CustomRollingPolicy
from poundlock.connectors.files.custom_rolling import PartFile as PartFile
from poundlock.connectors.files.sink.rolling import FileCompaction as FileCompaction
from poundlock.connectors.files.sink.rolling import RollingPolicy as RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink as FileSink
from poundlock.connectors.files.source.source import FileSource as FileSource
from poundlock.connectors.iceberg.sink.sink import IcebergSink as IcebergSink
from poundlock.connectors.iceberg.source.source import IcebergSource as IcebergSource
from poundlock.connectors.jdbc.sink import JdbcSink as JdbcSink
from poundlock.connectors.jdbc.source.source import JdbcSource as JdbcSource
from poundlock.connectors.kafka.schemas.avro_confluent import AvroConfluent as AvroConfluent
from poundlock.connectors.kafka.schemas.json_schema_confluent import JsonSchemaConfluent as JsonSchemaConfluent
from poundlock.connectors.kafka.schemas.protobuf_confluent import ProtobufConfluent as ProtobufConfluent
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry as SchemaRegistry
from poundlock.connectors.kafka.security import KafkaSecurity as KafkaSecurity
from poundlock.connectors.kafka.sink.sink import KafkaSink as KafkaSink, TopicExpression as TopicExpression
from poundlock.connectors.kafka.source.source import KafkaSource as KafkaSource
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets as StartingOffsets
from poundlock.connectors.kinesis.sink import KinesisStreamsSink as KinesisStreamsSink
from poundlock.connectors.kinesis.source import KinesisStreamsSource as KinesisStreamsSource
from poundlock.connectors.mongodb.sink import MongoSink as MongoSink
from poundlock.connectors.mqtt.sink import MqttSink as MqttSink
from poundlock.connectors.mqtt.source import MqttSource as MqttSource
from poundlock.connectors.opensearch.sink import ElasticsearchSink as ElasticsearchSink
from poundlock.connectors.opensearch.sink import OpenSearchSink as OpenSearchSink
from poundlock.connectors.mysql.source.source import MySqlSource as MySqlSource
from poundlock.connectors.postgres.sink.sink import PostgresSink as PostgresSink
from poundlock.connectors.postgres.source.source import PostgresSource as PostgresSource
from poundlock.connectors.print_sink import PrintSink as PrintSink
from poundlock.connectors.pulsar.sink import PulsarSink as PulsarSink
from poundlock.connectors.pulsar.source import PulsarSource as PulsarSource
from poundlock.connectors.rabbitmq.sink import RMQSink as RMQSink
from poundlock.connectors.rabbitmq.source import RMQSource as RMQSource
from poundlock.connectors.redis.sink import RedisSink as RedisSink
from poundlock.connectors.socket_source import SocketSource as SocketSource
from poundlock.connectors.two_phase import TwoPhaseCommitSink as TwoPhaseCommitSink
from poundlock.connectors.spark_source import SparkSource as SparkSource
from poundlock.driver.autoscaler import Autoscaler as Autoscaler
from poundlock.driver.restart import (
    ExponentialDelayRestart as ExponentialDelayRestart,
    FailureRateRestart as FailureRateRestart,
    FixedDelayRestart as FixedDelayRestart,
    NoRestart as NoRestart,
)
from poundlock.errors import (
    CommitUnknown as CommitUnknown,
    DefinitionError as DefinitionError,
    PoundlockError as PoundlockError,
    TerminalError as TerminalError,
    TransientError as TransientError,
)
from poundlock.formats.own.custom import (
    BulkWriter as BulkWriter,
    BulkWriterFactory as BulkWriterFactory,
    Encoder as Encoder,
)
from poundlock.formats.own.parquet_options import BloomFilter as BloomFilter, ParquetOptions as ParquetOptions
from poundlock.job import Job as Job
from poundlock.metrics.user import (
    Counter as Counter,
    Gauge as Gauge,
    Histogram as Histogram,
    MetricGroup as MetricGroup,
    counter as counter,
    gauge as gauge,
    histogram as histogram,
)
from poundlock.spark.foreach_batch import foreach_batch as foreach_batch
from poundlock.sql.user.declared import (
    ImperativeAggregateFunction as ImperativeAggregateFunction,
    udaf as udaf,
    udf as udf,
    udtf as udtf,
)
from poundlock.stream.functions.arrow import ArrowAggregateFunction as ArrowAggregateFunction
from poundlock.stream.functions.asynchronous import (
    AsyncRetryStrategy as AsyncRetryStrategy,
    ExponentialDelayRetry as ExponentialDelayRetry,
    FixedDelayRetry as FixedDelayRetry,
)
from poundlock.stream.functions.base import AggregateFunction as AggregateFunction, RichFunction as RichFunction
from poundlock.stream.functions.process import (
    BroadcastProcessFunction as BroadcastProcessFunction,
    CoGroupFunction as CoGroupFunction,
    CoProcessFunction as CoProcessFunction,
    JoinFunction as JoinFunction,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
    KeyedProcessFunction as KeyedProcessFunction,
    ProcessFunction as ProcessFunction,
    ProcessJoinFunction as ProcessJoinFunction,
    ProcessWindowFunction as ProcessWindowFunction,
    TimeDomain as TimeDomain,
)
from poundlock.stream.functions.state import (
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    ListStateDescriptor as ListStateDescriptor,
    MapStateDescriptor as MapStateDescriptor,
    ReducingStateDescriptor as ReducingStateDescriptor,
    StateTtlConfig as StateTtlConfig,
    ValueStateDescriptor as ValueStateDescriptor,
)
from poundlock.stream.stream import DataStream as DataStream, Side as Side
from poundlock.stream.watermarks import (
    RecordWatermarkGenerator as RecordWatermarkGenerator,
    WatermarkGenerator as WatermarkGenerator,
    WatermarkOutput as WatermarkOutput,
    WatermarkStrategy as WatermarkStrategy,
)
from poundlock.stream.windows.assigners import (
    MergingWindowAssigner as MergingWindowAssigner,
    WindowAssigner as WindowAssigner,
)
from poundlock.stream.windows.builtin_assigners import (
    CountSlidingWindows as CountSlidingWindows,
    CountTumblingWindows as CountTumblingWindows,
    CumulativeEventTimeWindows as CumulativeEventTimeWindows,
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows as EventTimeSessionWindows,
    GlobalWindows as GlobalWindows,
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    SlidingEventTimeWindows as SlidingEventTimeWindows,
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    TumblingEventTimeWindows as TumblingEventTimeWindows,
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    CountTrigger as CountTrigger,
    DeltaTrigger as DeltaTrigger,
    EndOfStreamTrigger as EndOfStreamTrigger,
    EventTimeTrigger as EventTimeTrigger,
    NeverTrigger as NeverTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    ProcessingTimeoutTrigger as ProcessingTimeoutTrigger,
    PurgingTrigger as PurgingTrigger,
)
from poundlock.stream.windows.evictors import (
    CountEvictor as CountEvictor,
    DeltaEvictor as DeltaEvictor,
    Evictor as Evictor,
    TimeEvictor as TimeEvictor,
)
from poundlock.stream.windows.triggers import Trigger as Trigger, TriggerResult as TriggerResult
from poundlock.stream.windows.window import (
    CountWindow as CountWindow,
    GlobalWindow as GlobalWindow,
    TimeWindow as TimeWindow,
)

__version__: str
