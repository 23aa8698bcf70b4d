"""The line that statements are typed into: several lines each, with colours, history and completion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import Output as Screen
from prompt_toolkit.styles import Style

from poundlock.redaction import is_secret
from poundlock.sql.shell.completion import candidates
from poundlock.sql.shell.highlighting import PartKind, highlighted
from poundlock.sql.shell.statement_input import is_ended
from poundlock.sql.shell.words import COMMANDS
from poundlock.sql.statements.session import SqlSession

_PROMPT = "sql> "
_MORE = "  -> "
_STYLES: Mapping[PartKind, str] = {
    "keyword": "ansiblue bold",
    "function": "ansicyan",
    "text": "ansigreen",
    "number": "ansimagenta",
    "name": "ansiyellow",
    "comment": "ansibrightblack italic",
}
"""Of the sixteen colours that each terminal has in its own shades."""
_ASSIGNED = re.compile(r"'([^']*)'\s*=")


def command_of(text: str) -> str | None:
    """Return which of the shell's own commands a text is, None where it is a statement."""
    word = text.strip().rstrip(";").strip().lower()
    return word if word in COMMANDS else None


def is_whole(text: str) -> bool:
    """Return whether Enter ends the input: a command, statements that have all ended, or nothing at all."""
    return not text.strip() or command_of(text) is not None or is_ended(text)


def has_colours(environment: Mapping[str, str]) -> bool:
    """Return whether a terminal may be written to in colours: not where NO_COLOR is set, to whatever, or it is a dumb one."""
    return not environment.get("NO_COLOR") and environment.get("TERM", "").lower() not in ("", "dumb", "unknown")


class SqlLexer(Lexer):
    """Colours what is typed."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Return what gives the parts of a line with their styles."""
        lines: list[StyleAndTextTuples] = [[]]
        for part in highlighted(document.text):
            for place, piece in enumerate(document.text[part.start : part.stop].split("\n")):
                if place:
                    lines.append([])
                if piece:
                    lines[-1].append((f"class:sql.{part.kind}", piece))
        return lambda number: lines[number] if number < len(lines) else []


class SqlCompleter(Completer):
    """Completes what is typed, from a session."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may stand at the cursor."""
        before, behind = document.text_before_cursor, document.text_after_cursor
        asked = complete_event.completion_requested
        for each in candidates(self._session, before, behind, asked=asked):
            yield Completion(each.text, -each.typed, display_meta=each.note or each.kind)


class StatementHistory(FileHistory):
    """What was typed, in a file that its user alone reads. A statement that holds a password is not written into it."""

    def store_string(self, string: str) -> None:
        """Write an input."""
        if not any(is_secret(name) for name in _ASSIGNED.findall(string)):
            super().store_string(string)


def history_in(file: Path) -> History:
    """Return the history in a file, which is made where there is none; one in memory where it cannot be."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        return InMemoryHistory()
    return StatementHistory(str(file))


class Prompt:
    """Asks for statements.

    Args:
        history: the file of what was typed before.
        input: where keys come from; default: the terminal.
        screen: where it is drawn; default: the terminal.
        in_colours: whether what is typed is coloured; default: as the terminal allows.
    """

    def __init__(
        self,
        session: SqlSession,
        history: Path,
        input: Input | None = None,
        screen: Screen | None = None,
        *,
        in_colours: bool | None = None,
    ) -> None:
        if in_colours is None:
            in_colours = has_colours(os.environ)
        self._asking: PromptSession[str] = PromptSession(
            message=_PROMPT,
            multiline=True,
            prompt_continuation=_continued,
            history=history_in(history),
            completer=SqlCompleter(session),
            complete_while_typing=True,
            auto_suggest=AutoSuggestFromHistory(),
            lexer=SqlLexer() if in_colours else None,
            style=Style([(f"sql.{kind}", style) for kind, style in _STYLES.items()]),
            key_bindings=_keys(),
            input=input,
            output=screen,
        )

    def read(self) -> str:
        """Return what was typed.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C: it is dropped.
        """
        return self._asking.prompt()


def _continued(width: int, line: int, is_soft_wrap: int) -> str:
    return "" if is_soft_wrap else _MORE.rjust(width)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer: Any = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # what was chosen of the menu stays
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
