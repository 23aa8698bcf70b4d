"""What `poundlock sql` is given: a file, standard input, statements, or a terminal."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.cli.shell import prompt
from poundlock.cli.shell.shell import Shell
from poundlock.sql.settings import IGNORE_UNCLAIMED, RECOVERY_PATH
from poundlock.sql.shell.shared_spark import SharedSpark
from support.error_lines import bare

pytestmark = pytest.mark.usefixtures("own_folder")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def checked(*arguments: str) -> int:
    return main(["sql", "--check", *arguments])


def test_a_script_comes_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ((), ("-",), ("-f", "-")):
        monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1"))
        assert checked(*arguments) == 0
        assert capsys.readouterr().out == "the script is in order\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT nothing"))
    assert checked() == 2
    assert "there is no column nothing" in capsys.readouterr().err


def test_standard_input_without_statements_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    assert main(["sql"]) == 2
    assert "no statements" in capsys.readouterr().err


def test_statements_that_run_first_are_known_to_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("init.sql").write_text("CREATE VIEW first_one AS SELECT 1 AS n")
    Path("script.sql").write_text("SELECT n FROM first_one")
    assert checked("-i", "init.sql", "-f", "script.sql") == 0
    assert checked("script.sql") == 2
    assert "first_one" in capsys.readouterr().err


def test_a_mark_of_the_order_of_bytes_and_a_comment_at_the_end_are_no_statements(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("script.sql").write_bytes("\ufeffCREATE VIEW v AS\r\nSELECT 1 AS n -- the end".encode())
    assert checked("script.sql", "-e", "SELECT n FROM v -- here too", "-e", "SELECT nope FROM v") == 2
    assert "no column nope" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT '\xff'"), encoding="utf-8"))
    assert checked() == 2
    assert "standard input cannot be read" in capsys.readouterr().err


def test_rows_that_are_known_at_once_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.sql").write_text(
        "CREATE TABLE t (a INT COMMENT 'x', `b,\"c` STRING) WITH ('connector' = 'print'); DESCRIBE t; SHOW MODULES"
    )
    assert main(["sql", "--output", "csv", "script.sql"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name,type,null,key,extras,watermark",
        "a,INT,TRUE,,,",
        '"b,""c",STRING,TRUE,,,',
        "module name",
        "core",
    ]


def test_two_scripts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked("a.sql", "-f", "b.sql") == 2
    assert "two scripts" in capsys.readouterr().err


def test_what_is_for_a_savepoint_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.sql").write_text("SELECT 1")
    assert checked("script.sql", "-n") == 2
    assert "-n is for a savepoint" in capsys.readouterr().err


def test_an_insert_that_is_not_waited_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked("-e", "SET 'table.dml-sync' = 'true'") == 0
    assert checked("-e", "SET 'table.dml-sync' = 'false'") == 2
    *_, what, next = capsys.readouterr().err.splitlines()
    assert "its job is one of the process that runs it, and ends with it" in what
    assert "nohup poundlock sql script.sql" in next


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--check"], "--check without a script"),
        (["--json"], "--json is for scripts"),
        (["--output", "csv"], "--output=csv is for scripts"),
        ([], "the shell needs a terminal"),
    ],
)
def test_what_the_shell_does_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    assert main(["sql", *arguments]) == 2
    assert what in capsys.readouterr().err


@pytest.mark.parametrize(("ended_by", "code"), [(None, 0), (signal.SIGTERM, 143)])
def test_the_shell_begins_with_a_savepoint_and_ends_as_its_signal_says(
    monkeypatch: pytest.MonkeyPatch, ended_by: int | None, code: int
) -> None:
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, _Terminal())
    settings: list[dict[str, object]] = []

    def loop(shell: Shell, prompt: object) -> None:
        settings.append(shell.runner.session.settings)
        shell.ended_by = ended_by

    monkeypatch.setattr(Shell, "loop", loop)
    monkeypatch.setattr(prompt, "Prompt", lambda session, history: None)
    monkeypatch.setattr(SharedSpark, "begin", lambda spark: None)
    assert main(["sql", "-s", "saved/one", "-n"]) == code
    assert settings == [{RECOVERY_PATH: "saved/one", IGNORE_UNCLAIMED: True}]


def test_without_its_package_the_shell_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(sys, "stdout", _Terminal())
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert main(["sql"]) == 2
    what, next = map(bare, capsys.readouterr().err.splitlines())
    assert what == "error: the shell needs the package prompt-toolkit"
    assert next.startswith("Next: type: ")
    assert "poundlock[shell]" in next
