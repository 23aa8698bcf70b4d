"""How a Python function is declared for SQL: decorators with PyFlink's names, where they fit.

Types are texts of SQL types, which are read when CREATE FUNCTION names the function; this module loads neither Arrow nor a parser. What
is declared can still be called from Python, as in a test of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, overload

from poundlock.calls import check_function, check_methods
from poundlock.errors import DefinitionError
from poundlock.stream.functions.arrow import ArrowAggregateFunction

FunctionKind = Literal["scalar", "table", "aggregate"]
FunctionType = Literal["general", "arrow"]
_ORDINARY = get_args(FunctionType)


class ImperativeAggregateFunction:
    """An aggregate that takes one row after the other. Derive from it, and declare the class or an object of it with `udaf`.

    The accumulator is what `accumulator_type` declares: a number or text, a list for an ARRAY, a dict for a ROW or MAP. It may be
    changed in place; a method that returns nothing has changed it so, and one that returns a value gives the accumulator that counts.
    """

    def create_accumulator(self) -> Any:
        """Return the accumulator of no rows."""
        raise NotImplementedError

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        """Add the arguments of a row."""
        raise NotImplementedError

    def retract(self, accumulator: Any, *args: Any) -> Any:
        """Take back the arguments of a row that was added. Needed for rows that change."""
        raise NotImplementedError

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> Any:
        """Add other accumulators. Needed for windows."""
        raise NotImplementedError

    def get_value(self, accumulator: Any) -> Any:
        """Return the result; the accumulator goes on being used."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class UserDefinedFunction:
    """A Python function with what SQL has to know of it. Made by `udf`, `udtf` and `udaf`.

    Args:
        function: what was declared; of an aggregate the object.
        result_types: one, but of a table function one a column.
        input_types: None where the arguments are taken as they are, as many as the function has.
        accumulator_type: of an aggregate by row.
    """

    kind: FunctionKind
    function: Any = field(compare=False)
    result_types: tuple[str, ...]
    input_types: tuple[str, ...] | None
    accumulator_type: str | None = None
    deterministic: bool = True
    func_type: FunctionType = "general"

    def __call__(self, *args: Any) -> Any:
        """Call the function from Python."""
        return self.function(*args)


@overload
def udf(
    f: Callable[..., Any],
    *,
    result_type: str | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
    func_type: FunctionType = ...,
) -> UserDefinedFunction: ...


@overload
def udf(
    f: None = None,
    *,
    result_type: str | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
    func_type: FunctionType = ...,
) -> Callable[[Callable[..., Any]], UserDefinedFunction]: ...


def udf(
    f: Callable[..., Any] | None = None,
    *,
    result_type: str | None = None,
    input_types: str | Sequence[str] | None = None,
    deterministic: bool = True,
    func_type: FunctionType = "general",
) -> UserDefinedFunction | Callable[[Any], UserDefinedFunction]:
    """Declare a function of the values of a row: `@udf(result_type="BIGINT")`.

    Args:
        f: the function, where this is not used as a decorator.
        result_type: the type of what it returns, as SQL writes it; None is NULL.
        input_types: those of its arguments, to which SQL casts what it is given; None: they are taken as they are.
        deterministic: whether equal arguments always give an equal result.
        func_type: "general" for a function of a row's values, "arrow" for one of pyarrow Arrays, which returns one of as many values.

    Raises:
        DefinitionError: something of it is missing or wrong.
    """

    def declared(function: Callable[..., Any]) -> UserDefinedFunction:
        _check("udf", function, result_type, "result_type", func_type)
        return UserDefinedFunction(
            kind="scalar",
            function=function,
            result_types=(str(result_type),),
            input_types=_texts(input_types),
            deterministic=deterministic,
            func_type=func_type,
        )

    return declared if f is None else declared(f)


@overload
def udtf(
    f: Callable[..., Any],
    *,
    result_types: str | Sequence[str] | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
) -> UserDefinedFunction: ...


@overload
def udtf(
    f: None = None,
    *,
    result_types: str | Sequence[str] | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
) -> Callable[[Callable[..., Any]], UserDefinedFunction]: ...


def udtf(
    f: Callable[..., Any] | None = None,
    *,
    result_types: str | Sequence[str] | None = None,
    input_types: str | Sequence[str] | None = None,
    deterministic: bool = True,
) -> UserDefinedFunction | Callable[[Any], UserDefinedFunction]:
    """Declare a function that gives any number of rows for a row: `@udtf(result_types=["STRING", "INT"])`.

    It returns or yields a tuple or a dict for each row; where there is one column, its value. Arguments as of `udf`.

    Args:
        result_types: the type of each column, or one ROW<name type, …> that names them.

    Raises:
        DefinitionError: something of it is missing or wrong.
    """

    def declared(function: Callable[..., Any]) -> UserDefinedFunction:
        _check("udtf", function, result_types or None, "result_types", "general")
        return UserDefinedFunction(
            kind="table",
            function=function,
            result_types=_texts(result_types) or (),
            input_types=_texts(input_types),
            deterministic=deterministic,
        )

    return declared if f is None else declared(f)


@overload
def udaf(
    f: object,
    *,
    result_type: str | None = ...,
    accumulator_type: str | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
    func_type: FunctionType = ...,
) -> UserDefinedFunction: ...


@overload
def udaf(
    f: None = None,
    *,
    result_type: str | None = ...,
    accumulator_type: str | None = ...,
    input_types: str | Sequence[str] | None = ...,
    deterministic: bool = ...,
    func_type: FunctionType = ...,
) -> Callable[[Any], UserDefinedFunction]: ...


def udaf(
    f: Any = None,
    *,
    result_type: str | None = None,
    accumulator_type: str | None = None,
    input_types: str | Sequence[str] | None = None,
    deterministic: bool = True,
    func_type: FunctionType = "general",
) -> UserDefinedFunction | Callable[[Any], UserDefinedFunction]:
    """Declare an aggregate: `@udaf(result_type="DOUBLE", accumulator_type="ROW<total DOUBLE, n BIGINT>")`, before a class.

    By row the class is derived from `ImperativeAggregateFunction`; with func_type="arrow" from `ArrowAggregateFunction`, whose
    accumulator is what its own attribute says, and whose rows have the arguments as columns, called as its `columns` say, else f0, f1 ….

    Args:
        f: the class or an object of it, where this is not used as a decorator.
        accumulator_type: what is kept of the rows of a group, by row.

    Raises:
        DefinitionError: something of it is missing or wrong.
    """

    def declared(given: Any) -> UserDefinedFunction:
        function = given() if isinstance(given, type) else given
        _check("udaf", function, result_type, "result_type", func_type, callable_=False)
        base: type = ArrowAggregateFunction if func_type == "arrow" else ImperativeAggregateFunction
        if not isinstance(function, base):
            raise DefinitionError(
                f"udaf of {type(function).__name__}, which is no {base.__name__}",
                next=f"derive the class from poundlock.{base.__name__}",
            )
        if func_type == "general":
            if accumulator_type is None:
                raise DefinitionError(
                    f"udaf of {type(function).__name__} without accumulator_type",
                    next='give what is kept of a group, such as accumulator_type="ROW<total DOUBLE, n BIGINT>"',
                )
            for name in ("create_accumulator", "accumulate", "get_value"):
                if vars(base)[name] is vars(_owner(type(function), name))[name]:
                    raise DefinitionError(f"{type(function).__name__} has no {name}", next=f"write def {name}(…)")
        else:
            check_methods(function, base, "udaf")
        return UserDefinedFunction(
            kind="aggregate",
            function=function,
            result_types=(str(result_type),),
            input_types=_texts(input_types),
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            func_type=func_type,
        )

    return declared if f is None else declared(f)


def has_method(function: Any, name: str) -> bool:
    """Return whether an aggregate has a method of its own, and not only the one that its base declares."""
    return _owner(type(function), name) not in (ImperativeAggregateFunction, ArrowAggregateFunction)


def _owner(cls: type, name: str) -> type:
    return next(each for each in cls.__mro__ if name in vars(each))


def _check(
    decorator: str, function: Any, result: object, argument: str, func_type: str, *, callable_: bool = True
) -> None:
    if result is None:
        raise DefinitionError(f"{decorator} without {argument}", next=f'write {decorator}({argument}="BIGINT"), say')
    if func_type not in _ORDINARY:
        raise DefinitionError(f"func_type={func_type!r} is not known", next=f"use one of {', '.join(_ORDINARY)}")
    if callable_ and not callable(function):
        check_function(function, decorator)


def _texts(types: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if types is None:
        return None
    return (types,) if isinstance(types, str) else tuple(types)
