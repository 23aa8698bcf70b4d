"""EmbeddedHdfs: a real namenode with a real datanode, in one JVM or in two, for trials and tests.

It listens on the loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poundlock.errors import TransientError
from poundlock.spark.launch.jars import jar_set, pyspark_jars
from poundlock.spark.launch.java import find_java
from poundlock.storage import open_storage
from poundlock.storage.copying import remove_tree
from poundlock.testing.servers import ServerProcess, end, launch

_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"


_NAMENODE_SETTINGS = {
    "dfs.permissions.enabled": "false",
    "dfs.replication": 1,
    "dfs.namenode.fs-limits.min-block-size": 1024,
    # A start after a crash needs no half minute to be sure that all blocks are there.
    "dfs.namenode.safemode.extension": 0,
}


class EmbeddedHdfs(ServerProcess):
    """An HDFS to use in a `with` block, or by `start()` and `stop()`.

    Args:
        home: folder for its data and logs; it stays afterwards and can be used again. None = a temporary one.
        port: port of the namenode; None = any free one. It stays the same over `kill`, `stop` and `start`.
        heap: most memory for its Java heap, such as "256m".
        apart: whether the datanode has a JVM of its own, so that each can be killed without the other.
        properties: further settings of hdfs-site.xml, name to value.
        java: the `java` program; default: what `find_java` finds.
        progress: called with a line at a time while the jar is fetched for the first time.
    """

    title, log_name, start_s = "HDFS", "hdfs.log", 600

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        heap: str = "256m",
        apart: bool = False,
        properties: Mapping[str, Any] | None = None,
        java: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(home, "poundlock-hdfs-", port)
        self._heap, self._properties, self._java, self._progress = heap, dict(properties or {}), java, progress
        self._apart = apart
        self._datanode: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The root of its file system, without a slash at the end. Raises RuntimeError before the first start."""
        return f"hdfs://127.0.0.1:{self.port}"

    def _start(self, timeout: float) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self._details.unlink(missing_ok=True)
        if self._apart and not (self.home / "name").exists():
            subprocess.run([*self._command(), "-format", "-nonInteractive"], capture_output=True, check=True)
        super()._start(timeout)
        if self._apart and self._datanode is None:
            self.start_datanode(timeout)

    def kill(self) -> None:
        """Kill namenode and datanode as a crash would. `start()` brings them back on the same port and data."""
        self.kill_datanode()
        self.kill_namenode()

    def kill_namenode(self) -> None:
        """Kill the namenode as a crash would, with its datanode unless that is `apart`. `start()` brings it back."""
        super().kill()

    def kill_datanode(self) -> None:
        """Kill a datanode that is `apart` as a crash would. `start_datanode()` brings it back on the same data."""
        end(self._datanode)
        self._datanode = None

    def start_datanode(self, timeout: float = 240) -> None:
        """Start a datanode that is `apart`, and wait until the namenode knows it.

        Raises:
            TransientError: it did not come up.
        """
        self._datanode = launch(self._datanode_command(), self.home / "datanode.log", title="the datanode")
        deadline = time.monotonic() + timeout
        probe = open_storage(f"{self.uri}/.poundlock-probe")
        while True:
            try:
                probe.create_exclusive(f"{time.monotonic_ns()}", b"1")
                return remove_tree(probe, "")
            except OSError as error:
                if self._datanode.poll() is not None or time.monotonic() > deadline:
                    self.kill_datanode()
                    raise TransientError(f"the datanode in {self.home} did not come up: {error}") from error
            time.sleep(0.2)

    def admin(self, *arguments: str) -> str:
        """Run a command of `hdfs dfsadmin`, such as `-setSpaceQuota 1m /data`, and return what it says.

        Raises:
            TransientError: it failed; the text has what it printed.
        """
        command = [*self._jvm("64m"), _ADMIN, "-fs", self.uri, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise TransientError(f"hdfs dfsadmin {' '.join(arguments)}: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout

    @property
    def _details(self) -> Path:
        return self.home / "details.json"

    def _jvm(self, heap: str) -> list[str]:
        jars = jar_set("hdfs-minicluster", progress=self._progress)
        return [
            self._java or find_java().path,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-cp",
            os.pathsep.join([*jars, f"{pyspark_jars()}/*"]),
        ]

    def _command(self) -> list[str]:
        if self._apart:
            return self._namenode_command()
        data = self.home / "dfs"
        return [
            *self._jvm(self._heap),
            _MAIN,
            "-nomr",
            *([] if data.exists() else ["-format"]),
            "-nnport",
            str(self._port),
            "-nnhttpport",
            "0",
            "-datanodes",
            "1",
            "-writeConfig",
            str(self.home / "site.xml"),
            "-writeDetails",
            str(self._details),
            *_defined({"hdfs.minidfs.basedir": data, **_NAMENODE_SETTINGS, **self._properties}),
        ]

    def _namenode_command(self) -> list[str]:
        """A cluster of the program above without a datanode would give files no replica by default."""
        settings = {
            "fs.defaultFS": self.uri, "dfs.namenode.name.dir": f"file://{self.home}/name",
            "dfs.namenode.http-address": "127.0.0.1:0", **_NAMENODE_SETTINGS, **self._properties,
        }  # fmt: skip
        return [*self._jvm(self._heap), _NAMENODE, *_defined(settings)]

    def _datanode_command(self) -> list[str]:
        settings = {
            "fs.defaultFS": self.uri, "dfs.datanode.data.dir": f"file://{self.home}/datanode",
            "dfs.datanode.address": "127.0.0.1:0", "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0", "dfs.datanode.hostname": "127.0.0.1",
            # It is back at the namenode a second after one of the two was restarted.
            "dfs.heartbeat.interval": 1, **self._properties,
        }  # fmt: skip
        return [*self._jvm("128m"), _DATANODE, *_defined(settings)]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            if self._apart:
                return open_storage(self.uri).stat(".poundlock-probe") is None
            return bool(json.loads(self._details.read_text()).get("namenode_port") == self._port)
        return False


def _defined(settings: Mapping[str, Any]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]
