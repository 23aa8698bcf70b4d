"""poundlock: PySpark Structured Streaming pipelines that are exactly-once end to end.

Every public name has one import path, `from poundlock import …`; importing the package loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.connectors.datagen.source import DatagenSource as DatagenSource
    from poundlock.connectors.files.buckets.assigners import BasePathBucketAssigner as BasePathBucketAssigner
    from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner as EventTimeBucketAssigner
    from poundlock.connectors.files.buckets.assigners import ExpressionBucketAssigner as ExpressionBucketAssigner
    from poundlock.connectors.files.buckets.assigners import (
        ProcessingTimeBucketAssigner as ProcessingTimeBucketAssigner,
    )
    from poundlock.connectors.files.buckets.assigners import PythonBucketAssigner as PythonBucketAssigner
    from poundlock.connectors.files.sink.compaction import FileCompaction as FileCompaction
    from poundlock.connectors.files.sink.rolling import RollingPolicy as RollingPolicy
    from poundlock.connectors.files.sink.sink import FileSink as FileSink
    from poundlock.connectors.files.source.source import FileSource as FileSource
    from poundlock.connectors.jdbc.sink import JdbcSink as JdbcSink
    from poundlock.connectors.kafka.security import KafkaSecurity as KafkaSecurity
    from poundlock.connectors.kafka.sink.sink import KafkaSink as KafkaSink
    from poundlock.connectors.kafka.sink.sink import TopicExpression as TopicExpression
    from poundlock.connectors.kafka.source.source import KafkaSource as KafkaSource
    from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets as StartingOffsets
    from poundlock.connectors.postgres.sink.sink import PostgresSink as PostgresSink
    from poundlock.connectors.postgres.source.source import PostgresSource as PostgresSource
    from poundlock.connectors.print_sink import PrintSink as PrintSink
    from poundlock.connectors.socket_source import SocketSource as SocketSource
    from poundlock.connectors.spark_source import SparkFormatSource
    from poundlock.connectors.two_phase import TwoPhaseCommitSink as TwoPhaseCommitSink
    from poundlock.driver.restart import ExponentialDelayRestart as ExponentialDelayRestart
    from poundlock.driver.restart import FailureRateRestart as FailureRateRestart
    from poundlock.driver.restart import FixedDelayRestart as FixedDelayRestart
    from poundlock.driver.restart import NoRestart as NoRestart
    from poundlock.errors import CommitUnknown as CommitUnknown
    from poundlock.errors import DefinitionError as DefinitionError
    from poundlock.errors import PoundlockError as PoundlockError
    from poundlock.errors import TerminalError as TerminalError
    from poundlock.errors import TransientError as TransientError
    from poundlock.job import Job as Job
    from poundlock.spark.foreach_batch import foreach_batch as foreach_batch
    from poundlock.stream.broadcast import BroadcastProcessFunction as BroadcastProcessFunction
    from poundlock.stream.broadcast import KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction
    from poundlock.stream.functions.base import AggregateFunction as AggregateFunction
    from poundlock.stream.functions.join import CoGroupFunction as CoGroupFunction
    from poundlock.stream.functions.join import JoinFunction as JoinFunction
    from poundlock.stream.functions.join import ProcessJoinFunction as ProcessJoinFunction
    from poundlock.stream.functions.process import CoProcessFunction as CoProcessFunction
    from poundlock.stream.functions.process import KeyedCoProcessFunction as KeyedCoProcessFunction
    from poundlock.stream.functions.process import KeyedProcessFunction as KeyedProcessFunction
    from poundlock.stream.functions.process import ProcessFunction as ProcessFunction
    from poundlock.stream.functions.process import TimeDomain as TimeDomain
    from poundlock.stream.functions.rich_function import RichFunction as RichFunction
    from poundlock.stream.functions.state import AggregatingStateDescriptor as AggregatingStateDescriptor
    from poundlock.stream.functions.state import ListStateDescriptor as ListStateDescriptor
    from poundlock.stream.functions.state import MapStateDescriptor as MapStateDescriptor
    from poundlock.stream.functions.state import ReducingStateDescriptor as ReducingStateDescriptor
    from poundlock.stream.functions.state import StateTtlConfig as StateTtlConfig
    from poundlock.stream.functions.state import ValueStateDescriptor as ValueStateDescriptor
    from poundlock.stream.stream import DataStream as DataStream
    from poundlock.stream.stream import Side as Side
    from poundlock.stream.watermarks import RecordWatermarkGenerator as RecordWatermarkGenerator
    from poundlock.stream.watermarks import WatermarkGenerator as WatermarkGenerator
    from poundlock.stream.watermarks import WatermarkOutput as WatermarkOutput
    from poundlock.stream.watermarks import WatermarkStrategy as WatermarkStrategy
    from poundlock.stream.windows.assigners import MergingWindowAssigner as MergingWindowAssigner
    from poundlock.stream.windows.assigners import WindowAssigner as WindowAssigner
    from poundlock.stream.windows.builtin_triggers import CountTrigger as CountTrigger
    from poundlock.stream.windows.builtin_triggers import DeltaTrigger as DeltaTrigger
    from poundlock.stream.windows.builtin_triggers import EndOfStreamTrigger as EndOfStreamTrigger
    from poundlock.stream.windows.builtin_triggers import EventTimeTrigger as EventTimeTrigger
    from poundlock.stream.windows.builtin_triggers import NeverTrigger as NeverTrigger
    from poundlock.stream.windows.builtin_triggers import ProcessingTimeoutTrigger as ProcessingTimeoutTrigger
    from poundlock.stream.windows.builtin_triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
    from poundlock.stream.windows.builtin_triggers import PurgingTrigger as PurgingTrigger
    from poundlock.stream.windows.continuous_triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
    from poundlock.stream.windows.continuous_triggers import (
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    )
    from poundlock.stream.windows.count_windows import CountSlidingWindows as CountSlidingWindows
    from poundlock.stream.windows.count_windows import CountTumblingWindows as CountTumblingWindows
    from poundlock.stream.windows.count_windows import CumulativeEventTimeWindows as CumulativeEventTimeWindows
    from poundlock.stream.windows.count_windows import GlobalWindows as GlobalWindows
    from poundlock.stream.windows.event_time import EventTimeSessionWindows as EventTimeSessionWindows
    from poundlock.stream.windows.event_time import SlidingEventTimeWindows as SlidingEventTimeWindows
    from poundlock.stream.windows.event_time import TumblingEventTimeWindows as TumblingEventTimeWindows
    from poundlock.stream.windows.evictors import CountEvictor as CountEvictor
    from poundlock.stream.windows.evictors import DeltaEvictor as DeltaEvictor
    from poundlock.stream.windows.evictors import Evictor as Evictor
    from poundlock.stream.windows.evictors import TimeEvictor as TimeEvictor
    from poundlock.stream.windows.processing_windows import SlidingProcessingTimeWindows as SlidingProcessingTimeWindows
    from poundlock.stream.windows.processing_windows import (
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    )
    from poundlock.stream.windows.session_windows import (
        DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
    )
    from poundlock.stream.windows.session_windows import (
        DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    )
    from poundlock.stream.windows.session_windows import ProcessingTimeSessionWindows as ProcessingTimeSessionWindows
    from poundlock.stream.windows.triggers import Trigger as Trigger
    from poundlock.stream.windows.triggers import TriggerResult as TriggerResult
    from poundlock.stream.windows.window import CountWindow as CountWindow
    from poundlock.stream.windows.window import GlobalWindow as GlobalWindow
    from poundlock.stream.windows.window import TimeWindow as TimeWindow
    from poundlock.stream.windows.window_functions import ProcessWindowFunction as ProcessWindowFunction

    SparkSource = SparkFormatSource

__version__ = "0.1.0"

_NAMES = {
    "AggregateFunction": "stream.functions.base",
    "AggregatingStateDescriptor": "stream.functions.state",
    "BasePathBucketAssigner": "connectors.files.buckets.assigners",
    "BroadcastProcessFunction": "stream.broadcast",
    "CoGroupFunction": "stream.functions.join",
    "CoProcessFunction": "stream.functions.process",
    "CommitUnknown": "errors",
    "ContinuousEventTimeTrigger": "stream.windows.continuous_triggers",
    "ContinuousProcessingTimeTrigger": "stream.windows.continuous_triggers",
    "CountEvictor": "stream.windows.evictors",
    "CountSlidingWindows": "stream.windows.count_windows",
    "CountTrigger": "stream.windows.builtin_triggers",
    "CountTumblingWindows": "stream.windows.count_windows",
    "CountWindow": "stream.windows.window",
    "CumulativeEventTimeWindows": "stream.windows.count_windows",
    "DataStream": "stream.stream",
    "DatagenSource": "connectors.datagen.source",
    "DefinitionError": "errors",
    "DeltaEvictor": "stream.windows.evictors",
    "DeltaTrigger": "stream.windows.builtin_triggers",
    "DynamicEventTimeSessionWindows": "stream.windows.session_windows",
    "DynamicProcessingTimeSessionWindows": "stream.windows.session_windows",
    "EndOfStreamTrigger": "stream.windows.builtin_triggers",
    "EventTimeBucketAssigner": "connectors.files.buckets.assigners",
    "EventTimeSessionWindows": "stream.windows.event_time",
    "EventTimeTrigger": "stream.windows.builtin_triggers",
    "Evictor": "stream.windows.evictors",
    "ExponentialDelayRestart": "driver.restart",
    "ExpressionBucketAssigner": "connectors.files.buckets.assigners",
    "FailureRateRestart": "driver.restart",
    "FileCompaction": "connectors.files.sink.compaction",
    "FileSink": "connectors.files.sink.sink",
    "FileSource": "connectors.files.source.source",
    "FixedDelayRestart": "driver.restart",
    "GlobalWindow": "stream.windows.window",
    "GlobalWindows": "stream.windows.count_windows",
    "JdbcSink": "connectors.jdbc.sink",
    "Job": "job",
    "JoinFunction": "stream.functions.join",
    "KafkaSecurity": "connectors.kafka.security",
    "KafkaSink": "connectors.kafka.sink.sink",
    "KafkaSource": "connectors.kafka.source.source",
    "KeyedBroadcastProcessFunction": "stream.broadcast",
    "KeyedCoProcessFunction": "stream.functions.process",
    "KeyedProcessFunction": "stream.functions.process",
    "ListStateDescriptor": "stream.functions.state",
    "MapStateDescriptor": "stream.functions.state",
    "MergingWindowAssigner": "stream.windows.assigners",
    "NeverTrigger": "stream.windows.builtin_triggers",
    "NoRestart": "driver.restart",
    "PostgresSink": "connectors.postgres.sink.sink",
    "PoundlockError": "errors",
    "PostgresSource": "connectors.postgres.source.source",
    "PrintSink": "connectors.print_sink",
    "ProcessFunction": "stream.functions.process",
    "ProcessJoinFunction": "stream.functions.join",
    "ProcessWindowFunction": "stream.windows.window_functions",
    "ProcessingTimeBucketAssigner": "connectors.files.buckets.assigners",
    "ProcessingTimeSessionWindows": "stream.windows.session_windows",
    "ProcessingTimeTrigger": "stream.windows.builtin_triggers",
    "ProcessingTimeoutTrigger": "stream.windows.builtin_triggers",
    "PurgingTrigger": "stream.windows.builtin_triggers",
    "PythonBucketAssigner": "connectors.files.buckets.assigners",
    "RecordWatermarkGenerator": "stream.watermarks",
    "ReducingStateDescriptor": "stream.functions.state",
    "RichFunction": "stream.functions.rich_function",
    "RollingPolicy": "connectors.files.sink.rolling",
    "Side": "stream.stream",
    "SlidingEventTimeWindows": "stream.windows.event_time",
    "SlidingProcessingTimeWindows": "stream.windows.processing_windows",
    "SocketSource": "connectors.socket_source",
    "SparkSource": "connectors.spark_source:SparkFormatSource",
    "StartingOffsets": "connectors.kafka.source.starting_offsets",
    "StateTtlConfig": "stream.functions.state",
    "TerminalError": "errors",
    "TimeDomain": "stream.functions.process",
    "TimeEvictor": "stream.windows.evictors",
    "TimeWindow": "stream.windows.window",
    "TopicExpression": "connectors.kafka.sink.sink",
    "TransientError": "errors",
    "Trigger": "stream.windows.triggers",
    "TriggerResult": "stream.windows.triggers",
    "TumblingEventTimeWindows": "stream.windows.event_time",
    "TumblingProcessingTimeWindows": "stream.windows.processing_windows",
    "TwoPhaseCommitSink": "connectors.two_phase",
    "ValueStateDescriptor": "stream.functions.state",
    "WatermarkGenerator": "stream.watermarks",
    "WatermarkOutput": "stream.watermarks",
    "WatermarkStrategy": "stream.watermarks",
    "WindowAssigner": "stream.windows.assigners",
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
