"""Every error has a code: all places that raise one are looked through, and the registry and its page are held against each other."""

from __future__ import annotations

import ast
import importlib
import io
import pickle
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from tools.error_pages import PAGE, page

from poundlock import errors
from poundlock.cli.main import main
from poundlock.cli.output import Output
from poundlock.error_codes.registry import SUBJECTS, codes, look_up, subject_of
from poundlock.error_codes.subject import CATEGORIES
from poundlock.errors import DefinitionError, PoundlockError, SourceGoneError, TerminalError, missing_package
from poundlock.spark.error_translation import explain
from poundlock.sql.errors import NOWHERE, OptionError, SqlError
from poundlock.sql.functions.function import DivisionByZero
from support.source_trees import syntax_tree

PACKAGE = Path(errors.__file__).parent
MODULES = {
    ".".join(("poundlock", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
CODES = {text for text, _, _ in codes()}
KINDS = {kind for subject in SUBJECTS for kind in subject.kinds}
# Calls of the analysis of SQL that have an error's kind among their arguments.
READS = {"read_record", "naming"}  # of storage.json_record, which raises in the name of its caller
REFUSALS = {"error", "refuse", "_refuse", "_error"}


@cache
def error_classes() -> Mapping[str, type[PoundlockError]]:
    """Return the error classes of the package by name."""
    derived = {  # by their text: only the modules that have some are parsed and imported
        name: (module, set(re.findall(r"\w+", bases)))
        for module in MODULES
        for name, bases in re.findall(r"^class (\w+)\((.*)\):", source(module), re.MULTILINE)
    }
    names, count = {"PoundlockError"}, 0
    while len(names) > count:
        count = len(names)
        names |= {name for name, (_, bases) in derived.items() if bases & names}
    return {name: getattr(importlib.import_module(derived[name][0]), name) for name in sorted(names)}


@cache
def source(module: str) -> str:
    return MODULES[module].read_text(encoding="utf-8")


@cache
def raised_in(module: str) -> list[tuple[type[PoundlockError], str]]:
    calls = rf"\b(?:{'|'.join([*error_classes(), *REFUSALS, *READS])})(?:\.at)?\("
    return list(raised(syntax_tree(MODULES[module]))) if re.search(calls, source(module)) else []


def raised(tree: ast.AST) -> Iterator[tuple[type[PoundlockError], str]]:
    """Yield the class of each error that is made, and its kind where it is written there."""
    classes = error_classes()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "at":
            function = function.value
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in classes:
            kinds = [each.value for each in node.keywords if each.arg == "kind"]
            yield classes[name], kinds[0].value if kinds and isinstance(kinds[0], ast.Constant) else ""
        elif isinstance(function, ast.Name) and name in READS and READS & imported(tree):
            kinds = [each.value.id for each in node.keywords if each.arg == "kind" and isinstance(each.value, ast.Name)]
            yield classes[kinds[0] if kinds else "TerminalError"], ""
        elif name in REFUSALS and len(node.args) == 4 and isinstance(node.args[3], ast.Constant):
            yield SqlError, str(node.args[3].value)


def imported(tree: ast.AST) -> set[str]:
    """Return the names that a module imports from the one that reads records."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {each.name for node in froms if node.module == "poundlock.storage.json_record" for each in node.names}


def code_at(module: str, kind: type[PoundlockError], word: str) -> str:
    names = [each.__name__ for each in kind.__mro__]
    subject = subject_of(kind=word or kind.kind, classes=names, module=module)
    return f"PL-{subject.number:03}{kind.category}"


def test_every_error_that_is_raised_has_a_code() -> None:
    missing, used = set(), set()
    for module in set(MODULES) - {"poundlock.errors", "poundlock.storage.json_record"}:
        for kind, word in raised_in(module):
            code = code_at(module, kind, word)
            used.add(code)
            if code not in CODES:
                missing.add(f"{module} raises {kind.__name__}: give {code} an entry in poundlock.error_codes")
    assert not missing, "\n".join(sorted(missing))
    # Made from a class that is looked up, by users, or for others: no call of a class by its name shows them.
    elsewhere = {"PL-0052"} | {code for code in CODES if code.startswith("PL-001")}
    elsewhere |= {"PL-1043", "PL-1044"}  # of the table of spark.error_translation
    elsewhere |= {"PL-2332", "PL-2342"}  # their kinds go through sql.connectors.options.unknown_word
    assert not CODES - used - elsewhere, (
        f"nothing raises {sorted(CODES - used - elsewhere)}: keep the numbers out of use"
    )


def test_one_without_an_entry_is_seen() -> None:
    tree = ast.parse(
        'raise FencedError("x")\nraise DefinitionError("y", kind="topic_deleted")\nself.error(n, w, x, "syntax")'
    )
    seen = list(raised(tree))
    assert [(kind.__name__, word) for kind, word in seen] == [
        ("FencedError", ""),
        ("DefinitionError", "topic_deleted"),
        ("SqlError", "syntax"),
    ]
    assert code_at("poundlock.formats.decode", *seen[0]) not in CODES
    assert code_at("poundlock.formats.decode", *seen[2]) == "PL-2012"


def test_all_kinds_of_sql_are_in_the_registry() -> None:
    """A word that is misspelt would give the code of all statements."""
    words = {
        word
        for module in MODULES
        if module.startswith("poundlock.sql.")
        for kind, word in raised_in(module)
        if word and issubclass(kind, SqlError | OptionError)
    }
    assert len(words) > 15
    assert words - KINDS - {"other"} == set()


def test_numbers_modules_classes_and_kinds_are_of_one_subject_each() -> None:
    for names in (
        [subject.number for subject in SUBJECTS],
        [subject.title for subject in SUBJECTS],
        [name for subject in SUBJECTS for name in subject.modules],
        [name for subject in SUBJECTS for name in subject.classes],
        [name for subject in SUBJECTS for name in subject.kinds],
        [text for text, _, _ in codes()],
    ):
        assert len(names) == len(set(names)), sorted(names)
    for subject in SUBJECTS:
        assert subject.codes
        assert {f"poundlock.{module}" for module in subject.modules} <= set(MODULES), subject.title
        assert set(subject.classes) <= set(error_classes()), subject.title


def test_entries_are_sentences_and_hints() -> None:
    for text, _, code in codes():
        assert re.fullmatch(r"PL-\d{4}", text)
        assert code.category in CATEGORIES
        assert code.meaning.endswith("."), text
        assert code.causes, text
        assert code.do, text
        assert not [each for each in (*code.causes, *code.do) if len(each) < 5 or each.endswith(".")], text


def test_codes_of_before_are_still_there() -> None:
    """A code is a promise: it may be added, never taken away or used for something else."""
    before = [
        tuple(line.split("  ", 1))
        for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    ]
    now = [(text, subject.title) for text, subject, _ in codes()]
    assert [each for each in before if each not in now] == [], "these were given out: bring them back as they were"
    assert [each for each in now if each not in before] == [], "add the lines of these to test_error_codes.txt"


def test_the_page_is_that_of_the_registry() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "type: python tools/error_pages.py"


def test_the_category_is_the_exit_code_where_there_is_one() -> None:
    for kind in error_classes().values():
        digit = kind.category
        assert {6: 4, 7: 3}.get(digit, digit) == kind.exit_code, kind


# --- how an error gets its code ------------------------------------------------------------------------------------------


def sent(error: PoundlockError) -> PoundlockError:
    return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]


def test_an_error_of_ones_own_code() -> None:
    assert PoundlockError("x").code == "PL-0011"
    assert SourceGoneError("x").code == "PL-0016"


def test_by_module_class_and_kind() -> None:
    from poundlock.arguments import check_choices
    from poundlock.connectors.kafka.errors import expired, recreated

    assert recreated("t", "x").code == "PL-0346"
    assert expired("t", 0, 1, 2).code == "PL-0356"
    assert DivisionByZero("x").code == "PL-2414"
    assert missing_package("x", "y", "z").code == "PL-0052"
    assert OptionError("x", next="", kind="unknown_option").code == "PL-2312"
    assert SqlError("x", place=NOWHERE, script="x", next="", kind="syntax").code == "PL-2012"
    with pytest.raises(DefinitionError) as refused:
        check_choices(1, {"real": ["b"]})
    assert refused.value.code == "PL-0032"


def test_a_code_survives_the_way_from_task_to_driver() -> None:
    from poundlock.connectors.kafka.errors import recreated

    error = recreated("t", "x")
    assert (sent(error).code, sent(error).kind, str(sent(error))) == ("PL-0346", "topic_recreated", str(error))
    assert sent(sent(error)).__notes__ == error.__notes__ == ["Code: PL-0346, see: poundlock help PL-0346"]


def test_a_code_survives_a_printed_traceback() -> None:
    """Which is how a worker of Spark's sends an error."""
    import traceback

    try:
        raise TerminalError("the value is 3", next="mend it", code="PL-0224")
    except TerminalError as error:
        printed = "".join(traceback.format_exception(error))
    back = explain(RuntimeError(f"An exception was thrown from the Python worker:\n{printed} SQLSTATE: 38000\n"))
    assert (type(back), back.what, back.next, back.code) == (TerminalError, "the value is 3", "mend it", "PL-0224")


def test_the_code_is_printed_with_the_error() -> None:
    err = io.StringIO()
    Output(err=err).error(DefinitionError("it is wrong", next="mend it", code="PL-0042"))
    assert err.getvalue() == "error: it is wrong [PL-0042]\nNext: mend it\n"


# --- poundlock help ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["PL-0042", "pl-0042", "PL0042", "0042", "42"])
def test_a_code_is_explained_however_it_is_typed(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", typed]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PL-0042  Settings: definition\n")
    assert "- a misspelt name\n" in shown


def test_all_codes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for text in sorted(CODES):
        assert look_up(text) is not None
    assert main(["help", "PL-0356", "--json"]) == 0
    assert '"code": "PL-0356"' in capsys.readouterr().out


def test_a_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "ledger"]) == 0
    assert "Usage: poundlock ledger" in capsys.readouterr().out
    assert main(["help"]) == 0
    assert "Usage: poundlock [OPTIONS]" in capsys.readouterr().out


def test_what_is_neither_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "PL-9999"]) == 2
    assert capsys.readouterr().err.startswith("error: there is no error and no command 'PL-9999' [PL-0022]\n")
    assert main(["help", "explian"]) == 2
    assert "did you mean explain?" in capsys.readouterr().err
