"""Finding the job in a user's file, and telling the line where the file is at fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from poundlock.cli.job_loader import load_job
from poundlock.errors import DefinitionError


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")


def _file(folder: Path, text: str, name: str = "job.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_only_job_is_found(tmp_path: Path) -> None:
    path = _file(tmp_path, "from poundlock import Job\nanything = again = Job('a')\n")
    assert load_job(path).name == "a"
    assert load_job(f"{path}:anything").name == "a"
    assert load_job(f"{path}:a").name == "a"


def test_one_of_several_is_named_by_variable_or_by_its_own_name(tmp_path: Path) -> None:
    path = _file(tmp_path, "from poundlock import Job\nx = Job('first')\ny = Job('second')\n")
    assert load_job(f"{path}:x").name == "first"
    assert load_job(f"{path}:second").name == "second"
    with pytest.raises(DefinitionError, match="defines 2 jobs: x, y") as caught:
        load_job(path)
    assert caught.value.next == f"name one: {path}:x"
    with pytest.raises(DefinitionError, match="no job 'z'") as caught:
        load_job(f"{path}:z")
    assert caught.value.next == "use one of: x, y"


def test_modules_beside_the_file_are_found(tmp_path: Path) -> None:
    _file(tmp_path, "NAME = 'beside'\n", "settings_beside_job.py")
    path = _file(tmp_path, "from poundlock import Job\nfrom settings_beside_job import NAME\njob = Job(NAME)\n")
    assert load_job(path).name == "beside"


def test_functions_of_the_file_travel_whole(tmp_path: Path) -> None:
    """Workers cannot import the user's file; Spark's pickler sends what it cannot import by value."""
    from pyspark import cloudpickle

    path = _file(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom poundlock import Job\n"
        "@dataclass\nclass Pair:\n    left: int\ndef double(n):\n    return Pair(n * 2)\njob = Job('a')\njob.double = double\n",
    )
    pickled = cloudpickle.dumps(load_job(path).double)  # type: ignore[attr-defined]
    (tmp_path / "job.py").unlink()
    assert "job" not in sys.modules
    assert cloudpickle.loads(pickled)(4).left == 8


STREAM = "from poundlock import *\ns = Job('a').from_source(DatagenSource('n int', count=1))\n"
TIMED = STREAM + "t = s.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks(timestamp='n'))\n"


@pytest.mark.parametrize(
    ("text", "what", "next"),
    [
        ("x = 1\n", "defines no job", "job = Job("),
        ("x = 1\ny = (\n", ":2: ", "mend line 2"),
        ("x = 1\ny = 1 / 0\n", ":2: ZeroDivisionError: division by zero", "mend that line"),
        ("def f():\n    return 1 / 0\n\nf()\n", ":2: ZeroDivisionError", "mend that line"),
        ("import json\n\njson.loads('x')\n", ":3: JSONDecodeError", "mend that line"),
        ("import no_such_module_at_all\n", ":1: No module named", "-m pip install no_such_module_at_all"),
        ("import poundlock.testin\n", ":1: No module named", "did you mean poundlock.testing?"),
        ("from poundlock import Job\nJob('a b')\n", ":2: 'a b' is not a job name", "use letters"),
        ("from poundlock import KafkaSorce\n", ":1: ImportError: cannot import", "did you mean KafkaSource?"),
        ("from poundlock import *\nFileSorce('in')\n", ":2: NameError", "did you mean FileSource?"),
        ("evnts.map(1)\n", ":1: NameError", "mend that line"),
        ("from poundlock.testing import zzqqxx\n", ":1: ImportError: cannot import", "mend that line"),
        (
            "import poundlock\npoundlock.Job('a', chekpoint_interval='1 s')\n",
            ":2: TypeError",
            "did you mean checkpoint_interval?",
        ),
        ("import poundlock\npoundlock.Job('a').from_source(1, nmae='b')\n", ":2: TypeError", "did you mean name?"),
        ("def f(): ...\nf(nmae='b')\n", ":2: TypeError", "mend that line"),
        ("def f(schema): ...\nf()\n", ":2: TypeError", "mend that line"),
        ("class A: ...\nA().map()\n", ":2: AttributeError", "mend that line"),
        (STREAM + "s.map(len)\n", ":3: TypeError: DataStream.map() missing", 'schema="user string, n bigint"'),
        (STREAM + "s.key_by('n').map(len)\n", ":3: AttributeError: 'KeyedStream'", "call .map(…) before key_by"),
        (
            STREAM + "s.key_by('n').sink_to(1)\n",
            ":3: AttributeError: 'KeyedStream'",
            "behind what is worked out by key",
        ),
        (STREAM + "s.sum('n')\n", ":3: AttributeError: 'DataStream'", '.key_by("user").sum(…)'),
        (STREAM + "s.keyBy('n')\n", ":3: AttributeError: 'DataStream'", "did you mean key_by?"),
        (STREAM + "s.group_by('n')\n", ":3: AttributeError: 'DataStream'", "did you mean key_by?"),
        (
            STREAM + "s.key_by('n').count_window(3).sum('n')\n",
            ":3: AttributeError",
            'write .aggregate("sum(price) as n")',
        ),
        (STREAM + "s.key_by('n').count_window(3).sink_to(1)\n", ":3: AttributeError", "behind .aggregate(…)"),
        (TIMED + "t.key_by('n').interval_join(t.key_by('n')).select('left.n')\n", ":4: AttributeError", ".between("),
        (
            TIMED + "t.key_by('n').interval_join(t.key_by('n')).betwen('1 s', '2 s')\n",
            ":4: AttributeError",
            "mean between",
        ),
        (STREAM + "s.join(s).apply(len)\n", ":3: AttributeError", "use one of equal_to, where, window"),
        ("raise SystemExit(3)\n", ":1: SystemExit: 3", "mend that line"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path: Path, text: str, what: str, next: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(DefinitionError) as caught:
        load_job(path)
    assert caught.value.what.startswith(path)
    assert what in caught.value.what
    assert next in caught.value.next
    assert "job" not in sys.modules


def test_a_mistyped_file_is_suggested(tmp_path: Path) -> None:
    _file(tmp_path, "", "event_log.py")
    with pytest.raises(DefinitionError, match="there is no file") as caught:
        load_job(str(tmp_path / "evnt_log.py"))
    assert caught.value.next == f"did you mean {tmp_path / 'event_log.py'}?"


def test_a_file_that_is_not_text_is_said_without_a_line(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(b"\x00\x00binary")
    with pytest.raises(DefinitionError) as caught:
        load_job(str(path))
    assert "None" not in str(caught.value)
    assert str(path) in caught.value.what


def test_a_file_that_runs_its_job_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("from poundlock import Job\njob = Job('eager')\njob.run()\n")
    with pytest.raises(DefinitionError, match=r"job.py:3: the file runs its job while it is being loaded") as told:
        load_job(str(file))
    assert told.value.next == 'put it under: if __name__ == "__main__":'


def test_a_script_of_sql_is_named_as_such(tmp_path: Path) -> None:
    path = _file(tmp_path, "SELECT 1", "script.sql")
    with pytest.raises(DefinitionError, match=r"script\.sql is a script of SQL, and no job of Python") as caught:
        load_job(path)
    assert f"poundlock sql {path};" in str(caught.value.next)
