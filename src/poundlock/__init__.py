"""poundlock: PySpark Structured Streaming pipelines that are exactly-once end to end.

Every public name has one import path, `from poundlock import …`; importing the package loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.connectors.datagen.source import DatagenSource as DatagenSource
    from poundlock.connectors.files.buckets import BasePathBucketAssigner as BasePathBucketAssigner
    from poundlock.connectors.files.buckets import EventTimeBucketAssigner as EventTimeBucketAssigner
    from poundlock.connectors.files.buckets import ExpressionBucketAssigner as ExpressionBucketAssigner
    from poundlock.connectors.files.buckets import ProcessingTimeBucketAssigner as ProcessingTimeBucketAssigner
    from poundlock.connectors.files.buckets import PythonBucketAssigner as PythonBucketAssigner
    from poundlock.connectors.files.compaction import FileCompaction as FileCompaction
    from poundlock.connectors.files.rolling import RollingPolicy as RollingPolicy
    from poundlock.connectors.files.sink import FileSink as FileSink
    from poundlock.connectors.files.source import FileSource as FileSource
    from poundlock.connectors.jdbc.sink import JdbcSink as JdbcSink
    from poundlock.connectors.kafka.security import KafkaSecurity as KafkaSecurity
    from poundlock.connectors.kafka.sink import KafkaSink as KafkaSink
    from poundlock.connectors.kafka.sink import TopicExpression as TopicExpression
    from poundlock.connectors.kafka.source.source import KafkaSource as KafkaSource
    from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets as StartingOffsets
    from poundlock.connectors.postgres.sink import PostgresSink as PostgresSink
    from poundlock.connectors.postgres.source import PostgresSource as PostgresSource
    from poundlock.connectors.printing import PrintSink as PrintSink
    from poundlock.connectors.sockets import SocketSource as SocketSource
    from poundlock.connectors.spark_source import SparkFormatSource
    from poundlock.connectors.two_phase import TwoPhaseCommitSink as TwoPhaseCommitSink
    from poundlock.errors import CommitUnknown as CommitUnknown
    from poundlock.errors import DefinitionError as DefinitionError
    from poundlock.errors import PoundlockError as PoundlockError
    from poundlock.errors import TerminalError as TerminalError
    from poundlock.errors import TransientError as TransientError
    from poundlock.job import Job as Job
    from poundlock.runtime.restart import ExponentialDelayRestart as ExponentialDelayRestart
    from poundlock.runtime.restart import FailureRateRestart as FailureRateRestart
    from poundlock.runtime.restart import FixedDelayRestart as FixedDelayRestart
    from poundlock.runtime.restart import NoRestart as NoRestart
    from poundlock.spark.foreach_batch import foreach_batch as foreach_batch
    from poundlock.stream.assigners import MergingWindowAssigner as MergingWindowAssigner
    from poundlock.stream.assigners import WindowAssigner as WindowAssigner
    from poundlock.stream.broadcast import BroadcastProcessFunction as BroadcastProcessFunction
    from poundlock.stream.broadcast import KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction
    from poundlock.stream.builtin_triggers import CountTrigger as CountTrigger
    from poundlock.stream.builtin_triggers import DeltaTrigger as DeltaTrigger
    from poundlock.stream.builtin_triggers import EndOfStreamTrigger as EndOfStreamTrigger
    from poundlock.stream.builtin_triggers import EventTimeTrigger as EventTimeTrigger
    from poundlock.stream.builtin_triggers import NeverTrigger as NeverTrigger
    from poundlock.stream.builtin_triggers import ProcessingTimeoutTrigger as ProcessingTimeoutTrigger
    from poundlock.stream.builtin_triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
    from poundlock.stream.builtin_triggers import PurgingTrigger as PurgingTrigger
    from poundlock.stream.continuous_triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
    from poundlock.stream.continuous_triggers import ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger
    from poundlock.stream.count_windows import CountSlidingWindows as CountSlidingWindows
    from poundlock.stream.count_windows import CountTumblingWindows as CountTumblingWindows
    from poundlock.stream.count_windows import CumulativeEventTimeWindows as CumulativeEventTimeWindows
    from poundlock.stream.count_windows import GlobalWindows as GlobalWindows
    from poundlock.stream.evictors import CountEvictor as CountEvictor
    from poundlock.stream.evictors import DeltaEvictor as DeltaEvictor
    from poundlock.stream.evictors import Evictor as Evictor
    from poundlock.stream.evictors import TimeEvictor as TimeEvictor
    from poundlock.stream.functions import AggregateFunction as AggregateFunction
    from poundlock.stream.join_functions import CoGroupFunction as CoGroupFunction
    from poundlock.stream.join_functions import JoinFunction as JoinFunction
    from poundlock.stream.join_functions import ProcessJoinFunction as ProcessJoinFunction
    from poundlock.stream.process import CoProcessFunction as CoProcessFunction
    from poundlock.stream.process import KeyedCoProcessFunction as KeyedCoProcessFunction
    from poundlock.stream.process import KeyedProcessFunction as KeyedProcessFunction
    from poundlock.stream.process import ProcessFunction as ProcessFunction
    from poundlock.stream.process import TimeDomain as TimeDomain
    from poundlock.stream.processing_windows import SlidingProcessingTimeWindows as SlidingProcessingTimeWindows
    from poundlock.stream.processing_windows import TumblingProcessingTimeWindows as TumblingProcessingTimeWindows
    from poundlock.stream.rich_function import RichFunction as RichFunction
    from poundlock.stream.session_windows import DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows
    from poundlock.stream.session_windows import (
        DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    )
    from poundlock.stream.session_windows import ProcessingTimeSessionWindows as ProcessingTimeSessionWindows
    from poundlock.stream.state import AggregatingStateDescriptor as AggregatingStateDescriptor
    from poundlock.stream.state import ListStateDescriptor as ListStateDescriptor
    from poundlock.stream.state import MapStateDescriptor as MapStateDescriptor
    from poundlock.stream.state import ReducingStateDescriptor as ReducingStateDescriptor
    from poundlock.stream.state import StateTtlConfig as StateTtlConfig
    from poundlock.stream.state import ValueStateDescriptor as ValueStateDescriptor
    from poundlock.stream.stream import DataStream as DataStream
    from poundlock.stream.stream import Side as Side
    from poundlock.stream.triggers import Trigger as Trigger
    from poundlock.stream.triggers import TriggerResult as TriggerResult
    from poundlock.stream.watermarks import RecordWatermarkGenerator as RecordWatermarkGenerator
    from poundlock.stream.watermarks import WatermarkGenerator as WatermarkGenerator
    from poundlock.stream.watermarks import WatermarkOutput as WatermarkOutput
    from poundlock.stream.watermarks import WatermarkStrategy as WatermarkStrategy
    from poundlock.stream.window import CountWindow as CountWindow
    from poundlock.stream.window import GlobalWindow as GlobalWindow
    from poundlock.stream.window import TimeWindow as TimeWindow
    from poundlock.stream.window_functions import ProcessWindowFunction as ProcessWindowFunction
    from poundlock.stream.windows import EventTimeSessionWindows as EventTimeSessionWindows
    from poundlock.stream.windows import SlidingEventTimeWindows as SlidingEventTimeWindows
    from poundlock.stream.windows import TumblingEventTimeWindows as TumblingEventTimeWindows

    SparkSource = SparkFormatSource

__version__ = "0.1.0"

_NAMES = {
    "AggregateFunction": "stream.functions",
    "AggregatingStateDescriptor": "stream.state",
    "BasePathBucketAssigner": "connectors.files.buckets",
    "BroadcastProcessFunction": "stream.broadcast",
    "CoGroupFunction": "stream.join_functions",
    "CoProcessFunction": "stream.process",
    "CommitUnknown": "errors",
    "ContinuousEventTimeTrigger": "stream.continuous_triggers",
    "ContinuousProcessingTimeTrigger": "stream.continuous_triggers",
    "CountEvictor": "stream.evictors",
    "CountSlidingWindows": "stream.count_windows",
    "CountTrigger": "stream.builtin_triggers",
    "CountTumblingWindows": "stream.count_windows",
    "CountWindow": "stream.window",
    "CumulativeEventTimeWindows": "stream.count_windows",
    "DataStream": "stream.stream",
    "DatagenSource": "connectors.datagen.source",
    "DefinitionError": "errors",
    "DeltaEvictor": "stream.evictors",
    "DeltaTrigger": "stream.builtin_triggers",
    "DynamicEventTimeSessionWindows": "stream.session_windows",
    "DynamicProcessingTimeSessionWindows": "stream.session_windows",
    "EndOfStreamTrigger": "stream.builtin_triggers",
    "EventTimeBucketAssigner": "connectors.files.buckets",
    "EventTimeSessionWindows": "stream.windows",
    "EventTimeTrigger": "stream.builtin_triggers",
    "Evictor": "stream.evictors",
    "ExponentialDelayRestart": "runtime.restart",
    "ExpressionBucketAssigner": "connectors.files.buckets",
    "FailureRateRestart": "runtime.restart",
    "FileCompaction": "connectors.files.compaction",
    "FileSink": "connectors.files.sink",
    "FileSource": "connectors.files.source",
    "FixedDelayRestart": "runtime.restart",
    "GlobalWindow": "stream.window",
    "GlobalWindows": "stream.count_windows",
    "JdbcSink": "connectors.jdbc.sink",
    "Job": "job",
    "JoinFunction": "stream.join_functions",
    "KafkaSecurity": "connectors.kafka.security",
    "KafkaSink": "connectors.kafka.sink",
    "KafkaSource": "connectors.kafka.source.source",
    "KeyedBroadcastProcessFunction": "stream.broadcast",
    "KeyedCoProcessFunction": "stream.process",
    "KeyedProcessFunction": "stream.process",
    "ListStateDescriptor": "stream.state",
    "MapStateDescriptor": "stream.state",
    "MergingWindowAssigner": "stream.assigners",
    "NeverTrigger": "stream.builtin_triggers",
    "NoRestart": "runtime.restart",
    "PostgresSink": "connectors.postgres.sink",
    "PoundlockError": "errors",
    "PostgresSource": "connectors.postgres.source",
    "PrintSink": "connectors.printing",
    "ProcessFunction": "stream.process",
    "ProcessJoinFunction": "stream.join_functions",
    "ProcessWindowFunction": "stream.window_functions",
    "ProcessingTimeBucketAssigner": "connectors.files.buckets",
    "ProcessingTimeSessionWindows": "stream.session_windows",
    "ProcessingTimeTrigger": "stream.builtin_triggers",
    "ProcessingTimeoutTrigger": "stream.builtin_triggers",
    "PurgingTrigger": "stream.builtin_triggers",
    "PythonBucketAssigner": "connectors.files.buckets",
    "RecordWatermarkGenerator": "stream.watermarks",
    "ReducingStateDescriptor": "stream.state",
    "RichFunction": "stream.rich_function",
    "RollingPolicy": "connectors.files.rolling",
    "Side": "stream.stream",
    "SlidingEventTimeWindows": "stream.windows",
    "SlidingProcessingTimeWindows": "stream.processing_windows",
    "SocketSource": "connectors.sockets",
    "SparkSource": "connectors.spark_source:SparkFormatSource",
    "StartingOffsets": "connectors.kafka.source.starting_offsets",
    "StateTtlConfig": "stream.state",
    "TerminalError": "errors",
    "TimeDomain": "stream.process",
    "TimeEvictor": "stream.evictors",
    "TimeWindow": "stream.window",
    "TopicExpression": "connectors.kafka.sink",
    "TransientError": "errors",
    "Trigger": "stream.triggers",
    "TriggerResult": "stream.triggers",
    "TumblingEventTimeWindows": "stream.windows",
    "TumblingProcessingTimeWindows": "stream.processing_windows",
    "TwoPhaseCommitSink": "connectors.two_phase",
    "ValueStateDescriptor": "stream.state",
    "WatermarkGenerator": "stream.watermarks",
    "WatermarkOutput": "stream.watermarks",
    "WatermarkStrategy": "stream.watermarks",
    "WindowAssigner": "stream.assigners",
    "foreach_batch": "spark.foreach_batch",
}

__all__ = ["__version__", *sorted(_NAMES)]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'poundlock' has no attribute {name!r}")
    module, _, attribute = _NAMES[name].partition(":")
    value = getattr(import_module(f"poundlock.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
