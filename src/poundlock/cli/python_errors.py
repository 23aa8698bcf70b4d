"""What an error of Python's in a user's file probably meant: a name of poundlock's that is near, or where a method belongs."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from importlib import import_module
from operator import attrgetter

import poundlock
from poundlock.driver.autoscaler import Autoscaler
from poundlock.errors import did_you_mean
from poundlock.job import Job
from poundlock.stream.joins import IntervalJoin, IntervalJoined, JoinedStreams, JoinedWindows
from poundlock.stream.keyed import KeyedStream
from poundlock.stream.stream import DataStream
from poundlock.stream.windows.windowed import WindowedStream

_MEND = "mend that line"
_KINDS = (Job, DataStream, KeyedStream, WindowedStream, IntervalJoin, JoinedStreams, JoinedWindows)
_CLASSES = {base.__name__ for kind in (*_KINDS, Autoscaler) for base in kind.__mro__}
_ELSEWHERE = {"group_by": "key_by", "groupBy": "key_by", "add_source": "from_source", "execute": "run"}
_SUCH = {
    "schema": '"user string, n bigint"',
    "name": '"event-log"',
    "max_parallelism": "8",
    "order_by": '"price desc"',
}


def meant(error: BaseException) -> str:
    """Return what to write instead, where an error of Python's does not say it itself."""
    message = str(error)
    name = re.fullmatch(r"(?:cannot import )?name '(\w+)' (?:from '(poundlock[.\w]*)'.*|is not defined)", message)
    keyword = re.fullmatch(r"([.\w]+?)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", message)
    missing = re.fullmatch(r"(\w+)[.\w]*\(\) missing \d+ required .*arguments?: '(\w+)'.*", message)
    with suppress(ImportError, AttributeError, TypeError, ValueError):
        if name:
            return did_you_mean(name[1], dir(import_module(name[2] or "poundlock")), _MEND)
        if keyword:
            return did_you_mean(keyword[2], inspect.signature(attrgetter(keyword[1])(poundlock)).parameters, _MEND)
        if missing and missing[2] in _SUCH and missing[1] in _CLASSES:
            return f"give {missing[2]}, such as {missing[2]}={_SUCH[missing[2]]}"
        if isinstance(error, AttributeError) and type(error.obj) in _KINDS:
            return _of_attribute(type(error.obj), str(error.name))
    return _MEND


def _of_attribute(kind: type, name: str) -> str:
    """Return where a method that a class of poundlock's has not belongs, or one whose name is near."""
    if issubclass(kind, KeyedStream) and name in _public(DataStream):
        return f"call .{name}(…) before key_by, or behind what is worked out by key, such as .process(…) or .sum(…)"
    if issubclass(kind, DataStream) and name in _public(KeyedStream):
        return f'call it by key: .key_by("user").{name}(…)'
    if issubclass(kind, WindowedStream) and name in {"sum", "min", "max", "count"}:
        return f'write .aggregate("{name}({"*" if name == "count" else "price"}) as n")'
    if issubclass(kind, WindowedStream) and name in _public(DataStream):
        return f"call .{name}(…) behind .aggregate(…), .reduce(…) or .process(…)"
    if issubclass(kind, IntervalJoin) and name in _public(IntervalJoined):
        return f'write .between("-5 min", "5 min").{name}(…)'
    known = _public(kind)
    if _ELSEWHERE.get(name) in known:
        return f"did you mean {_ELSEWHERE[name]}?"
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return did_you_mean(snake, known, f"use one of {', '.join(known)}")


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
