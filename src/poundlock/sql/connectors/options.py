"""The options of a table, each read once; what nobody reads is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.errors import OptionError
from poundlock.values import duration, size

_T = TypeVar("_T")


@dataclass
class TableOptions:
    """The options of one table.

    Args:
        table: its name, for errors.
        given: as they are written.
        prefix: what stands before each name that is asked for.
    """

    table: str
    given: Mapping[str, str]
    _read: set[str] = field(default_factory=set)
    prefix: str = ""

    def under(self, prefix: str) -> TableOptions:
        """Return the options whose names begin with a prefix, to be asked for without it."""
        return TableOptions(self.table, self.given, self._read, self.prefix + prefix)

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option as it is written; the default where it is not."""
        self._read.add(self.prefix + name)
        return self.given.get(self.prefix + name, default)

    def required(self, name: str) -> str:
        """Return an option.

        Raises:
            OptionError: it is not there.
        """
        value = self.text(name)
        if value is None:
            raise OptionError(
                f"{self.table} has no option {self.prefix + name!r}",
                next=f"WITH ('{self.prefix}{name}' = '…') of the table",
                kind="missing_option",
            )
        return value

    def read(self, name: str, read: Callable[[str], _T], default: _T, such: str) -> _T:
        """Return an option as a value.

        Args:
            read: makes it of the text; raises ValueError or DefinitionError.
            such: an example, for the error.

        Raises:
            OptionError: it cannot be read.
        """
        text = self.text(name)
        if text is None:
            return default
        try:
            return read(text)
        except (ValueError, DefinitionError):
            raise OptionError(
                f"{self.table}: {self.prefix + name!r} = {text!r} cannot be",
                next=f"write such as '{self.prefix}{name}' = '{such}'",
                kind="bad_option_value",
            ) from None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is true or false; raises as `read`."""
        return self.read(name, _flag, default, "true")

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return an option that is a whole number; raises as `read`."""
        return self.read(name, int, default, "100")

    def span(self, name: str) -> str | None:
        """Return an option that is a span of time; raises as `read`."""
        return self.read(name, _span, None, "10 s")

    def bytes(self, name: str) -> int | None:
        """Return an option that is a number of bytes; raises as `read`."""
        return self.read(name, size, None, "128 MB")

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        """Return an option that is one of some words; raises as `read`."""

        def known(text: str) -> str:
            if text.lower() not in words:
                raise ValueError(text)
            return text.lower()

        return self.read(name, known, default, words[0])

    def below(self, prefix: str) -> dict[str, str]:
        """Return all options that begin with a prefix, by what stands behind it."""
        below = {name.removeprefix(prefix): value for name, value in self.given.items() if name.startswith(prefix)}
        self._read |= {prefix + name for name in below}
        return below

    def finish(self, connector: str) -> None:
        """Refuse what nobody has read.

        Raises:
            OptionError: there is such an option.
        """
        unknown = sorted(set(self.given) - self._read)
        if unknown:
            raise OptionError(
                f"{self.table}: {connector} has no option {unknown[0]!r}",
                next=did_you_mean(unknown[0], self._read, f"it takes {', '.join(sorted(self._read))}"),
                kind="unknown_option",
            )


def _span(text: str) -> str | None:
    duration(text)
    return text


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def unknown_word(what: str, word: str, known: Mapping[str, Any], kind: str) -> OptionError:
    """Return the error of a connector or format that there is not."""
    return OptionError(
        f"there is no {what} {word!r}",
        next=did_you_mean(word, known, f"use one of {', '.join(sorted(known))}"),
        kind=kind,
    )
