"""What travels to tasks by value: modules of the user's own, and no package that pip installed, wherever that was."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from poundlock.errors import DefinitionError
from poundlock.spark.pickled_functions import shipped, user_modules
from poundlock.tasks.entry import load_shipped

NAMES = ("compiled_package", "compiled_package.inner", "helpers_of_a_job")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """A package as `pip install --target` leaves it, with a part that cannot be pickled, and a module beside a job's file."""
    target, beside = tmp_path / "target", tmp_path / "job"
    package, record = target / "compiled_package", target / "compiled_package-1.0.dist-info" / "RECORD"
    for folder in (package, record.parent, beside):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import threading\nfrom compiled_package import inner\nlock = threading.Lock()\n"
    )
    (package / "inner.py").write_text("def twice(n):\n    return n * 2\n")
    record.write_text("../bin/tool,,\ncompiled_package/__init__.py,sha256=x,1\ncompiled_package/inner.py,,\n")
    (beside / "helpers_of_a_job.py").write_text(
        "import compiled_package\n\n\ndef call(n):\n    return compiled_package.inner.twice(n)\n"
    )
    for folder in (target, beside):
        monkeypatch.syspath_prepend(folder)
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_package_that_pip_put_into_a_folder_is_named_only(modules: dict[str, ModuleType]) -> None:
    assert {module.__name__ for module in user_modules()} & set(NAMES) == {"helpers_of_a_job"}
    call = modules["helpers_of_a_job"].call
    assert pickle.loads(shipped(call))(4) == 8


def test_a_worker_without_the_package_says_what_to_do(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = shipped(modules["compiled_package.inner"].twice)
    monkeypatch.setattr("sys.path", [path for path in sys.path if "target" not in path])
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(DefinitionError, match="tasks cannot import 'compiled_package'") as caught:
        load_shipped(sent)
    assert "PYTHONPATH" in caught.value.next
