"""From the place in Python that CREATE FUNCTION names to the function: the module is imported, its declaration is read."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from sqlglot import parse_one
from sqlglot.errors import ParseError, TokenError

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.dialect import Flink
from poundlock.sql.types import SqlType, type_of
from poundlock.sql.user.declared import UserDefinedFunction
from poundlock.sql.user.function import SqlUserFunction


def loaded(name: str, path: str) -> SqlUserFunction:
    """Return the function at a place in Python.

    Args:
        name: that SQL calls it by.
        path: `module.attribute`.

    Raises:
        DefinitionError: there is no such module or attribute, it is not declared, or a type of it is none.
    """
    module, _, attribute = path.rpartition(".")
    if not module:
        raise DefinitionError(f"{path!r} names no function in a module", next="write AS 'module.function'")
    held = vars(_imported(module))
    if attribute not in held:
        known = [each for each, value in held.items() if isinstance(value, UserDefinedFunction)]
        raise DefinitionError(
            f"there is no {attribute} in the module {module}",
            next=did_you_mean(attribute, known, "declare it there, with @udf, @udtf or @udaf of poundlock"),
        )
    declared = held[attribute]
    if not isinstance(declared, UserDefinedFunction):
        raise DefinitionError(
            f"{path} is not declared as a function of SQL",
            next='write @udf(result_type="…") of poundlock before it; @udtf and @udaf for tables and aggregates',
        )
    arguments = None if declared.input_types is None else tuple(_type(path, each) for each in declared.input_types)
    least, most = _counts(declared, arguments)
    accumulator = None if declared.accumulator_type is None else _type(path, declared.accumulator_type)
    return SqlUserFunction(name, path, _result(path, declared), arguments, least, most, accumulator, declared)


def function_at(path: str) -> Callable[..., Any]:
    """Return a function that is no function of SQL, by its place in Python.

    Args:
        path: `module.attribute`.

    Raises:
        DefinitionError: there is no such module or attribute, or it cannot be called.
    """
    module, _, attribute = path.rpartition(".")
    if not module:
        raise DefinitionError(f"{path!r} names no function in a module", next="write 'module.function'")
    function = vars(_imported(module)).get(attribute)
    if not callable(function):
        raise DefinitionError(
            f"there is no function {attribute} in the module {module}", next=f"write def {attribute}(…) there"
        )
    return function  # type: ignore[no-any-return]


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        where = "" if error.name in module.split(".") or module == error.name else f", which {module} imports"
        raise DefinitionError(
            f"there is no module {error.name}{where}",
            next="put it beside the script, or install the package that has it",
        ) from None
    except DefinitionError as error:
        raise DefinitionError(f"{_line(error, module)}: {error.what}", next=error.next, code=error.code) from error
    except Exception as error:
        raise DefinitionError(
            f"{_line(error, module)}: {type(error).__name__}: {error}", next=f"mend the module {module}"
        ) from error


def _line(error: BaseException, module: str) -> str:
    """Return file and line of the last frame that is neither ours nor Python's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and "/poundlock/" not in frame.filename
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else f"the module {module}"


def _result(path: str, declared: UserDefinedFunction) -> SqlType:
    """Return the type of the result; of a table function a ROW of its columns."""
    types = tuple(_type(path, each) for each in declared.result_types)
    if declared.kind != "table":
        return types[0]
    if len(types) == 1 and types[0].root == "ROW":
        return types[0]
    return SqlType("ROW", of=types, names=tuple(f"f{number}" for number in range(len(types))))


def _type(path: str, text: str) -> SqlType:
    try:
        cast = parse_one(f"CAST(NULL AS {text})", read=Flink)
        return type_of(cast.args["to"])
    except (ParseError, TokenError, DefinitionError, KeyError) as error:
        why = f": {error.what}" if isinstance(error, DefinitionError) else ""
        raise DefinitionError(
            f"{text!r}, which {path} declares, is no type{why}", next="write a type of SQL, such as DECIMAL(10, 2)"
        ) from None


def _counts(declared: UserDefinedFunction, arguments: Sequence[SqlType] | None) -> tuple[int, int | None]:
    """Return how many arguments a function takes at least, and at most.

    Raises:
        DefinitionError: it does not take as many as the types that are declared.
    """
    least, most = _of_signature(declared)
    if arguments is None:
        return least, most
    count = len(arguments)
    if count < least or (most is not None and count > most):
        raise DefinitionError(
            f"{declared.function!r:.80} takes {least if most == least else f'{least} to {most}'} arguments, and {count} types are declared",
            next="give input_types a type for each argument",
        )
    return count, count


def _of_signature(declared: UserDefinedFunction) -> tuple[int, int | None]:
    function, own = declared.function, 0
    if declared.kind == "aggregate":
        if declared.func_type == "arrow":
            columns = len(declared.function.columns)
            return (columns, columns) if columns else (0, None)
        function, own = declared.function.accumulate, 1
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of some functions that are written in C it is not known
        return 0, None
    placed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    least = sum(each.default is each.empty for each in placed)
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return max(least - own, 0), None if any_number else len(placed) - own
