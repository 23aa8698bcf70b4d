"""What bash, zsh and fish complete, by the variables with which their scripts ask, and the scripts themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from poundlock.cli import completion
from poundlock.cli.main import commands, main
from poundlock.control.registry import Registry, registered
from support.error_lines import bare

pytestmark = pytest.mark.usefixtures("own_folder")

SHELLS = ("bash", "zsh", "fish")
Completes = Callable[..., list[str]]


@pytest.fixture
def completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Completes:
    """What a shell is offered for the last of some words; "" where it begins a new one."""

    def ask(*words: str, shell: str = "bash") -> list[str]:
        line = ["poundlock", *words]
        monkeypatch.setenv("_POUNDLOCK_COMPLETE", f"complete_{shell}")
        if shell == "bash":
            monkeypatch.setenv("COMP_WORDS", " ".join(line))
            monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
        else:
            monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(line))
            monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 0
        out, err = capsys.readouterr()
        assert err == ""
        return values(out, shell)

    return ask


def values(out: str, shell: str) -> list[str]:
    if shell == "zsh":
        return [] if out.strip() == "_files" else [each.split('"')[1] for each in out.partition("((")[2].splitlines()]
    return [line.partition("\t")[0] for line in out.splitlines() if line]


def register(name: str, job_id: str, state: str = "RUNNING") -> None:
    entry = registered(
        job_id=job_id, name=name, checkpoint_dir="c", log=Path("log"), job_file="job.py", arguments=["job.py"]
    )
    Registry(Path("state")).register(replace(entry, state=state))


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options_are_completed(shell: str, completes: Completes) -> None:
    assert completes("ru", shell=shell) == ["run"]
    assert set(completes("", shell=shell)) == set(commands())
    assert completes("run", "job.py", "--par", shell=shell) == ["--parallelism"]
    assert completes("kafka", "", shell=shell) == ["up", "send"]


@pytest.mark.parametrize("shell", SHELLS)
def test_jobs_are_completed_by_name_and_by_the_beginning_of_their_id(shell: str, completes: Completes) -> None:
    register("orders", "a1" * 16)
    register("order-totals", "b2" * 16)
    register("orders-old", "c3" * 16, "FINISHED")
    assert sorted(completes("stop", "ord", shell=shell)) == ["order-totals", "orders"]
    assert sorted(completes("info", "ord", shell=shell)) == ["order-totals", "orders", "orders-old"]
    assert completes("cancel", "a1", shell=shell) == ["a1" * 16]
    assert completes("audit", "orders-", shell=shell) == ["orders-old"]
    assert completes("stop", "nothing", shell=shell) == []  # a shell offers files then
    assert {"inspect", "orders"} <= set(completes("savepoint", "", shell=shell))


def test_the_state_directory_of_the_line_is_looked_into(completes: Completes) -> None:
    register("orders", "a1" * 16)
    assert completes("stop", "-D", "state_dir=elsewhere", "") == []
    assert completes("stop", "-D", "state_dir=state", "") == ["orders"]
    assert completes("stop", "-D", "no_such_setting=1", "") == []


def test_a_name_with_a_checkpoint_alone_is_completed(completes: Completes) -> None:
    Path("state/checkpoints/kept").mkdir(parents=True)
    assert completes("fsck", "") == ["kept"]
    assert completes("stop", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_savepoints_are_completed_the_newest_first(shell: str, completes: Completes) -> None:
    for number, name in enumerate(("savepoint-a", "savepoint-b")):
        for folder in (Path("state/savepoints"), Path("kept")):
            (folder / name).mkdir(parents=True)
            (folder / name / completion._SAVEPOINT).write_text("{}")
            os.utime(folder / name / completion._SAVEPOINT, (number, time.time() + number))
    Path("kept/no-savepoint").mkdir()
    made = [str(Path(f"state/savepoints/savepoint-{letter}").absolute()) for letter in "ba"]
    offered = completes("run", "job.py", "-s", "", shell=shell)
    assert [str(Path(each).absolute()) for each in offered] == made
    assert completes("run", "job.py", "-s", "kept/", shell=shell) == ["kept/savepoint-b", "kept/savepoint-a"]
    assert completes("savepoint", "inspect", "kept/savepoint-a", shell=shell) == ["kept/savepoint-a"]
    assert completes("savepoint", "-d", "kept/no", shell=shell) == []


def test_the_file_that_marks_a_savepoint_is_that_of_savepoints() -> None:
    from poundlock.savepoint.metadata import METADATA

    assert completion._SAVEPOINT == METADATA


@pytest.mark.parametrize("shell", SHELLS)
def test_codes_of_errors_are_completed(shell: str, completes: Completes) -> None:
    assert completes("help", "PL-0356", shell=shell) == ["PL-0356"]
    assert len(completes("help", "PL-035", shell=shell)) >= 1
    assert completes("help", "doc", shell=shell) == ["doctor"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion", shell])
    assert ended.value.code == 0
    assert f"_POUNDLOCK_COMPLETE=complete_{shell}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/poundlock.sh"),
        ("zsh", ".zfunc/_poundlock"),
        ("fish", ".config/fish/completions/poundlock.fish"),
    ],
)
def test_completion_is_installed_for_a_shell(
    shell: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:
        main(["--install-completion", shell])
    assert ended.value.code == 0
    assert f"_POUNDLOCK_COMPLETE=complete_{shell}" in Path(file).read_text()
    assert file in capsys.readouterr().out


@pytest.mark.parametrize(("shell", "what"), [(None, "cannot be seen which shell"), ("tcsh", "for the shell tcsh")])
def test_a_shell_that_is_not_known_is_refused(
    shell: str | None, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shellingham

    def detect() -> tuple[str, str]:
        if shell is None:
            raise shellingham.ShellDetectionFailure
        return shell, f"/bin/{shell}"

    monkeypatch.setattr(shellingham, "detect_shell", detect)
    assert main(["--show-completion"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert what in bare(first)
    assert "env _POUNDLOCK_COMPLETE=source_bash poundlock" in second


def test_a_key_press_loads_neither_spark_nor_arrow_nor_another_command() -> None:
    register("orders", "a1" * 16)
    program = (
        "import sys\nfrom poundlock.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'pandas', 'poundlock.cli.jobs.run') if name in sys.modules])"
    )
    asked = {"_POUNDLOCK_COMPLETE": "complete_bash", "COMP_WORDS": "poundlock info or", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["orders", "[]"], done.stderr


def test_bash_completes_by_the_script_that_is_printed(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    register("orders", "a1" * 16)
    program = tmp_path / "bin" / "poundlock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m poundlock "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(env _POUNDLOCK_COMPLETE=source_bash poundlock)"\n'
        "COMP_WORDS=(poundlock stop or); COMP_CWORD=2; _poundlock_completion poundlock\n"
        'echo "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "--norc", "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["orders"], done.stderr
