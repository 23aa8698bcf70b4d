"""Import hygiene: what may import what, and what must stay unloaded until it is needed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import poundlock
from support.source_trees import syntax_tree

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODULES = sorted((SOURCE / "poundlock").rglob("*.py"))
PUBLIC_ROOMS = ("connectors", "testing")
HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "py4j")

CONNECTOR_NAMES = {
    "AcknowledgedEnumerator", "AppendSink", "AppendWriter", "ReceivedMessage", "Inbox", "InboxReader", "MessageEncoder", "MessageFormat",
    "MessageSender", "Payload", "Receiver",
    "Aborted", "AbortsMany", "AuditScope", "Auditable", "Batch", "Bindable", "BindableSource", "ChecksColumns",
    "ChecksSchema", "Chunk", "Closable", "ClosableEnumerator", "CommitOutcome", "CommitsBehind", "CommitsMany", "Committed",
    "ComputesColumns", "Connector", "Decided", "DeclaresReplay", "Describable", "Disagreement", "Early",
    "Enumerator", "Examinable", "Examination", "ExplainsErrors", "FileOrigin", "Finding", "FollowsTime", "HasPlace", "HoldsReaders", "KnowsColumns",
    "IdentifyingEnumerator", "InTasks", "Inspectable", "JSON", "KafkaOrigin", "Kind", "LagReportingEnumerator", "Ledger",
    "Leftover", "Legible", "LimitedWriter", "LimitsTasks", "Lines", "MakesParticipant", "ManifestEntry", "Measurable", "MeasuringEnumerator",
    "MeteredReader", "NeedsJvm", "Newer", "NewerOutput", "ObjectSource", "Occasion", "OpensEarly", "Orphan", "Participant", "PartitionedEnumerator", "PartitionLagEnumerator", "PartitionRead",
    "PausableEnumerator", "PendingFile", "Portable", "PositionChecking", "Preflight", "Prepared", "PreparesAhead", "PreviewRefused",
    "RangeCheckingEnumerator", "ReadBack", "Reader", "ReaderContext", "Reading", "ReadsOnlyValue", "Records",
    "Reject", "Repeatable", "ReplayKind", "ReplayPromise", "SinkTime", "SourceGoneError", "SparkRead", "SparkSource",
    "Split", "SplitSource", "Staged", "Storage", "SweepsMany", "TakesColumns", "TaskFolders", "TaskModules",
    "TaskPerPartition", "Writer", "WriterContext", "connectors", "find", "finished_files", "match",
    "open_storage", "to_batch", "to_records", "unchecked",
}  # fmt: skip

# A module may import from its own rank and from those below it.
RANKS = [
    {"error_codes"},
    {"errors"},
    {"values", "failpoints", "redaction", "threads", "versions", "arguments", "calls"},
    {"formats", "storage", "config", "metrics"},
    {"operators", "stream"},
    {"checkpoint", "audit", "connectors", "state"},
    {"plan", "tasks"},
    {"job", "savepoint", "spark", "driver", "control", "sql"},
    {"cli", "deploy", "rest", "telemetry", "dashboard", "testing", "demo", "__main__"},
]
RANK = {name: number for number, names in enumerate(RANKS) for name in names}


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(module: str) -> str:
    """Return the first name below poundlock: `poundlock.checkpoint.ledger.ledger` -> `checkpoint`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every module that is imported at run time, in functions too, with its line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from _imports(ast.Module([other], []))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            if node.module == "poundlock":
                yield from ((f"poundlock.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module or "", node.lineno
        else:
            yield from _imports(node)


def _top_level_imports(tree: ast.Module) -> set[str]:
    """Return the first names of what importing the module imports."""
    inner = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {name.split(".")[0] for name, _ in _imports(ast.Module(inner, []))}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    assert len(MODULES) > 20
    return {_name(path): syntax_tree(path) for path in MODULES}


@pytest.fixture(scope="module")
def imported(trees: dict[str, ast.Module]) -> dict[str, list[tuple[str, int]]]:
    """What each module imports at run time, with the line."""
    return {name: list(_imports(tree)) for name, tree in trees.items()}


def test_every_module_opens_with_a_docstring(trees: dict[str, ast.Module]) -> None:
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == []


def test_arrows_point_one_way(imported: dict[str, list[tuple[str, int]]]) -> None:
    wrong = []
    for name, imports in imported.items():
        if name == "poundlock":
            continue
        package = _package(name)
        assert package in RANK, f"{name}: say in RANKS where {package} stands"
        for other, line in imports:
            # A job runs and explains itself through the layers that read it; that is its whole point, and lazy.
            if not other.startswith("poundlock.") or _package(other) not in RANK:
                continue
            if RANK[_package(other)] > RANK[package]:
                wrong.append(f"{name}:{line} imports {other}")
    assert wrong == []


def test_pyspark_stays_in_spark(imported: dict[str, list[tuple[str, int]]]) -> None:
    wrong = [
        f"{name}:{line}"
        for name, imports in imported.items()
        for other, line in imports
        if other.split(".")[0] in ("pyspark", "py4j") and _package(name) != "spark"
    ]
    assert wrong == []


def test_the_job_and_the_command_line_do_not_name_heavy_packages_at_the_top(trees: dict[str, ast.Module]) -> None:
    light = {
        n: t for n, t in trees.items() if _package(n) in ("", "errors", "values", "job", "stream", "cli", "config")
    }
    assert light
    assert {n: _top_level_imports(t) & set(HEAVY) for n, t in light.items() if _top_level_imports(t) & set(HEAVY)} == {}


def _loaded_after(statement: str) -> list[str]:
    code = f"import sys, json\n{statement}\nprint(chr(10) + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return loaded


def _heavy(loaded: list[str]) -> list[str]:
    return [name for name in loaded if name.split(".")[0] in HEAVY]


def test_the_check_itself_sees_heavy_packages() -> None:
    assert _heavy(_loaded_after("import numpy"))


def test_importing_the_package_is_light() -> None:
    loaded = _loaded_after("import poundlock")
    assert _heavy(loaded) == []
    assert [name for name in loaded if name.startswith("poundlock.")] == []


def test_building_a_job_is_light() -> None:
    assert _heavy(_loaded_after("from poundlock import Job; Job('a')")) == []


def test_help_is_light() -> None:
    """The bar is 0.3 s of CPU; modules are what costs it. A bare interpreter has about 40, typer about 140."""
    loaded = _loaded_after("from poundlock.cli.main import main\nassert main(['--help']) == 0")
    assert _heavy(loaded) == []
    assert [name for name in loaded if name.split(".")[0] in ("pydantic", "structlog", "msgspec", "asyncio")] == []
    assert len(loaded) < 330, len(loaded)


PUBLIC = ("poundlock", "poundlock.connectors", "poundlock.testing")


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_can_be_loaded(package: str) -> None:
    module = import_module(package)
    missing = []
    for name in module.__all__:
        try:
            getattr(module, name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{name}: {error}")
    assert missing == []


def test_what_connector_authors_import() -> None:
    """The list is a promise: a name that goes, or comes, is a line in the changelog."""
    from poundlock import connectors

    assert connectors.__all__ == sorted(CONNECTOR_NAMES)


def test_importing_the_connectors_is_light() -> None:
    loaded = _loaded_after("import poundlock.connectors")
    assert [name for name in loaded if name.startswith("poundlock.")] == ["poundlock.connectors"]


def _sources_for_users() -> Iterator[tuple[str, ast.Module]]:
    """Yield the Python of the pages and of the examples."""
    root = SOURCE.parent
    for page in (root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")):
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M), 1):
            yield f"{page.relative_to(root)}, block {number}", ast.parse(block)
    for path in (root / "examples").rglob("*.py"):
        yield str(path.relative_to(root)), ast.parse(path.read_text())


def test_pages_and_examples_import_public_names_only() -> None:
    wrong = {
        f"{where}: {name}"
        for where, tree in _sources_for_users()
        for name, _ in _imports(tree)
        if name.startswith("poundlock.") and name.removeprefix("poundlock.") not in (*PUBLIC_ROOMS, *poundlock.__all__)
    }
    assert wrong == set()
