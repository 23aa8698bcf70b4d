"""Makes the project's virtual environment from the lock file, with nothing but a Python of 3.11 or later.

What is installed is exactly what the lock names; a second run with the same lock changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
JRE_LOCK = ROOT / "requirements-jre.lock"
OLDEST_JAVA = 17


def java_version(java: str) -> int | None:
    """Return the major version of a java command, None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def has_java() -> bool:
    """Return whether a Java that Spark can use is on this machine."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    return any((java_version(java) or 0) >= OLDEST_JAVA for java in candidates)


def fingerprint(files: list[Path]) -> str:
    """Return what the environment depends on, as one line: change it and the environment is brought up to date."""
    digest = hashlib.sha256(sys.version.encode())
    for file in [*files, ROOT / "pyproject.toml"]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def install(python: Path, requirements: list[Path]) -> None:
    """Install the locked packages and this project: by uv, which is quicker, or by pip where uv cannot be had."""
    locked = [argument for file in requirements for argument in ("-r", str(file))]
    project = ["--no-deps", "-e", str(ROOT)]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*pip, "uv"], check=False).returncode == 0:
        uv = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        if all(subprocess.run([*uv, *what], check=False).returncode == 0 for what in (locked, project)):
            return
        print("uv could not install the packages; trying pip", file=sys.stderr)
    subprocess.run([*pip, *locked], check=True)
    subprocess.run([*pip, *project], check=True)


def main() -> int:
    """Make or update the environment; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where to make the environment")
    target: Path = parser.parse_args().venv.absolute()
    if sys.version_info < (3, 11):  # noqa: UP036  # this script runs before any version is chosen
        print(f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed.", file=sys.stderr)
        print("Next: install one, then type: make PYTHON=python3.11 venv", file=sys.stderr)
        return 2
    requirements = [LOCK] if has_java() else [LOCK, JRE_LOCK]
    stamp, wanted = target / ".poundlock-stamp", fingerprint(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    java = "" if len(requirements) == 1 else ", with a Java runtime, as none of 17 or later was found"
    print(f"Installing the locked packages into {target.name}{java}; a first run takes a few minutes.", flush=True)
    python = target / "bin" / "python"
    if not python.exists():
        venv.create(target, with_pip=True, clear=target.exists(), symlinks=True)
    try:
        install(python, requirements)
    except subprocess.CalledProcessError as error:
        print(
            f"pip could not install the locked packages into {target} (exit code {error.returncode}).", file=sys.stderr
        )
        print("Next: read pip's message above; network, proxy and disk space are the usual causes.", file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
