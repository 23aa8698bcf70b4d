"""Writes docs/errors.md from the registry of error codes: python tools/error_pages.py. A test holds the page against it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from poundlock.error_codes.registry import codes
from poundlock.error_codes.subject import CATEGORIES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "errors.md"
_OPENING = r"""
# Error codes

Every error of poundlock has a code, which stands behind its first line and never changes:

> error: there is no job 'nobody' [PL-1202]\
> Next: see the jobs there are: poundlock list -a

`poundlock help PL-1202` explains it, without a network; this page has the same for all of them. In Python it is `error.code`, and a note in the
traceback. `poundlock info`, the log and the answers over REST have it, too.

The first three digits are what the error is of, the last one is what a restart does about it:

| Last digit | Meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _OPENING.strip("\n")
    for digit, (name, meaning) in CATEGORIES.items():
        yield f"| {digit} | {name}: {_sentence(meaning)} |"
    for _, group in groupby(codes(), key=lambda each: each[1].number):
        of_subject = list(group)
        yield from ("", f"## {of_subject[0][1].title}")
        for text, _, code in of_subject:
            yield from ("", f"### {text}", "", code.meaning)
            yield from ("", f"{CATEGORIES[code.category][0].capitalize()}. Usual causes:", "")
            yield from (f"- {cause}" for cause in code.causes)
            yield from ("", "What to do:", "")
            yield from (f"- {each}" for each in code.do)


def _sentence(text: str) -> str:
    return text[0].lower() + text[1:].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
