"""What a task raises, made fit to cross to the JVM: its text must be UTF-8, or the worker and the JVM wait for each other for ever."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def utf8_errors() -> Iterator[None]:
    """Let nothing out that could not cross to the JVM."""
    try:
        yield
    except Exception as error:
        fit = _utf8_error(error)
        if fit is error:
            raise
        raise fit from None


def _utf8_error(error: Exception) -> Exception:
    """Return an error whose text is UTF-8: this one, its characters that UTF-8 lacks written as escapes, or one with its text.

    Names of files and values of JSON may hold lone surrogates.
    """
    if _is_utf8(_printed(error)):
        return error
    link: BaseException | None = error
    while link is not None:
        link.args = tuple(_escaped(part) if isinstance(part, str) else part for part in link.args)
        link = link.__cause__ or link.__context__
    if _is_utf8(_printed(error)):
        return error
    # It makes its text of something else than its arguments, or holds further errors.
    text = _escaped("".join(traceback.format_exception_only(error)).strip())
    return RuntimeError(text).with_traceback(error.__traceback__)


def _printed(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _is_utf8(text: str) -> bool:
    return _escaped(text) == text


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
