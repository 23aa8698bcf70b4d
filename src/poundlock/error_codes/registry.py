"""Finds the code of an error, and what a code means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from poundlock.error_codes import (
    connectors,
    definition,
    general,
    kafka,
    kept,
    message_systems,
    mysql,
    running,
    sql,
    table_stores,
)
from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    *general.SUBJECTS, *definition.SUBJECTS, *connectors.SUBJECTS, *kafka.SUBJECTS, *mysql.SUBJECTS, *table_stores.SUBJECTS, *message_systems.SUBJECTS, *kept.SUBJECTS, *running.SUBJECTS, *sql.SUBJECTS,
)  # fmt: skip
_PACKAGE = "poundlock."


def code_text(subject: ErrorSubject, category: int) -> str:
    """Return a code as it is written."""
    return f"PL-{subject.number:03}{category}"


def code_of(*, kind: str, classes: Iterable[str], module: str, category: int) -> str:
    """Return the code of an error.

    Args:
        kind: the word that it was raised with, "" without one.
        classes: names of its class and of those above, the nearest first.
        module: which raised it, by its full name.
        category: of its class.
    """
    return code_text(subject_of(kind=kind, classes=classes, module=module), category)


def subject_of(*, kind: str, classes: Iterable[str], module: str) -> ErrorSubject:
    """Return what an error is of; see `code_of`."""
    if kind in _by_kind():
        return _by_kind()[kind]
    for name in classes:
        if name in _by_class():
            return _by_class()[name]
    if not module.startswith(_PACKAGE):
        return general.OWN_CODE
    place = module.removeprefix(_PACKAGE)
    while place:
        if place in _by_module():
            return _by_module()[place]
        place = place.rpartition(".")[0]
    return general.ELSEWHERE


def codes() -> Iterator[tuple[str, ErrorSubject, ErrorCode]]:
    """Yield each code with its subject, in order."""
    for subject in sorted(SUBJECTS, key=lambda each: each.number):
        for code in sorted(subject.codes, key=lambda each: each.category):
            yield code_text(subject, code.category), subject, code


def look_up(text: str) -> tuple[str, ErrorSubject, ErrorCode] | None:
    """Return what a code means, however it is typed: `PL-0123`, `pl0123`, `123`; None if there is no such code."""
    digits = re.fullmatch(r"(?:pl)?[-_ ]?(\d{1,4})", text.strip(), re.IGNORECASE)
    if digits is None:
        return None
    wanted = f"PL-{int(digits[1]):04}"
    return next((each for each in codes() if each[0] == wanted), None)


@cache
def _by_kind() -> dict[str, ErrorSubject]:
    return {kind: subject for subject in SUBJECTS for kind in subject.kinds}


@cache
def _by_class() -> dict[str, ErrorSubject]:
    return {name: subject for subject in SUBJECTS for name in subject.classes}


@cache
def _by_module() -> dict[str, ErrorSubject]:
    return {module: subject for subject in SUBJECTS for module in subject.modules}
