"""Bearer tokens and what they allow: that of the process itself, and those of a file that is read again whenever it has changed.

A file that other users can read, or that is not understood, lets nobody in: at the start it is refused, and later all of its tokens
are worth nothing until it is mended.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from poundlock.errors import DefinitionError

Role = Literal["read", "operate"]
OWNER = "owner"
"""The name of the token that a process makes for its own user's commands."""

_ROLES: tuple[Role, ...] = get_args(Role)
_ALONE = "token"
_SHORTEST = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAKE = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
_FORM = "write one token alone, or lines of NAME ROLE TOKEN, where ROLE is read or operate"
_log = logging.getLogger("poundlock.rest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose token a request brought: its name is what the log of operations says of who asked."""

    name: str
    role: Role

    @property
    def operates(self) -> bool:
        """Whether it may ask for what changes a job."""
        return self.role == "operate"


@dataclass(slots=True)
class TokenStore:
    """All tokens of one server.

    Args:
        own: of the process, which may do everything.
        file: the file of further ones; None = there are none.
    """

    own: str = field(repr=False)
    file: Path | None = None
    _known: Mapping[bytes, Caller] = field(default_factory=dict, repr=False)
    _seen: tuple[int, ...] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def caller(self, token: str) -> Caller | None:
        """Return whose token this is, None if it is nobody's. The file is read again if it is another than it was."""
        # Of digests nothing can be learnt by measuring how long it takes to find one.
        digest = _digest(token)
        if digest == _digest(self.own):
            return Caller(name=OWNER, role="operate")
        return self._current().get(digest)

    def _current(self) -> Mapping[bytes, Caller]:
        if self.file is None:
            return {}
        with self._lock:
            now = _version(self.file)
            if self._seen != now or now is None:
                before, self._seen = self._seen, now
                try:
                    self._known = read_tokens(self.file)
                except DefinitionError as error:
                    if before != now or self._known:
                        _log.warning("nobody is let in by %s: %s. Next: %s", self.file, error.what, error.next)
                    self._known = {}
            return self._known


def read_tokens(path: Path) -> Mapping[bytes, Caller]:
    """Return who is let in by a file, by the SHA-256 of the token.

    The file has one token alone, which may do everything, or lines of `NAME ROLE TOKEN`; empty lines and those that begin with #
    mean nothing. In place of a token may stand `sha256:` and its 64 hex digits. Two lines may have one name, so that a token
    can be replaced while the old one still counts.

    Raises:
        DefinitionError: it cannot be read, other users can read it, or a line is not understood.
    """
    try:
        check_private(path, "rest.token-file")
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = "it is not ASCII" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        raise DefinitionError(
            f"the REST token of rest.token-file cannot be read: {path}: {what}",
            next="name a file with a token in it, or leave rest.token-file out and one is made",
        ) from error
    given = [(n, parts) for n, line in enumerate(lines, 1) if (parts := line.split()) and not line.startswith("#")]
    if len(given) <= 1 and all(len(parts) == 1 for _, parts in given):
        return {_checked(given[0][1][0] if given else "", str(path), path): Caller(name=_ALONE, role="operate")}
    return dict(_lines(path, given))


def check_private(path: Path, setting: str) -> None:
    """Refuse a file with a secret that other users of the machine can read.

    Its owner alone may read it, as PostgreSQL demands of a private key; a file that is another user's, such as one that
    Kubernetes mounts, may be readable by its group as well.

    Raises:
        DefinitionError: more may read or write it.
        OSError: there is no such file.
    """
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    own = status.st_uid == os.geteuid() and status.st_uid != 0
    if mode & (0o077 if own else 0o037):
        raise DefinitionError(
            f"other users can read {path}, which {setting} names: its mode is {mode:04o}",
            next=f"keep it to yourself: chmod 600 {path}",
        )


def _lines(path: Path, given: list[tuple[int, list[str]]]) -> Iterator[tuple[bytes, Caller]]:
    roles: dict[str, str] = {}
    seen: set[bytes] = set()
    for number, parts in given:
        where = f"{path}, line {number},"
        if len(parts) != 3:
            raise DefinitionError(f"{where} is not NAME ROLE TOKEN", next=_FORM)
        name, role, token = parts
        if not _NAME.fullmatch(name) or name == OWNER:
            what = "is the name of the process's own token" if name == OWNER else "is no name of a token"
            raise DefinitionError(
                f"{where} begins with {name[:64]!r}, which {what}", next="use letters, digits and . _ @ -"
            )
        known = next((each for each in _ROLES if each == role), None)
        if known is None or roles.setdefault(name, role) != role:
            what = f"has the role {role[:64]!r}" if known is None else f"gives {name} another role than a line before"
            raise DefinitionError(f"{where} {what}", next=_FORM)
        digest = _checked(token, where.rstrip(","), path)
        if digest in seen:
            raise DefinitionError(f"{where} has the token of a line before", next=f"make another one: {_MAKE}")
        seen.add(digest)
        yield digest, Caller(name=name, role=known)


def _checked(token: str, where: str, path: Path) -> bytes:
    """Return the digest of a token. Raises DefinitionError if it is too short, or no token."""
    if (match := _DIGEST.fullmatch(token)) is not None:
        return bytes.fromhex(match[1])
    if len(token) < _SHORTEST or token.startswith("sha256:") or not all("!" <= letter <= "~" for letter in token):
        raise DefinitionError(
            f"{where} has no token of at least {_SHORTEST} letters without blanks",
            next=f"make one: {_MAKE} > {path}",
        )
    return _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _version(path: Path) -> tuple[int, ...] | None:
    """Return what is different after a change, or after another file took its place; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode
