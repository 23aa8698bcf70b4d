"""How a user's own code reaches the tasks: modules that workers could not import travel by value, inside the plan.

Modules of the standard library and of packages that pip installed, wherever that was, are named only; the workers import them: what
is compiled cannot travel. A msgspec Struct needs more than
cloudpickle does for a class, which makes it of its attributes: a Struct's fields are none of them.
"""

from __future__ import annotations

import inspect
import io
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

_seen = 0
# What holds for a whole class, beside its tag and whether its fields are given by name.
_SETTINGS = (
    "array_like",
    "cache_hash",
    "dict",
    "eq",
    "forbid_unknown_fields",
    "frozen",
    "gc",
    "omit_defaults",
    "order",
    "repr_omit_defaults",
    "weakref",
)


class _Made(msgspec.Struct):
    """Has a default that is made for each object, by something whose type msgspec does not name."""

    value: list[Any] = msgspec.field(default_factory=list)


_FACTORY: Any = type(_Made.__struct_defaults__[0])


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
        if any(folder in path.parents for folder in installed) or "site-packages" in path.parts:
            continue
        levels = name.count(".") + (path.stem == "__init__")
        if root not in _installed_in(path.parents[min(levels, len(path.parents) - 1)]):
            yield module


@cache
def _installed_in(folder: Path) -> frozenset[str]:
    """Return the names that pip has installed into a folder of the user's own, as with its --target."""
    names = set()
    for record in folder.glob("*.dist-info/RECORD"):
        paths = (line.partition(",")[0] for line in record.read_text(encoding="utf-8").splitlines())
        names |= {path.partition("/")[0].partition(".")[0] for path in paths}
    return frozenset(names)


def shipped(value: Any) -> bytes:
    """Return an object as Spark takes it to its workers; `pickle.loads` makes it again, in any process."""
    global _seen
    if len(sys.modules) != _seen:  # looking through them takes longer than most pickles
        ship_user_modules()
        _seen = len(sys.modules)
    data = io.BytesIO()
    _pickler()(data).dump(value)
    return data.getvalue()


@cache
def _pickler() -> Any:
    """Return Spark's pickler, for which a Struct that travels by value has its fields."""
    from pyspark import cloudpickle

    class Pickler(cloudpickle.CloudPickler):
        def reducer_override(self, obj: Any) -> Any:
            reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call]
            if not (isinstance(reduced, tuple) and isinstance(obj, type) and issubclass(obj, msgspec.Struct)):
                return reduced
            make, (kind, *rest), *more = reduced
            return (
                make,
                (partial(_struct, kind, _fields(obj), _settings(obj), "__post_init__" in vars(obj)), *rest),
                *more,
            )

    return Pickler


def _fields(cls: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    """Return the fields that a class itself declares, each with the arguments of its `msgspec.field`."""
    names, held = cls.__struct_fields__, cls.__struct_defaults__
    defaults = dict(zip(names[len(names) - len(held) :], held, strict=True))
    columns = dict(zip(names, cls.__struct_encode_fields__, strict=True))
    fields: dict[str, dict[str, Any]] = {}
    for name in inspect.get_annotations(cls):
        if name not in columns:  # a ClassVar
            continue
        fields[name] = {} if columns[name] == name else {"name": columns[name]}
        default = defaults.get(name, msgspec.NODEFAULT)
        if isinstance(default, _FACTORY):
            fields[name]["default_factory"] = default.factory
        elif default is not msgspec.NODEFAULT:
            fields[name]["default"] = default
    return fields


def _settings(cls: type[msgspec.Struct]) -> dict[str, Any]:
    config = cls.__struct_config__
    settings = {each: getattr(config, each) for each in _SETTINGS}
    if config.tag is not None:
        settings |= {"tag": config.tag, "tag_field": config.tag_field}
    parameters = inspect.signature(cls).parameters
    own = [parameters[name] for name in inspect.get_annotations(cls) if name in parameters]
    return settings | {"kw_only": any(each.kind is each.KEYWORD_ONLY for each in own)}


def _struct(
    kind: Any,
    fields: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    checks: bool,
    name: str,
    bases: tuple[type, ...],
    namespace: Mapping[str, Any],
) -> Any:
    """Make a Struct's class; cloudpickle gives it its methods and annotations afterwards.

    Args:
        kind: its metaclass.
        checks: whether it has a `__post_init__` of its own.
    """
    given = {each: msgspec.field(**arguments) for each, arguments in fields.items() if arguments}
    late = {"__post_init__": _post_init} if checks else {}
    return kind(name, bases, {**namespace, **given, **late, "__annotations__": dict.fromkeys(fields, Any)}, **settings)


def _post_init(record: Any) -> None:
    """Call a class's own `__post_init__`, which it has by now: msgspec looks it up when the class is made, and only then."""
    type(record).__post_init__(record)
