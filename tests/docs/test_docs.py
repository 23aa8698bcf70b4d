"""Every code block of README.md and docs/*.md is run or checked, and every link and table that names code is compared with the code.

A failure names page and line. What the comments above a block mean is said in docs/development.md.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
import yaml

import poundlock
import poundlock.connectors
from poundlock.cli.main import app
from poundlock.config import Settings, _spelled, load_settings
from poundlock.errors import PoundlockError
from poundlock.failpoints import Failpoint, SavepointFailpoint
from support.pseudo_terminal import PseudoTerminal

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
LANGUAGES = {"python", "bash", "toml", "json", "yaml", "text", "sql", "console"}
MOST_NOT_RUN = 12
PROGRAMS = {".", "cat", "cd", "export", "find", "head", "kill", "ls", "rm", "sed", "sort", "true", "wc", "xargs"}

_FENCE = re.compile(r"^```(\S*)\s*$")
_NOTE = re.compile(r"^<!--\s*(run|run: engine|shape|file: (?P<file>\S+)|not run: (?P<reason>.+?))\s*-->$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block.

    Args:
        page: the file.
        line: number of the fence; the code begins in the next line.
        language: of the fence.
        code: the text.
        notes: what the comments above it say.
        reason: why it is not run, where it is not.
        file: name to save it as, where it has one.
    """

    page: Path
    line: int
    language: str
    code: str
    notes: frozenset[str] = frozenset()
    reason: str | None = None
    file: str | None = None

    def fail(self, why: str, line: int | None = None) -> None:
        pytest.fail(f"{self.page.name}:{self.line + 1 if line is None else line}: {why}", pytrace=False)

    @property
    def engine(self) -> bool:
        return "run: engine" in self.notes

    @property
    def runs(self) -> bool:
        return self.reason is None and (self.language == "python" or bool(self.notes & {"run", "run: engine"}))


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, each with the comments in the lines directly above it."""
    blocks: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = next((i for i in range(at + 1, len(lines)) if lines[i] == "```"), None)
        assert end is not None, f"{page.name}:{at + 1}: the block has no end"
        notes, above = [], at - 1
        while above >= 0 and lines[above].startswith("<!--"):
            note = _NOTE.match(lines[above])
            assert note is not None, f"{page.name}:{above + 1}: a comment that means nothing: {lines[above]}"
            notes.append(note)
            above -= 1
        blocks.append(
            Block(
                page=page,
                line=at + 1,
                language=fence[1],
                code="\n".join(lines[at + 1 : end]) + "\n",
                notes=frozenset(note[1] for note in notes),
                reason=next((note["reason"] for note in notes if note["reason"]), None),
                file=next((note["file"] for note in notes if note["file"]), None),
            )
        )
        at = end + 1
    return blocks


# --- what a block is checked for, run or not -------------------------------------------------------------------------


def check_block(block: Block) -> None:
    """Fail unless the block is right as far as can be seen without running it."""
    if block.language == "python":
        try:
            compile(block.code, block.page.name, "exec")
        except SyntaxError as error:
            block.fail(str(error.msg), block.line + (error.lineno or 1))
    elif block.language == "bash":
        check_shell(block)
    elif block.language == "console":
        check_shell(replace(block, code=_command_of(block) + "\n"))
    elif block.language == "toml":
        check_settings(block)
    elif block.language == "yaml":
        yaml.safe_load(block.code)
    elif block.language == "sql":
        check_sql(block)
    elif block.language == "json":
        for number, line in enumerate(block.code.splitlines(), 1):
            try:
                json.loads(line)
            except ValueError as error:
                block.fail(f"not JSON: {error}", block.line + number)


def check_sql(block: Block) -> None:
    from poundlock.sql.statements.session import SqlSession

    with modules_of(block.page):
        try:
            SqlSession().check(block.code)
        except PoundlockError as error:
            block.fail(str(error))


@contextmanager
def modules_of(page: Path) -> Iterator[None]:
    """Have the modules that a page has its reader save found within, by whoever imports them."""
    saved = {
        block.file: block.code for block in blocks_of(page) if block.file is not None and block.language == "python"
    }
    with TemporaryDirectory() as folder:
        for name, code in saved.items():
            (Path(folder) / name).write_text(code, encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            for name in saved:
                sys.modules.pop(name.removesuffix(".py"), None)


def _command_of(block: Block) -> str:
    """Return what a session in a terminal begins with."""
    command = block.code.partition("\n")[0]
    if not command.startswith("$ "):
        block.fail("a session begins with what is typed to start it: $ poundlock sql")
    return command.removeprefix("$ ")


def check_shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    if done.returncode:
        block.fail(done.stderr.strip())
    for number, line in enumerate(block.code.splitlines(), 1):
        for words in commands(line):
            try:
                check_command(words)
            except (ValueError, PoundlockError, typer.exceptions.TyperException) as error:
                said = error.format_message() if hasattr(error, "format_message") else str(error)
                block.fail(f"{shlex.join(words)}: {said}", block.line + number)


def commands(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line, without leading assignments and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and set(word) <= set("();<>|&"):
            while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []
        else:
            words.append(word)


def check_command(words: Sequence[str]) -> None:
    """Raise unless the command is one that could be typed here."""
    program, arguments = words[0], list(words[1:])
    if program == "poundlock":
        parse(typer.main.get_command(app()), "poundlock", arguments)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        arguments = [a for a in arguments if not re.fullmatch(r"[A-Z]+=\S+", a)]
        unknown = [a for a in arguments if a not in targets]
        if unknown or not arguments:
            raise ValueError(f"the Makefile has no target {unknown}")
    elif program == "python" and arguments[:1] == ["-m"]:
        check_module(arguments[1], arguments[2:])
    elif program not in PROGRAMS:
        raise ValueError(f"unknown program; the tests know {sorted(PROGRAMS)}")


def parse(command: Any, name: str, arguments: list[str]) -> None:
    """Parse arguments as the real command line does, without running anything."""
    try:
        context = command.make_context(name, list(arguments))
    except typer.Exit:
        return  # --help and --version end it
    if not hasattr(command, "commands"):
        return
    found = next((i for i, word in enumerate(arguments) if word in command.commands), None)
    default = getattr(command, "default", None)
    if found is None and default is not None:
        parse(command.commands[default], default, arguments)
        return
    if found is None:
        raise ValueError(f"no such command: {' '.join(arguments)}")
    assert context is not None
    parse(command.commands[arguments[found]], arguments[found], arguments[found + 1 :])


def check_module(module: str, arguments: list[str]) -> None:
    if module == "pip":
        for wanted in re.findall(r"\[([a-z,]+)\]", " ".join(arguments)):
            extras = re.findall(r"^(\w+) = \[", _section("project.optional-dependencies"), re.MULTILINE)
            if unknown := sorted(set(wanted.split(",")) - set(extras)):
                raise ValueError(f"there is no extra {unknown}")
    elif module == "pytest":
        for path in (a for a in arguments if "/" in a):
            if not (ROOT / path).exists():
                raise ValueError(f"{path} does not exist")
    elif module == "benchmarks":
        from benchmarks.__main__ import _arguments

        try:
            _arguments(arguments)
        except SystemExit:
            raise ValueError("the benchmarks do not take these arguments") from None
    elif module != "venv":
        raise ValueError(f"unknown module {module}")


def _section(name: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return text.partition(f"[{name}]\n")[2].partition("\n[")[0]


def check_settings(block: Block) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(block.code)
        file.flush()
        try:
            load_settings(config=file.name)
        except PoundlockError as error:
            block.fail(str(error))


# --- running a page --------------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Someone who types in a page from top to bottom, in an empty folder."""

    folder: Path
    environment: dict[str, str]
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "docs"})
    output: str | None = None

    def read(self, blocks: Sequence[Block]) -> None:
        """Run what is to be run and compare what is said to come out."""
        for block in blocks:
            if block.file is not None:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.code, encoding="utf-8")
            if block.language == "text":
                if self.output is not None:
                    self.compare(block)
                self.output = None
            elif block.language == "console":
                if block.runs:
                    self.console(block)
                self.output = None
            elif block.runs:
                self.output = self.python(block) if block.language == "python" else self.shell(block)
            else:
                self.output = None

    def python(self, block: Block) -> str:
        # Blank lines in front make line numbers those of the page.
        code = compile("\n" * block.line + block.code, str(block.page), "exec")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(code, self.namespace)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(block.page)]
            block.fail(f"{type(error).__name__}: {error}", frames[-1].lineno if frames else None)
        return said.getvalue()

    def shell(self, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.code],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        if done.returncode:
            block.fail(f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def console(self, block: Block) -> None:
        """Type a session into the shell of SQL, in a terminal: what the page says of each statement has to come up."""
        typed: list[str] = []
        with PseudoTerminal(["bash", "-c", _command_of(block)], self.folder, self.environment) as terminal:
            try:
                for line in block.code.splitlines()[1:]:
                    if line.startswith(("sql> ", "  -> ")):
                        typed.append(line[5:])
                        continue
                    if typed:
                        terminal.type("\r".join(typed) + "\r")
                        typed.clear()
                    if line == "^C":
                        terminal.type("\x03")
                    elif line == "Killed":
                        assert terminal.await_end() in (-signal.SIGKILL, 128 + signal.SIGKILL)
                        return
                    else:
                        for part in line.split("…"):
                            terminal.await_text(part)
                terminal.type("\r".join(typed) + "\r")
                assert terminal.await_end() == 0
            except TimeoutError as error:
                block.fail(str(error))

    def compare(self, block: Block) -> None:
        assert self.output is not None
        if re.fullmatch(pattern_of(block), self.output) is None:
            block.fail(f"the output is another. The page says:\n{block.code}\nwhat comes out:\n{self.output}")


def pattern_of(block: Block) -> str:
    """Return the regular expression of an output block: `…` is anything; below `shape`, a number is any number."""
    lines = []
    for line in block.code.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
            continue
        pattern = re.escape(line).replace("…", ".*?")
        if "shape" in block.notes:
            pattern = re.sub(r"(?:\d|\\\.(?=\d)|,(?=\d))+", r"[\\d.,]+", pattern)
            pattern = re.sub(r"(?:\\ )+(?=\[\\d)", " +", pattern)
        lines.append(pattern + r"[ ]*\n")
    return "".join(lines)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    places = {"POUNDLOCK_CACHE_DIR", "POUNDLOCK_JARS_DIR", "POUNDLOCK_IVY_SETTINGS"}
    for name in [n for n in os.environ if n.startswith("POUNDLOCK_") and n not in places]:
        monkeypatch.delenv(name)
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "poundlock"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m poundlock "$@"\n')
    command.chmod(0o755)
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    source = str(Path(poundlock.__file__).parents[1])
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")])),
        "POUNDLOCK_STATE_DIR": str(tmp_path / "state"),
        "POUNDLOCK_DRIVER_MEMORY": "1g",
        "LC_ALL": "C.UTF-8",
    }
    return Reader(folder, environment)


def _pages() -> list[Any]:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.engine] if any(b.engine for b in blocks_of(page)) else [])
        for page in PAGES
    ]


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize("page", _pages())
def test_the_code_runs_and_its_output_is_as_said(
    page: Path, reader: Reader, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "upgrade.md":
        broker = request.getfixturevalue("kafka_broker")
        broker.create_topic("upgrade", 2)
        monkeypatch.setenv("UPGRADE_SERVERS", broker.bootstrap_servers)
        reader.environment["UPGRADE_SERVERS"] = broker.bootstrap_servers
    reader.read(blocks_of(page))


@every_page
def test_every_block_is_right_as_far_as_it_can_be_seen(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith("POUNDLOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    previous: Block | None = None
    for block in blocks_of(page):
        if block.language not in LANGUAGES:
            block.fail(f"a block of {block.language or 'no language'}; use one of {sorted(LANGUAGES)}")
        if block.language == "text" and block.reason is None and (previous is None or previous.language == "text"):
            block.fail("an output of nothing")
        if block.language == "text" and block.reason is None and previous is not None and not previous.runs:
            assert previous.reason, f"{page.name}:{block.line}: the output of a block that is never run"
        check_block(block)
        previous = block


@every_page
def test_a_reader_is_told_the_name_of_a_file_to_save(page: Path) -> None:
    """The comment that names it is for the tests; nobody who reads the page sees it."""
    for block in blocks_of(page):
        above = [line for number, line in prose(page) if number < block.line and not line.startswith("<!--")]
        if block.file is not None and f"`{block.file}`" not in "\n".join(above[-8:]):
            block.fail(f"the text above does not say that this is `{block.file}`")


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in PAGES for block in blocks_of(page) if block.reason is not None]
    assert len(left_out) <= MOST_NOT_RUN
    assert all(len(block.reason or "") > 20 for block in left_out)


# --- what pages say about the code -----------------------------------------------------------------------------------


def prose(page: Path) -> list[tuple[int, str]]:
    """Return the lines outside of blocks, with their numbers."""
    kept, inside = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            kept.append((number, line))
    return kept


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as the usual web sites make them."""
    titles = [line.lstrip("#").strip() for _, line in prose(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples/connector_package/README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for number, line in prose(page):
        for target in re.findall(r"\]\(([^)]+)\)", line):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name}:{number}: {target} leads nowhere"
            if anchor:
                assert anchor in anchors(there), f"{page.name}:{number}: {there.name} has no heading #{anchor}"


@every_page
def test_paths_and_names_of_the_repository_exist(page: Path) -> None:
    for number, line in prose(page):
        for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[^`<>* ]*|\.ci/run)`", line):
            assert (ROOT / path).exists(), f"{page.name}:{number}: there is no {path}"
        for module, name in re.findall(r"`(poundlock(?:\.[a-z_]+)+)\.([A-Z]\w+)`", line):
            assert hasattr(__import__(module, fromlist=[name]), name), f"{page.name}:{number}: no {module}.{name}"
        for name in re.findall(r"`(POUNDLOCK_[A-Z_]+)`", line):
            assert name in SOURCES or name.removeprefix("POUNDLOCK_").lower() in Settings.model_fields, (
                f"{page.name}:{number}: {name} means nothing"
            )


SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("src", "tests/crash", "tests/engine", "tests/support")
    for path in (ROOT / folder).rglob("*.py")
)


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for _, line in prose(page):
            targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)]+\.md[^)]*)\)", line)]
            todo += [(page.parent / t).resolve() for t in targets if "://" not in t]
    assert seen == set(PAGES)


def test_the_table_of_the_protocol_has_a_line_for_each_failpoint_in_order() -> None:
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    section = text.partition("\n## A checkpoint, step by step\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([a-z.]+)` \|", section, re.MULTILINE)
    assert told == [point.value for point in Failpoint]


def test_the_table_of_savepoints_has_a_line_for_each_failpoint_in_order() -> None:
    text = (ROOT / "docs/savepoints.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `((?:savepoint|restore)\.[a-z]+)` \|", text, re.MULTILINE) == [
        point.value for point in SavepointFailpoint
    ]


def test_every_public_name_command_and_setting_is_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = set(poundlock.__all__) - {"__version__"}
    assert sorted(n for n in names if not re.search(rf"\b{n}\b", text)) == []
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert [c for c in typer.main.get_command(app()).commands if f"`poundlock {c}" not in operations] == []  # type: ignore[attr-defined]
    settings = {n for n in Settings.model_fields if not n.startswith("restart_strategy_")} - {"spark"}
    assert sorted(n for n in settings if f"`{_spelled(n)}`" not in operations) == []


def test_every_ability_that_a_connector_can_declare_can_be_imported_and_is_on_its_page() -> None:
    modules = ("audit/read_back", "checkpoint/capabilities", "checkpoint/portable", "connectors/base")
    sources = [(ROOT / f"src/poundlock/{name}.py").read_text(encoding="utf-8") for name in modules]
    names = {name for source in sources for name in re.findall(r"@runtime_checkable\nclass (\w+)", source)}
    assert names - set(poundlock.connectors.__all__) == set()
    page = (ROOT / "docs/own-connector.md").read_text(encoding="utf-8")
    assert {name for name in names if f"{name}`" not in page} == set()


@pytest.mark.parametrize(("page", "source"), [("datagen-source", "DatagenSource"), ("file-source", "FileSource")])
def test_every_argument_of_a_source_is_in_the_tables_of_its_page(page: str, source: str) -> None:
    firsts = [line.split("|")[1] for _, line in prose(ROOT / f"docs/{page}.md") if line.startswith("| `")]
    assert (
        set(inspect.signature(getattr(poundlock, source)).parameters) - set(re.findall(r"`(\w+)`", str(firsts)))
        == set()
    )


def test_exit_codes_on_the_page_are_those_of_the_errors() -> None:
    from poundlock import errors

    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    table = [line for _, line in prose(ROOT / "docs/operations.md") if re.match(r"\| \d", line)]
    assert codes <= {int(code) for line in table for code in re.findall(r"^\| ([\d, ]+) \|", line)[0].split(",")}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_can_be_planned(example: Path, reader: Reader) -> None:
    told = Block(page=example, line=0, language="bash", code=f"poundlock explain {shlex.quote(str(example))}\n")
    assert "decision: one ledger record per checkpoint for all sinks" in reader.shell(told)


# --- that a fault on a page is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\nx = 1\nraise ValueError('oh')\n```\n", "page.md:3: ValueError: oh"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:6: the output is another"),
        ("<!-- run -->\n```bash\npoundlock explain no.py\n```\n", "page.md:3: exit code 2"),
    ],
)
def test_a_block_that_fails_is_found_with_its_line(tmp_path: Path, reader: Reader, text: str, told: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=re.escape(told)):
        reader.read(blocks_of(page))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("text\n```python\nx = (\n```\n", "page.md:3: '(' was never closed"),
        ("```bash\nmake lint\npoundlock run job.py --no-such\n```\n", "page.md:3: poundlock run job.py --no-such"),
        ("```bash\npoundlock kafka down\n```\n", "page.md:2: poundlock kafka down"),
        ("```bash\nmake coffee\n```\n", "page.md:2: make coffee: the Makefile has no target"),
        ("```bash\npython -m pip install '.[tea]'\n```\n", "there is no extra ['tea']"),
        ("```toml\nno_such_key = 1\n```\n", "there is no setting 'no_such_key'"),
        ('```json\n{"a":1}\n{"a"}\n```\n', "page.md:3: not JSON"),
    ],
)
def test_a_fault_that_can_be_seen_is_found_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    blocks = blocks_of(page)
    with pytest.raises(pytest.fail.Exception, match=re.escape(told)):
        list(map(check_block, blocks))
