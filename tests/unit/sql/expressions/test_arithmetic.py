"""Arithmetic of SQL against Python's integers and decimals: wrapping, rounding, digits of results, NULL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.functions.function import EvaluationError
from support.sql_expressions import tree, value, values

WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def wrapped(number: int, bits: int) -> int:
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@st.composite
def integers(draw: st.DrawFn) -> tuple[str, list[int | None]]:
    name = draw(st.sampled_from(sorted(WIDTHS)))
    bits = WIDTHS[name]
    edge = st.sampled_from([0, 1, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))])
    of = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) | edge | st.none()
    return name, draw(st.lists(of, min_size=4, max_size=4))


@given(integers(), integers(), st.sampled_from("+-*/%"))
def test_integers_wrap_around_and_are_divided_towards_zero(
    a: tuple[str, list[int | None]], b: tuple[str, list[int | None]], sign: str
) -> None:
    divides = sign in "/%"
    right = [1 if divides and y == 0 else y for y in b[1]]
    compute: Callable[[int, int], int] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "/": towards_zero,
        "%": lambda x, y: x - y * towards_zero(x, y),
    }[sign]
    made = tree(f"a {sign} b", {"a": a[0], "b": b[0]}).type
    wider = b[0] if sign == "%" else max(a[0], b[0], key=WIDTHS.__getitem__)
    assert str(made) == wider
    expected = [
        None if x is None or y is None else wrapped(compute(x, y), WIDTHS[wider])
        for x, y in zip(a[1], right, strict=True)
    ]
    assert values(f"a {sign} b", {"a": a, "b": (b[0], right)}) == expected


@st.composite
def decimals(draw: st.DrawFn) -> tuple[str, list[Decimal | None]]:
    precision = draw(st.sampled_from([1, 3, 9, 18, 19, 25, 38]))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    unscaled = draw(st.lists(st.none() | st.integers(-most, most) | st.integers(-9, 9), min_size=3, max_size=3))
    with localcontext(prec=100):
        return f"DECIMAL({precision}, {scale})", [None if v is None else Decimal(v).scaleb(-scale) for v in unscaled]


def fitted(number: Decimal, precision: int, scale: int) -> Decimal | None:
    made = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return made if abs(made) < Decimal(10) ** (precision - scale) else None


@given(decimals(), decimals(), st.sampled_from("+-*/%"))
def test_decimals_are_exact_and_rounded_half_up(
    a: tuple[str, list[Decimal | None]], b: tuple[str, list[Decimal | None]], sign: str
) -> None:
    right = [Decimal(1).scaleb(y.as_tuple().exponent) if y == 0 and y is not None else y for y in b[1]]  # type: ignore[arg-type]
    compute: Callable[[Any, Any], Decimal] = {
        "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y, "%": lambda x, y: x % y,
    }[sign]  # fmt: skip
    made = tree(f"a {sign} b", {"a": a[0], "b": b[0]}).type
    with localcontext(prec=200):
        expected = [
            None if x is None or y is None else fitted(compute(x, y), *made.sizes)
            for x, y in zip(a[1], right, strict=True)
        ]
        assert values(f"a {sign} b", {"a": a, "b": (b[0], right)}) == expected


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("a * b", "DECIMAL(38, 6)"), ("a / b", "DECIMAL(38, 9)"), ("a + b", "DECIMAL(38, 8)"), ("a % c", "DECIMAL(19, 9)"),
        ("c + i", "DECIMAL(11, 0)"), ("c * f", "DOUBLE"), ("i + r", "FLOAT"), ("r + f", "DOUBLE"), ("c + r", "DOUBLE"),
        ("t + i", "INT"), ("i + '1'", "INT"), ("c + '1'", "DECIMAL(38, 18)"),
    ],
)  # fmt: skip
def test_types_of_results(expression: str, kind: str) -> None:
    columns = {
        "a": "DECIMAL(38, 9)",
        "b": "DECIMAL(20, 0)",
        "c": "DECIMAL(10, 0)",
        "i": "INT",
        "f": "DOUBLE",
        "r": "FLOAT",
        "t": "TINYINT",
    }
    assert str(tree(expression, columns).type) == kind


@pytest.mark.parametrize("expression", ["a / b", "a % b", "MOD(a, b)", "a / CAST(b AS DECIMAL(3, 1))"])
def test_a_division_by_zero_fails_unless_a_side_is_null(expression: str) -> None:
    assert values(expression, {"a": ("INT", [None, 4]), "b": ("INT", [0, 2])})[0] is None
    with pytest.raises(EvaluationError, match="division by zero") as failed:
        values(expression, {"a": ("INT", [1, 4]), "b": ("INT", [0, 2])})
    assert failed.value.kind == "division_by_zero"


def test_floating_point_numbers_have_infinity() -> None:
    assert values("f / 0", {"f": ("DOUBLE", [1.0, -1.0, None])}) == [float("inf"), float("-inf"), None]


@given(st.lists(st.decimals(-(10**6), 10**6, places=3), min_size=1, max_size=4), st.integers(-4, 4))
def test_rounding_of_decimals(numbers: list[Decimal], places: int) -> None:
    columns: dict[str, tuple[str, list[Any]]] = {"d": ("DECIMAL(12, 3)", [*numbers, None])}
    with localcontext(prec=60):
        unit = Decimal(1).scaleb(-min(places, 3))
        expected = [number.quantize(unit, ROUND_HALF_UP) for number in numbers]
        assert values(f"ROUND(d, {places})", columns) == [*expected, None]
        cut = [number.quantize(unit, "ROUND_DOWN") for number in numbers]
        assert values(f"TRUNCATE(d, {places})", columns) == [*cut, None]
        assert values("FLOOR(d)", columns)[:-1] == [number.quantize(Decimal(1), "ROUND_FLOOR") for number in numbers]
        assert values("CEIL(d)", columns)[:-1] == [number.quantize(Decimal(1), "ROUND_CEILING") for number in numbers]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("ROUND(2.5E0)", 3.0), ("ROUND(-2.5E0)", -3.0), ("ROUND(1.005E0, 2)", 1.01), ("TRUNCATE(-2.9E0)", -2.0),
        ("ROUND(1250, -2)", 1300), ("ROUND(-1250, -2)", -1300), ("TRUNCATE(1299, -2)", 1200), ("ROUND(15, 3)", 15),
        ("ABS(-2.5)", Decimal("2.5")), ("SIGN(-0.5)", Decimal("-1.0")), ("SIGN(0)", 0), ("SQRT(16)", 4.0), ("LOG2(8)", 3.0),
        ("LOG(3, 9)", 2.0), ("POWER(2, -1)", 0.5), ("LN(1)", 0.0), ("EXP(0)", 1.0), ("DEGREES(0)", 0.0), ("ATAN2(0, 1)", 0.0),
    ],
)  # fmt: skip
def test_functions_of_numbers(expression: str, result: Any) -> None:
    assert value(expression) == result


def test_places_may_differ_from_row_to_row() -> None:
    columns: dict[str, tuple[str, list[Any]]] = {
        "x": ("DOUBLE", [1.25, 1.25, None, 1.25]),
        "n": ("INT", [0, 1, 1, None]),
    }
    assert values("ROUND(x, n)", columns) == [1.0, 1.3, None, None]


@given(st.dates(date(1900, 1, 1), date(2100, 12, 31)), st.integers(-500, 500))
def test_months_later_is_at_most_the_last_of_the_month(day: date, months: int) -> None:
    (made,) = values(f"d + INTERVAL '{abs(months)}' MONTH * {1 if months >= 0 else -1}", {"d": ("DATE", [day])})
    whole = day.year * 12 + day.month - 1 + months
    begin = date(whole // 12, whole % 12 + 1, 1)
    last = (date((whole + 1) // 12, (whole + 1) % 12 + 1, 1) - timedelta(days=1)).day
    assert made == begin.replace(day=min(day.day, last))
