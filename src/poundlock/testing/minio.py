"""EmbeddedMinio: a MinIO server for trials, tests and benchmarks: real S3 conditions, many requests at a time, objects on disk.

Its program is `minio` on PATH, or is built once by Go into the cache folder. It listens on the loopback, and does not outlive its starter.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import cache_dir
from poundlock.testing.s3 import EmbeddedS3

MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
_MODULE = "github.com/minio/minio"

Progress = Callable[[str], None]


class EmbeddedMinio(EmbeddedS3):
    """A MinIO server to use in a `with` block, or by `start()` and `close()`. Its objects survive `kill` and `start`, not `close`.

    Args:
        port: of the loopback; None = any free one. It stays the same over `kill` and `start`.
        progress: called with a line before the program is built, which takes minutes; never called when it is there.
    """

    def __init__(self, *, port: int | None = None, progress: Progress | None = None) -> None:
        super().__init__(port=port)
        self._progress = progress

    def _command(self) -> list[str]:
        program = minio_program(progress=self._progress)
        place = ["--address", f"127.0.0.1:{self.port}", "--certs-dir", str(self.home / "certs")]
        return [str(program), "server", "--quiet", *place, str(self.home / "data")]

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINIO_"))}
        own = {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_REGION": self.region,
            "MINIO_BROWSER": "off",  # its console would listen on every address
            "MINIO_UPDATE": "off",
        }
        return {**kept, **own}


def minio_program(*, progress: Progress | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Return MinIO's program: `minio` on PATH, else the one in the cache folder, which Go builds where it is not there yet.

    Raises:
        DefinitionError: it is not there, and there is no Go, or Go could not build it.
    """
    env = os.environ if environment is None else environment
    path = env.get("PATH", os.defpath)
    if own := shutil.which("minio", path=path):
        return Path(own)
    return go_program("MinIO", f"{_MODULE}@{MINIO}", progress=progress, environment=env)


def go_program(
    title: str,
    module: str,
    flags: Sequence[str] = (),
    *,
    source: str = "",
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Return the program of a server for tests in the cache folder, which Go builds where it is not there yet.

    Args:
        title: what it is called; in small letters also the program's name.
        module: the Go package, with "@" and its version; the module, where `source` is given.
        flags: further arguments of Go's.
        source: a program in Go that uses the module; "" = the package is one.

    Raises:
        DefinitionError: it is not there, and there is no Go, or Go could not build it.
    """
    env = os.environ if environment is None else environment
    name, version = title.lower(), module.partition("@")[2]
    home = cache_dir(env) / name
    program = home / version / name
    if os.access(program, os.X_OK):
        return program
    go = shutil.which("go", path=env.get("PATH", os.defpath))
    if go is None:
        raise DefinitionError(
            f"the {title} server for tests is not built yet, and there is no Go on PATH", next=_next(name)
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.access(program, os.X_OK):
                (progress or (lambda line: None))(f"building {title} {version} with {go}, once: this takes minutes")
                _build(title, go, module, flags, source, program, env)
    except OSError as error:
        raise DefinitionError(
            f"cannot write {home}: {error.strerror or error}", next="set POUNDLOCK_CACHE_DIR to a folder with room"
        ) from error
    return program


def _next(name: str) -> str:
    own = "put a `minio` program on PATH, or " if name == "minio" else ""
    return f"{own}install Go 1.24 or later and put its bin folder on PATH"


def _build(
    title: str, go: str, module: str, flags: Sequence[str], source: str, program: Path, env: Mapping[str, str]
) -> None:
    """Build it aside and put it in place by one rename."""
    with tempfile.TemporaryDirectory(dir=program.parent.parent, prefix=".tmp-", ignore_cleanup_errors=True) as aside:
        command = [go, "install", *flags, module]
        if source:
            name, _, version = module.partition("@")
            Path(aside, "go.mod").write_text(f"module server\n\nrequire {name} {version}\n")
            Path(aside, "main.go").write_text(source)
            command = [go, "build", "-mod=mod", *flags, "-o", program.name, "."]
        # One package at a time: it shares the machine with what is tested, and a package may take a gigabyte.
        own = {"CGO_ENABLED": "0", "GOFLAGS": "-p=1", "GOBIN": aside}
        done = subprocess.run(
            command,
            env={**env, **own},
            cwd=aside,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        built = Path(aside) / program.name
        if done.returncode != 0 or not built.is_file():
            lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
            raise DefinitionError(
                f"{title} could not be built by {go}: {' '.join(lines[-3:])[-500:]}", next=_next(program.name)
            )
        program.parent.mkdir(exist_ok=True)
        built.rename(program)
