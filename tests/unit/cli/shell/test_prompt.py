"""What is typed, key by key: where Enter ends it, what comes back from the history, what is completed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from poundlock.cli.shell.prompt import Prompt, SqlCompleter, SqlLexer, command_of, has_colours, history_in
from poundlock.sql.statements.session import SqlSession

UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as made, create_app_session(input=made, output=DummyOutput()):
        yield made


def prompt(keys: PipeInput, folder: Path) -> Prompt:
    session = SqlSession()
    list(session.results("CREATE TABLE orders (id INT) WITH ('connector' = 'blackhole')"))
    return Prompt(session, folder / "state" / "history", keys, DummyOutput())


def test_a_statement_has_lines_until_it_ends(keys: PipeInput, tmp_path: Path) -> None:
    keys.send_text("SELECT 1,\r  ';'\r;\r")
    assert prompt(keys, tmp_path).read() == "SELECT 1,\n  ';'\n;"


@pytest.mark.parametrize("word", ["help", "quit", "EXIT", "clear;"])
def test_a_command_needs_no_end(keys: PipeInput, tmp_path: Path, word: str) -> None:
    keys.send_text(f"{word}\r")
    assert command_of(prompt(keys, tmp_path).read()) == word.strip(";").lower()


def test_a_column_of_that_name_is_no_command() -> None:
    assert command_of("help me;") is None
    assert command_of("SELECT quit;") is None


def test_ctrl_c_drops_what_is_typed_and_ctrl_d_ends(keys: PipeInput, tmp_path: Path) -> None:
    asked = prompt(keys, tmp_path)
    keys.send_text(f"SELECT{CTRL_C}")
    with pytest.raises(KeyboardInterrupt):
        asked.read()
    keys.send_text(CTRL_D)
    with pytest.raises(EOFError):
        asked.read()


def test_what_was_typed_comes_back_in_another_shell(keys: PipeInput, tmp_path: Path) -> None:
    keys.send_text("SELECT\r1;\r")
    assert prompt(keys, tmp_path).read() == "SELECT\n1;"
    file = tmp_path / "state" / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys.send_text(f"{UP}{UP}\r")
    assert prompt(keys, tmp_path).read() == "SELECT\n1;"


def test_a_password_is_not_written_into_the_history(keys: PipeInput, tmp_path: Path) -> None:
    asked = prompt(keys, tmp_path)
    secret = "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'sesame');"
    keys.send_text(f"{secret}\r")
    assert asked.read() == secret
    keys.send_text("SELECT 1;\r")
    assert asked.read() == "SELECT 1;"
    written = (tmp_path / "state" / "history").read_text()
    assert "sesame" not in written
    assert "SELECT 1;" in written


def test_a_history_that_cannot_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = history_in(tmp_path / "file" / "history")
    history.append_string("SELECT 1;")
    assert history.get_strings() == ["SELECT 1;"]


def test_what_is_typed_is_completed_from_the_session() -> None:
    session = SqlSession()
    list(session.results("CREATE TABLE orders (id INT) WITH ('connector' = 'blackhole')"))
    document = Document("SELECT i FROM orders;", cursor_position=8)
    made, *_ = SqlCompleter(session).get_completions(document, CompleteEvent(text_inserted=True))
    assert (made.text, made.start_position, made.display_meta_text) == ("id", -1, "INT")


def test_each_line_of_what_is_typed_is_coloured() -> None:
    line = SqlLexer().lex_document(Document("SELECT 'a\nb', 1"))
    assert line(0) == [("class:sql.keyword", "SELECT"), ("class:sql.plain", " "), ("class:sql.text", "'a")]
    assert line(1) == [
        ("class:sql.text", "b'"),
        ("class:sql.sign", ","),
        ("class:sql.plain", " "),
        ("class:sql.number", "1"),
    ]
    assert line(2) == []


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colours_are_left_out_where_they_are_not_wanted(environment: dict[str, str], colours: bool) -> None:
    assert has_colours(environment) is colours


class Drawn(DummyOutput):
    """Notes what is written, and in how many styles."""

    def __init__(self) -> None:
        self.styles: set[str] = set()

    def set_attributes(self, attrs: Any, color_depth: Any) -> None:
        self.styles.add(attrs.color or "")


@pytest.mark.parametrize("in_colours", [True, False])
def test_what_is_typed_is_drawn_in_colours(keys: PipeInput, tmp_path: Path, in_colours: bool) -> None:
    drawn = Drawn()
    keys.send_text("SELECT 'a', 1;\r")
    asked = Prompt(SqlSession(), tmp_path / "history", keys, drawn, in_colours=in_colours)
    assert asked.read() == "SELECT 'a', 1;"
    assert ({"ansiblue", "ansigreen", "ansimagenta"} <= drawn.styles) is in_colours
