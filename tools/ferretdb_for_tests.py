"""Build FerretDB, which tests/services/test_mongodb_sink.py writes to besides, where Go is: a server with MongoDB's protocol over PostgreSQL.

It goes into the folder that POUNDLOCK_FERRETDB names, by default one in the cache; what is there stays as it is. It takes some minutes of CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from poundlock.spark.launch.java import cache_dir

VERSION = "1.24.2"
FOLDER = Path(os.environ.get("POUNDLOCK_FERRETDB", cache_dir() / "ferretdb"))


def main() -> int:
    """Build it where it is missing."""
    program = FOLDER / "ferretdb"
    if not program.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(FOLDER)}
        package = f"github.com/FerretDB/FerretDB/cmd/ferretdb@v{VERSION}"
        command = ["go", "install", "-trimpath", "-ldflags", "-s -w", "-tags", "ferretdb_no_sqlite", package]
        subprocess.run(command, env=environment, check=True)
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
