"""Lines in the files of a folder, as a source and as a sink."""

from poundlock_spool.sink import SpoolSink
from poundlock_spool.source import SpoolSource

__all__ = ["SpoolSink", "SpoolSource"]
