"""poundlock: streaming pipelines on PySpark that are exactly-once end to end.

Every public name has one import path, `from poundlock import …`; importing the package loads neither pyspark nor pyarrow. The names
are listed once, in `__init__.pyi`: type checkers read it as it is, and a name's module is loaded when it is first asked for.
"""

import os
import re
from importlib import import_module

__version__ = "0.2.0"


def lazily(package):
    """Return `__all__`, `__getattr__` and `__dir__` for the globals of a package whose names are listed in its `__init__.pyi`.

    A name's module is loaded when it is first asked for.
    """
    spec = package["__spec__"]
    stub = spec.loader.get_data(os.path.join(os.path.dirname(spec.origin), "__init__.pyi")).decode()
    names = {
        name: (module, attribute)
        for module, block in re.findall(r"^from (\S+) import ([^(]+?|\([^)]+\))$", stub, re.MULTILINE)
        for attribute, name in re.findall(r"(\w+) as (\w+)", block)
    }

    def __getattr__(name):
        if name not in names:
            raise AttributeError(f"module {spec.name!r} has no attribute {name!r}")
        module, attribute = names[name]
        value = package[name] = getattr(import_module(module), attribute)
        return value

    return sorted(names), __getattr__, lambda: sorted([*package, *names])


__all__, __getattr__, __dir__ = lazily(globals())
__all__ = ["__version__", *__all__]
