"""The preloading daemon: what it loads, that it starts no thread, and that a forked child can use what was loaded."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import json, os, sys, threading
from poundlock.spark import worker_daemon as daemon
assert "numpy" not in sys.modules and "pyarrow" not in sys.modules, "importing the module alone must load nothing"
daemon.preload()
loaded = [name for name in daemon.PRELOADED if name in sys.modules]
read_end, write_end = os.pipe()
if os.fork() == 0:
    import numpy, pyarrow
    total = int(numpy.arange(1000).sum()) + pyarrow.array(range(1000)).take(pyarrow.array([999, 1]))[0].as_py()
    batch = pyarrow.RecordBatch.from_pydict({"n": [1, 2]})
    os.write(write_end, str(total + pyarrow.Table.from_batches([batch]).num_rows).encode())
    os._exit(0)
os.close(write_end)
told = os.read(read_end, 100).decode()
os.wait()
print(json.dumps({"loaded": loaded, "threads": threading.active_count(), "child": told, "pandas": "pandas" in sys.modules}))
"""


def test_workers_find_everything_loaded_and_forks_work() -> None:
    import json

    from poundlock.spark.worker_daemon import PRELOADED

    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["loaded"] == list(PRELOADED)
    assert told["threads"] == 1
    assert told["child"] == str(499500 + 999 + 2)
    assert not told["pandas"], "pandas is 2 CPU seconds that no worker of ours needs"
