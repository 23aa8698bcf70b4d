"""poundlock: PySpark Structured Streaming pipelines that are exactly-once end to end.

Every public name has one import path, `from poundlock import …`; importing the package loads neither pyspark nor pyarrow. The names
are listed once, in `__init__.pyi`: type checkers read it as it is, and a name's module is loaded when it is first asked for.
"""

import os
import re
from importlib import import_module

__version__ = "0.1.0"

_STUB = __spec__.loader.get_data(os.path.join(os.path.dirname(__file__), "__init__.pyi")).decode()
_NAMES = {
    name: (module, attribute)
    for module, names in re.findall(r"^from (\S+) import ([^(]+?|\([^)]+\))$", _STUB, re.MULTILINE)
    for attribute, name in re.findall(r"(\w+) as (\w+)", names)
}

__all__ = ["__version__", *sorted(_NAMES)]


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'poundlock' has no attribute {name!r}")
    module, attribute = _NAMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_NAMES])
