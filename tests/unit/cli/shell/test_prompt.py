"""What is typed, key by key: where Enter ends it, what comes back from the history, what is completed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from poundlock.cli.shell.prompt import Prompt, SqlCompleter, command_of, history_in
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
