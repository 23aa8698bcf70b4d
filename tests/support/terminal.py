"""The command line as a person meets it: what it says on standard error, and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from support.error_lines import bare


class Terminal:
    """Runs the command line in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("POUNDLOCK_")}

    def job(self, text: str, **fields: object) -> None:
        """Write job.py."""
        (self.folder / "job.py").write_text(text.format(**{"read": "", "then": "", "out": "out", **fields}))

    def fails(
        self,
        *arguments: str,
        code: int,
        before: Callable[[], None] | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[str, str]:
        """Run a command that is refused; return what happened and what to do, which is all it said."""
        done = subprocess.run(
            [sys.executable, "-m", "poundlock", *arguments],
            cwd=self.folder,
            env={**self.environment, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=before,
        )
        assert done.returncode == code, done
        what, next = map(bare, done.stderr.splitlines())
        assert what.startswith("error: "), what
        assert next.startswith("Next: "), next
        assert len(next) > len("Next: ") + 8
        # Progress is shown on standard output; what went wrong is said once.
        assert "--json" in arguments or "FAILED" not in done.stdout
        assert what.removeprefix("error: ") not in done.stdout
        self.out = done.stdout
        return what.removeprefix("error: "), next.removeprefix("Next: ")

    def run_fails(
        self,
        *arguments: str,
        code: int,
        before: Callable[[], None] | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[str, str]:
        """As `fails`, of `poundlock run job.py`."""
        state = ["-D", "state_dir=state", "-D", "master=local[1]", "-D", "driver_memory=1g"]
        return self.fails("run", "job.py", *state, *arguments, code=code, before=before, env=env)
