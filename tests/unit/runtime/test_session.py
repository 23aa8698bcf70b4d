"""What Spark's Python side prints when its JVM dies or a function cannot be pickled stays off the user's terminal."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging, types
from poundlock.runtime.session import _quiet
server = types.SimpleNamespace()
_quiet(types.SimpleNamespace(_accumulatorServer=server))
server.handle_error(None, None)
logging.error("Exception while sending command.")
logging.getLogger("py4j.clientserver").error("There was an exception")
"""


def test_a_dying_jvm_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


UNPICKLABLE = """
import threading, types
from pyspark.serializers import CloudPickleSerializer
from poundlock.runtime.session import _quiet
_quiet(types.SimpleNamespace())
lock = threading.Lock()
try:
    CloudPickleSerializer().dumps(lambda: lock)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_function_that_cannot_be_pickled_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", UNPICKLABLE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("PicklingError\n", "")
