"""How a user's own code reaches the tasks: modules that workers could not import travel by value, inside the plan.

Modules of installed packages and of the standard library are named only; the workers import them.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_seen = 0


def ship_user_modules() -> list[str]:
    """Have every module that is neither installed nor built in pickled by value; return their names."""
    from pyspark import cloudpickle

    names = []
    for module in user_modules():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        names.append(module.__name__)
    return sorted(names)


def user_modules() -> Iterator[ModuleType]:
    """Yield the modules of this process that are neither installed nor built in."""
    installed = [
        Path(path).resolve() for key, path in sysconfig.get_paths().items() if key.endswith("lib") or key == "stdlib"
    ]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        root = name.partition(".")[0]
        if not file or root in ("poundlock", "__main__", "pyspark", "py4j") or not isinstance(module, ModuleType):
            continue
        if name != module.__name__ or sys.modules.get(module.__name__) is not module:
            continue  # cloudpickle knows modules by their own name only
        path = Path(file).resolve()
        if not any(folder in path.parents for folder in installed) and "site-packages" not in path.parts:
            yield module


def shipped(value: Any) -> bytes:
    """Return an object as Spark takes it to its workers; `pickle.loads` makes it again, in any process."""
    from pyspark import cloudpickle

    global _seen
    if len(sys.modules) != _seen:  # looking through them takes longer than most pickles
        ship_user_modules()
        _seen = len(sys.modules)
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data
