"""Files of tokens: who is let in, what is refused, and that a change counts without a start."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest

from poundlock.errors import DefinitionError
from poundlock.rest.access.tokens import Caller, TokenStore, check_private, read_tokens

OWN = "the-token-of-the-process"
ALICE, BOB, CAROL = "alice-token-0123456789", "bob-token-0123456789", "carol-token-0123456789"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)
    return path


def test_names_and_roles(tmp_path: Path) -> None:
    digest = hashlib.sha256(CAROL.encode()).hexdigest()
    text = f"# who may do what\n\nalice operate {ALICE}\nbob@ops read\t{BOB}\ncarol read sha256:{digest}\n"
    tokens = TokenStore(OWN, written(tmp_path / "tokens", text))
    assert tokens.caller(OWN) == Caller(name="owner", role="operate")
    assert tokens.caller(ALICE) == Caller(name="alice", role="operate")
    assert tokens.caller(BOB) == Caller(name="bob@ops", role="read")
    assert tokens.caller(CAROL) == Caller(name="carol", role="read")
    for nobodys in ("", "alice", f"{ALICE} ", ALICE[:-1], digest, f"sha256:{digest}", "é" * 20):
        assert tokens.caller(nobodys) is None


def test_one_token_alone_may_do_everything(tmp_path: Path) -> None:
    tokens = TokenStore(OWN, written(tmp_path / "tokens", f"{ALICE}\n"))
    assert tokens.caller(ALICE) == Caller(name="token", role="operate")
    assert TokenStore(OWN).caller(ALICE) is None


def test_a_change_of_the_file_counts_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new token beside the old one, then the new one alone, then a mistake, then it is mended, then it is gone."""
    path = written(tmp_path / "tokens", f"alice operate {ALICE}\n")
    tokens = TokenStore(OWN, path)
    assert tokens.caller(ALICE) is not None
    written(path, f"alice operate {ALICE}\nalice operate {BOB}\n")
    assert tokens.caller(ALICE) == tokens.caller(BOB) == Caller(name="alice", role="operate")
    written(path, f"alice operate {BOB}\n")
    assert (tokens.caller(ALICE), tokens.caller(BOB)) == (None, Caller(name="alice", role="operate"))
    with caplog.at_level(logging.WARNING):
        written(path, f"alice operates {BOB}\n")
        assert tokens.caller(BOB) is None
        assert tokens.caller(OWN) is not None, "the user of the job is not locked out"
        written(path, f"alice operate {BOB}\n", 0o644)
        assert tokens.caller(BOB) is None
        path.chmod(0o600)
        assert tokens.caller(BOB) is not None, "the mode alone was changed"
        path.unlink()
        assert tokens.caller(BOB) is None
        tokens.caller(BOB)
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [f"nobody is let in by {path}"] * 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no token of at least 16 letters"),
        ("short", "has no token of at least 16 letters"),
        (f"alice {ALICE}", "line 1, is not NAME ROLE TOKEN"),
        (f"alice operate {ALICE} and more", "line 1, is not NAME ROLE TOKEN"),
        (f"{ALICE}\n{BOB}", "line 1, is not NAME ROLE TOKEN"),
        (f"alice admin {ALICE}", "has the role 'admin'"),
        (f"owner read {ALICE}", "the name of the process's own token"),
        (f"a/b read {ALICE}", "is no name of a token"),
        (f"alice read {ALICE}\nalice operate {BOB}", "line 2, gives alice another role"),
        (f"alice read {ALICE}\nbob read {ALICE}", "line 2, has the token of a line before"),
        ("alice read short", "line 1 has no token of at least 16 letters"),
        ("alice read sha256:0123456789abcdef", "line 1 has no token of at least 16 letters"),
        ("é" * 20, "it is not ASCII"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as refused:
        read_tokens(written(tmp_path / "tokens", text))
    assert refused.value.next
    assert ALICE not in str(refused.value)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o666, 0o644, 0o610])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(DefinitionError, match="other users can read") as refused:
        read_tokens(written(tmp_path / "tokens", f"{ALICE}\n", mode if os.geteuid() else mode | 0o004))
    assert refused.value.next == f"keep it to yourself: chmod 600 {tmp_path / 'tokens'}"


def test_a_file_of_another_user_may_be_read_by_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes mounts a Secret."""
    path = written(tmp_path / "tokens", f"{ALICE}\n", 0o440)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    check_private(path, "rest.token-file")
    path.chmod(0o444)
    with pytest.raises(DefinitionError, match="its mode is 0444"):
        check_private(path, "rest.token-file")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="No such file"):
        read_tokens(tmp_path / "none")
