"""What Spark's Python side prints when its JVM dies or a function cannot be pickled stays off the user's terminal."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging, types
from poundlock.spark.private import quieten_accumulators
from poundlock.spark.launch.session import _quieten_loggers
server = types.SimpleNamespace()
quieten_accumulators(types.SimpleNamespace(_accumulatorServer=server))
_quieten_loggers()
server.handle_error(None, None)
logging.error("Exception while sending command.")
logging.getLogger("py4j.clientserver").error("There was an exception")
"""


def test_a_dying_jvm_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


UNPICKLABLE = """
import threading
from pyspark.serializers import CloudPickleSerializer
from poundlock.spark.launch.session import _quieten_query_loggers
_quieten_query_loggers()
lock = threading.Lock()
try:
    CloudPickleSerializer().dumps(lambda: lock)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_function_that_cannot_be_pickled_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", UNPICKLABLE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("PicklingError\n", "")
