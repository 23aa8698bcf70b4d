"""Private API of Spark's: it is used in one module, each use has its reason, and there are at most five."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import poundlock
from poundlock.spark.private import USES

SOURCE = Path(poundlock.__file__).parent
PRIVATE = re.compile(
    r"\._(jsc|jvm|jdf|jsq|jconf|jc|jrdd|jtracker|jsparkSession|gateway|active_spark_context|instantiatedSession|activeSession)\b"
    r"|_accumulatorServer|_callback_server|_streamingCheckpointManager|_parse_datatype_string|PythonEvalType"
    r"|traceback_utils|launch_gateway|PYSPARK_GATEWAY|_PYSPARK_|pyspark\.daemon"
)
# A JVM of our own for JDBC, which is not Spark's; nothing may be added.
OTHERS = {"spark/jdbc_gateway.py"}


def code_of(path: Path) -> str:
    """Return a module's code, docstrings left out, or nothing where not even they name anything private."""
    if not PRIVATE.search(path.read_text()):
        return ""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def test_private_api_is_used_in_one_module() -> None:
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "testing") and PRIVATE.search(code_of(path))
    }
    assert users - OTHERS == {"spark/private.py"}
    assert users >= OTHERS, "a module that needs it no more leaves the list"


def test_each_use_has_its_reason_and_there_are_at_most_five() -> None:
    assert set(USES) == {
        "gateway",
        "class attributes of SparkContext and SparkSession",
        "accumulator server",
        "call sites",
        "pyspark.daemon",
    }
    assert len(USES) <= 5
    assert all(len(reason) > 40 for reason in USES.values())
