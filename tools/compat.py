"""Runs the tests of tests/compat on every Spark that is supported, each in an environment of its own under build/compat.

An environment has the locked packages but for Spark and its Py4J, and this project as it stands. A line for each version says
what passed; the exit code is 1 if something failed anywhere. What is in build/compat is made again only where it is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "compat"
LOCK = ROOT / "requirements.lock"
SPARKS = ("3.5", "4.0", "4.2", "4.3")
OF_SPARK = ("pyspark", "py4j")


@dataclass(frozen=True)
class Outcome:
    """What came of one version.

    Args:
        spark: the version that was installed, or the one that was asked for.
        passed: how many tests passed.
        failed: the names of those that failed.
        trouble: why they could not be run; empty if they were.
    """

    spark: str
    passed: int = 0
    failed: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def good(self) -> bool:
        return not self.trouble and not self.failed and self.passed > 0

    def line(self) -> str:
        """Return it as a line for people."""
        if self.trouble:
            return f"{self.spark:8} not run: {self.trouble}"
        return "\n".join(
            [
                f"{self.spark:8} {self.passed} passed, {len(self.failed)} failed",
                *(f"{'':8} failed: {name}" for name in self.failed),
            ]
        )


def without_spark(lock: str) -> str:
    """Return a lock file without the lines of Spark and Py4J."""
    return "".join(line for line in lock.splitlines(keepends=True) if re.split(r"[=<>~! ;]", line)[0] not in OF_SPARK)


def requirement(version: str) -> str:
    """Return what is installed for a version: "3.5" is its newest patch, "3.5.1" that one."""
    return f"pyspark=={version}.*" if version.count(".") == 1 else f"pyspark=={version}"


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def install(version: str, folder: Path, python: str) -> None:
    """Make the environment of a version. Raises CalledProcessError if something cannot be installed."""
    uv = [sys.executable, "-m", "uv"]
    if not python_of(folder).exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", python, str(folder)], check=True)
    others = folder / "requirements.txt"
    others.write_text(without_spark(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    pip = [*uv, "pip", "install", "--quiet", "--python", str(python_of(folder))]
    subprocess.run([*pip, "-r", str(others), requirement(version)], check=True)
    subprocess.run([*pip, "--no-deps", "-e", str(ROOT)], check=True)


def installed_spark(folder: Path) -> str:
    """Return the version of pyspark in an environment."""
    program = "import importlib.metadata; print(importlib.metadata.version('pyspark'))"
    done = subprocess.run([str(python_of(folder)), "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run_tests(folder: Path, tests: Sequence[str]) -> Outcome:
    """Run the tests in an environment; what they print is kept beside it."""
    report, log = folder / "report.xml", folder / "tests.log"
    report.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    command = [str(python_of(folder)), "-m", "pytest", "-q", "-m", "compat", f"--junitxml={report}", *tests]
    with log.open("w", encoding="utf-8") as out:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    spark = installed_spark(folder)
    if not report.exists():
        return Outcome(spark, trouble=f"the tests did not begin; see {log}")
    return read_report(spark, report.read_text(encoding="utf-8"))


def read_report(spark: str, report: str) -> Outcome:
    """Return what a JUnit report says. A test that was skipped counts as failed: it has shown nothing."""
    passed, failed = 0, []
    for case in ElementTree.fromstring(report).iter("testcase"):
        if any(case.find(kind) is not None for kind in ("failure", "error", "skipped")):
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            passed += 1
    return Outcome(spark, passed, tuple(failed))


def folder_of(version: str, python: str | None) -> Path:
    """Return the folder of an environment: of a Spark, and of a Python where it is not the one that runs this."""
    return FOLDER / (f"spark-{version}" if python is None else f"spark-{version}-python-{Path(python).name}")


def check(version: str, tests: Sequence[str], python: str | None = None) -> Outcome:
    """Make the environment of a version and run the tests in it."""
    folder = folder_of(version, python)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"pyspark {version}: installing into {folder.relative_to(ROOT)}, then running", flush=True)
    try:
        install(version, folder, python or sys.executable)
    except subprocess.CalledProcessError as error:
        return Outcome(version, trouble=f"the packages could not be installed (exit code {error.returncode})")
    return run_tests(folder, tests)


def main() -> int:
    """Check the versions that were asked for; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=SPARKS, help=f"default: {' '.join(SPARKS)}")
    parser.add_argument("--tests", nargs="+", default=["tests/compat"], help="what to run; default: tests/compat")
    parser.add_argument(
        "--python", help='another Python, by version or path, such as "3.13"; default: the one this runs in'
    )
    given = parser.parse_args()
    outcomes = [check(version, given.tests, given.python) for version in given.versions]
    print("\n".join(outcome.line() for outcome in outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
