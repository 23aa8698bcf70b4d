"""The house rules of the source: names, rooms, arrows and what is borrowed from Spark's insides.

Every list of exceptions is what stands in the code today. It can only shrink: an exception that is no longer needed fails
the test until its line is taken out, and one more than is listed fails it too.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from support.source_trees import syntax_tree

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "poundlock"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_FILES = 15
MOST_PRIVATE_USES = 5  # in one module

BANNED = {
    "said": "received, or what it is: message, status",
    "told": "notified, or what it is: reason, failure",
    "found": "match, result, or what it is",
    "anew": "again",
    "hear": "poll",
    "heard": "received",
    "take_back": "requeue, revoke",
    "give_back": "requeue",
    "let_go": "close, release",
    "nudge": "trigger_now",
    "wind_back": "rewind",
    "lacks": "missing",
    "carry_out": "commit_all",
    "carried_out": "committed",
}
BANNED_PHRASES = re.compile(
    r"\b(?:be told|lets? go of|letting go of|is told of|are told of|to be heard)\b", re.IGNORECASE
)

# Whether one of them may be in a text, as a name or in prose: splitting a text into tokens takes a hundred times as long.
BANNED_AT_ALL = re.compile(rf"(?<![^\W_])(?:{'|'.join(BANNED)})(?![^\W_])|{BANNED_PHRASES.pattern}", re.IGNORECASE)

PYSPARK_ROOMS = {"spark"}

FOLDERS_TODAY: dict[str, int] = {}

# How often each room uses a banned name; the aim is an empty table.
BANNED_TODAY: dict[str, int] = {
    "checkpoint": 1,
    "testing": 2,
}

TWICE_TODAY = {"Operator", "Records", "Trigger"}

PRIVATE = re.compile(
    r"(?<!self)\._jvm\b|\._j(?:df|sc|sq|rdd|sparkSession)\b|\b_gateway\b|\bsessionState\(|\bqueryExecution\("
)
PRIVATE_TODAY = {
    "spark/private.py": 4,
}

CIRCLES_TODAY: set[frozenset[str]] = set()

# Attributes that are looked for by a constant name: on objects of the system, of a library or of the user's code, which declare
# nothing. An ability of a connector is a protocol of checkpoint/capabilities.py or connectors/base.py.
BY_NAME_TODAY = {
    "arguments.py": 1,
    "cli/jobs/logs.py": 1,
    "cli/main.py": 3,
    "connectors/files/sink/committer.py": 1,
    "connectors/jdbc/committer.py": 1,
    "connectors/kafka/errors.py": 1,
    "connectors/kafka/wire/connection.py": 1,
    "connectors/kafka/wire/fetch_client.py": 1,
    "control/process_id.py": 1,
    "control/spark_submit.py": 1,
    "errors.py": 1,
    "formats/words.py": 1,
    "spark/error_translation.py": 3,
    "spark/pickled_functions.py": 1,
    "spark/private.py": 3,
    "storage/hdfs.py": 1,
    "storage/local.py": 1,
    "storage/object_files.py": 1,
    "storage/storage_errors.py": 1,
    "tasks/worker.py": 1,
    "testing/postgres.py": 1,
}


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: str) -> str:
    return path.partition("/")[0]


# --- names -------------------------------------------------------------------------------------------------------------


def banned_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and identifier of each banned word, as a whole name or as a part of one between underscores."""
    if not BANNED_AT_ALL.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            words = f"_{token.string.lower()}_"
            yield from ((token.start[0], token.string) for word in BANNED if f"_{word}_" in words)
        elif token.type in (tokenize.STRING, tokenize.COMMENT) and (phrase := BANNED_PHRASES.search(token.string)):
            yield token.start[0] + token.string[: phrase.start()].count("\n"), phrase[0]


def test_names_are_those_of_the_field() -> None:
    uses = Counter(room(relative(path)) for path in MODULES for _ in banned_names(path.read_text(encoding="utf-8")))
    assert_only_shrinks(uses, BANNED_TODAY, "BANNED_TODAY")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("said = 1\n", ["said"]),
        ("def take_back(x): ...\n", ["take_back"]),
        ("self._hear_from = self.heard\n", ["_hear_from", "heard"]),
        ('def f():\n    """Be told\n    of it."""\n', ["Be told"]),
        ("foundation, unsaid, shear, again = 1, 2, 3, 4  # the rest is found here\n", []),
    ],
)
def test_banned_names_are_seen_and_no_others(source: str, names: list[str]) -> None:
    assert [name for _, name in banned_names(source)] == names


def public_classes(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return the modules in which each public class name is defined."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    return places


def test_no_public_class_name_is_defined_twice(trees: dict[str, ast.Module]) -> None:
    twice = {name: places for name, places in public_classes(trees).items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in TWICE_TODAY} == {}
    assert sorted(TWICE_TODAY - set(twice)) == [], "these are defined once by now: take them out of TWICE_TODAY"


# --- rooms -------------------------------------------------------------------------------------------------------------


def test_no_folder_has_more_files_than_one_can_oversee() -> None:
    sizes = Counter(relative(path.parent) for path in MODULES if path.name != "__init__.py")
    large = {folder: count for folder, count in sizes.items() if count > MOST_FILES}
    assert_only_shrinks(large, FOLDERS_TODAY, "FOLDERS_TODAY")


def test_the_adapter_for_queries_of_ones_own_stays_small(trees: dict[str, ast.Module]) -> None:
    """The function that Spark calls and the stage of its tasks; both gates and the sinks are those of every job."""
    (stage,) = (n for n in trees["tasks/rows_stage.py"].body if isinstance(n, ast.ClassDef) and n.name == "BatchStage")
    lines = len((PACKAGE / "spark/foreach_batch.py").read_text(encoding="utf-8").splitlines())
    assert lines + (stage.end_lineno or 0) - stage.lineno + 1 < 400


def assert_only_shrinks(counts: Mapping[str, int], today: Mapping[str, int], name: str) -> None:
    """Assert that nothing is above its allowance, and that no allowance is larger than what is there."""
    assert {key: count for key, count in counts.items() if count > today.get(key, 0)} == {}
    slack = {key: counts.get(key, 0) for key, allowed in today.items() if counts.get(key, 0) < allowed}
    assert slack == {}, f"there is less of it by now: write these numbers into {name}, and take out what is 0"


@pytest.mark.parametrize("counts", [{"a": 3}, {"a": 1}, {"a": 2, "b": 1}, {}])
def test_what_grew_or_shrank_without_its_list_is_seen(counts: dict[str, int]) -> None:
    assert_only_shrinks({"a": 2}, {"a": 2}, "LIST")
    with pytest.raises(AssertionError):
        assert_only_shrinks(counts, {"a": 2}, "LIST")


# --- errors ------------------------------------------------------------------------------------------------------------


def test_what_to_install_is_said_in_one_place() -> None:
    said = [relative(path) for path in MODULES if re.search(r"\bpip install\b", path.read_text())]
    assert said == [
        "cli/setup/project/connector.py",
        "cli/setup/project/files.py",
        "deploy/executor_pods.py",
    ]  # what they write installs in containers
    assert [relative(path) for path in MODULES if "get_close_matches" in path.read_text()] == ["errors.py"]


# --- arrows ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {relative(path): syntax_tree(path) for path in MODULES}


def imports(tree: ast.AST, *, inner: bool) -> Iterator[str]:
    """Yield each import as a dotted name, `module.name` for a from-import; what only type checkers see is left out.

    Args:
        tree: of a module, or a part of one.
        inner: whether imports in functions count as well.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from imports(ast.Module([other], []), inner=inner)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif inner or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(node, inner=inner)


def test_pyspark_is_imported_in_its_rooms_only(trees: dict[str, ast.Module]) -> None:
    rooms = {
        path.partition("/")[0]
        for path, tree in trees.items()
        for name in imports(tree, inner=True)
        if name.partition(".")[0] in ("pyspark", "py4j")
    }
    assert rooms == PYSPARK_ROOMS


def test_modules_import_each_other_without_a_circle(trees: dict[str, ast.Module]) -> None:
    names = {
        f"poundlock.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": path for path in trees
    }
    graph = {
        name: {one if one in names else one.rpartition(".")[0] for one in imports(trees[path], inner=False)}
        & set(names)
        for name, path in names.items()
    }
    found = circles(graph)
    assert found - CIRCLES_TODAY == set()
    assert CIRCLES_TODAY - found == set(), "these are gone: take them out of CIRCLES_TODAY"


def circles(graph: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """Return the groups of nodes that reach each other: Tarjan's strongly connected components of two and more."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: set[frozenset[str]] = set()

    def visit(node: str) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], index[other])
        if lowest[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                groups.add(frozenset(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return groups


def test_a_circle_is_seen() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == {frozenset({"b", "c"})}


# --- abilities ---------------------------------------------------------------------------------------------------------


def looked_for_by_name(tree: ast.AST) -> Iterator[str]:
    """Yield the constant names that `getattr` and `hasattr` are called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            yield from (str(name.value) for name in node.args[1:2] if isinstance(name, ast.Constant))


def test_abilities_are_declared_and_not_looked_for_by_name(trees: dict[str, ast.Module]) -> None:
    uses = Counter(path for path, tree in trees.items() for _ in looked_for_by_name(tree))
    assert_only_shrinks(uses, BY_NAME_TODAY, "BY_NAME_TODAY")


def test_a_name_that_is_looked_for_is_seen() -> None:
    tree = ast.parse('getattr(sink, "close", None)\nif hasattr(x, "bulk"): ...\ngetattr(self, name)\nx.getattr("y")\n')
    assert list(looked_for_by_name(tree)) == ["close", "bulk"]


# --- Spark's insides ---------------------------------------------------------------------------------------------------


def test_private_parts_of_spark_are_used_where_they_are_listed_and_nowhere_else() -> None:
    uses = {relative(path): len(PRIVATE.findall(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert_only_shrinks({path: count for path, count in uses.items() if count}, PRIVATE_TODAY, "PRIVATE_TODAY")


def test_there_are_few_of_them_in_one_module() -> None:
    assert len(PRIVATE_TODAY) <= 1
    assert sum(PRIVATE_TODAY.values()) <= MOST_PRIVATE_USES


@pytest.mark.parametrize(
    "line", ["df._jdf", "spark._jvm.x", "SparkContext._gateway", "x.queryExecution()", "s.sessionState()", "q._jsq"]
)
def test_a_private_use_is_seen(line: str) -> None:
    assert PRIVATE.search(line)
